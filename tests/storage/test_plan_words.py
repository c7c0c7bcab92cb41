"""What a plan says of other lengths of training."""

from dataclasses import replace

import pytest

from breakeven.runner.settings import Prices
from breakeven.storage.plan import Choice, Plan
from breakeven.storage.terminal.plan_words import advice, advice_words, other_lengths

CHOICES = (
    Choice(from_steps=0.0, label=None),
    Choice(from_steps=1310.2, label="inductor"),
    Choice(from_steps=84000.0, label="max<autotune>"),
)


@pytest.mark.parametrize(
    ("num_steps", "said"),
    [
        (
            1_000,
            "From 1,310 steps on take inductor, from 84,000 steps on take max<autotune>.",
        ),
        (
            20_000,
            "Below 1,310 steps do not compile, from 84,000 steps on take max<autotune>.",
        ),
        (90_000, "Below 1,310 steps do not compile, below 84,000 steps take inductor."),
    ],
)
def test_the_plan_says_what_other_lengths_of_training_call_for(num_steps: int, said: str) -> None:
    plan = Plan(num_steps=num_steps, totals={}, best=None, baseline="baseline", choices=CHOICES)
    assert other_lengths(plan) == said


def test_a_plan_with_one_choice_says_nothing_of_other_lengths() -> None:
    plan = Plan(num_steps=5, totals={}, best=None, baseline="baseline", choices=CHOICES[:1])
    assert other_lengths(plan) == ""


def test_the_plan_says_what_the_choice_costs_in_energy_and_money() -> None:
    """Two hours on two devices at 2.5 an hour are 10; 7.2 MJ are 2 kWh at 0.3, which is 0.6, and
    0.8 kg of CO2 at 400 g each."""
    plan = Plan(num_steps=5, totals={"baseline": 7200.0, "inductor": 9000.0}, best=None,
                baseline="baseline", joules={"baseline": 7.2e6}, num_devices=2,
                choices=CHOICES[:1])  # fmt: skip
    prices = Prices(currency="EUR", device_hour=2.5, kwh=0.3, co2_grams_per_kwh=400)

    def said(plan: Plan, prices: Prices) -> str:
        found = advice(plan, prices)
        return advice_words(found) if found else ""

    assert said(plan, prices) == (
        "do not compile: the steps take 2 h 0 min. The steps use 2.00 kWh. They emit 0.800 kg of "
        "CO2. The training costs 10.6 EUR. No backend surely takes less."
    )
    assert "The training costs 4,001 EUR." in said(replace(plan, num_devices=800), prices)
    assert said(plan, Prices()) == (
        "do not compile: the steps take 2 h 0 min. The steps use 2.00 kWh. No backend surely takes "
        "less."
    )
