"""What a plan says of other lengths of training."""

import pytest

from breakeven.storage.plan import Choice, Plan
from breakeven.storage.terminal.plan_words import other_lengths

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
    plan = Plan(num_steps=num_steps, totals={}, best=None, baseline_seconds=1.0, choices=CHOICES)
    assert other_lengths(plan) == said


def test_a_plan_with_one_choice_says_nothing_of_other_lengths() -> None:
    plan = Plan(num_steps=5, totals={}, best=None, baseline_seconds=1.0, choices=CHOICES[:1])
    assert other_lengths(plan) == ""
