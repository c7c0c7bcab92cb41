"""When a speed experiment ends: by the width of its intervals, its budget, or because runs died."""

import math
from collections.abc import Sequence

import pytest

from breakeven.runner.specs.experiment import SpeedSpec
from breakeven.runner.supervision.stopping_rule import StoppingRule, width_of_median

ROLES = {"baseline": "baseline", "control": "control", "eager": "backend"}


def test_the_interval_of_the_median_leaves_out_more_the_more_rounds_there_are() -> None:
    # All 5 on one side of the median: 2 / 2^5 is more than 5 %.
    assert width_of_median([1.0] * 5) is None
    assert width_of_median([1.0, 1.05, 1.01, 1.04, 1.02, 1.03]) == pytest.approx(0.05)
    # (1 + 12 + 66) / 4096 = 1.9 % of tosses have fewer than 3 heads, 7.3 % fewer than 4.
    ratios = [0.1, 9.0, 0.2, 8.0, 1.0, 1.1, 1.0, 1.1, 1.0, 1.1, 1.0, 1.1]
    assert width_of_median(ratios) == pytest.approx(0.1)


def test_rounds_like_their_neighbours_make_the_interval_wider() -> None:
    """Seven of 1, the median, then six of 2. The sides 0 and 1 have the mean 6/13; the products of
    neighbours are 6 x 36, -42 and 5 x 49, their sum 419 over 546, the squares: r = 0.767. Two or
    fewer heads of 13 have 1.1 %, three 4.6 %: the third smallest and largest are the ends, 1 and 2.
    """
    r = 419 / 546
    stretch = math.sqrt((1 + r) / (1 - r))
    assert width_of_median([1.0] * 7 + [2.0] * 6) == pytest.approx(2**stretch - 1)
    # Three below, three above the median: of the five neighbours four are alike and one is not,
    # and (4 - 1) / 6 is a correlation of 0.5, which stretches by the root of 1.5 / 0.5.
    ratios = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05]
    assert width_of_median(ratios) == pytest.approx(math.exp(math.sqrt(3) * math.log(1.05)) - 1)


def rule(**changes: float) -> StoppingRule:
    fields = {"min_rounds": 6, "max_rounds": 30, "target_width": 0.05, **changes}
    return StoppingRule(SpeedSpec(**fields), ROLES, fields.pop("max_seconds", 1e9))  # type: ignore


def measure(
    rule: StoppingRule, times: dict[str, Sequence[float]], living: Sequence[str] = tuple(ROLES)
) -> tuple[int, str | None]:
    """Rounds until the rule says that the next one is the last, and why."""
    count = max(map(len, times.values()))
    for number in range(count):
        for label, seconds in times.items():
            if number < len(seconds):
                rule.add(label, number, seconds[number])
        if ending := rule.ending(living):
            return number + 1, ending.reason
    return count, None


STEADY = [1.0] * 40
RESTLESS = [1.0, 1.1] * 20
"""Two values in turns: neighbours are unlike, and the interval is 10 % wide."""
NARROW = "every interval is narrower than 5 %"
WIDE = "; intervals are wider than the requested 5 %: eager 10 %"


@pytest.mark.parametrize(
    ("budget", "control", "eager", "rounds", "reason"),
    [
        ({}, STEADY, STEADY, 6, NARROW),
        ({"min_rounds": 11}, STEADY, STEADY, 11, NARROW),
        # The next round is the last: 30 in all.
        ({}, STEADY, RESTLESS, 29, f"the budget of 30 rounds is spent{WIDE}"),
        (
            {},
            RESTLESS,
            STEADY,
            29,
            f"the budget of 30 rounds is spent{WIDE}".replace("eager", "control"),
        ),
        # All runs together: 3.0 s and 3.1 s in turns are 21.4 s after 7 rounds, 24.4 s after 8.
        ({"max_seconds": 24.0}, STEADY, RESTLESS, 8, "the budget of 24 s is spent"),
        ({"min_rounds": 30}, STEADY, STEADY, 29, f"the budget of 30 rounds is spent, and {NARROW}"),
        # Looks lie farther and farther apart. Four of the rounds are long. The interval leaves out
        # 3 of 15 rounds at each end, and 4 of 18 (of 17 as well): the looks come after 6, 8, 10,
        # 12, 15 and 18 rounds.
        ({}, STEADY, [*[1.0, 1.5] * 4, *STEADY], 18, NARROW),
    ],
)
def test_measuring_ends_once_every_interval_is_narrow_or_the_budget_is_spent(
    budget: dict[str, float], control: list[float], eager: list[float], rounds: int, reason: str
) -> None:
    times = {"baseline": STEADY, "control": control, "eager": eager}
    ended, why = measure(rule(**budget), times)
    assert ended == rounds and str(why).startswith(reason)


def test_a_dead_run_holds_nobody_up_and_without_any_to_compare_the_next_round_is_the_last() -> None:
    times = {"baseline": STEADY, "control": STEADY, "eager": RESTLESS[:3]}
    assert measure(rule(), times, ("baseline", "control"))[0] == 6
    for living in (("control", "eager"), ("baseline",), ()):
        rounds, reason = measure(rule(), {"baseline": STEADY, "eager": STEADY}, living)
        assert rounds == 1 and "nothing is left to compare" in str(reason)


def test_baselines_of_several_environments_are_compared_with_that_of_the_first_one() -> None:
    environments = {"baseline@a": "a", "baseline@b": "b"}
    roles = dict.fromkeys(environments, "baseline")

    def ends_after(times: Sequence[float], *living: str) -> tuple[int, str | None]:
        speed = SpeedSpec(min_rounds=6, max_rounds=30, target_width=0.05)
        both = StoppingRule(speed, roles, 1e9, environments=environments)  # type: ignore[arg-type]
        return measure(both, {"baseline@a": STEADY, "baseline@b": times}, living or [*roles])

    assert ends_after(STEADY) == (6, NARROW)
    wide = f"the budget of 30 rounds is spent{WIDE}".replace("eager", "baseline@b")
    assert ends_after(RESTLESS) == (29, wide)
    rounds, reason = ends_after(STEADY, "baseline@b")
    assert rounds == 1 and "nothing is left to compare" in str(reason)


def test_a_run_that_is_alone_from_the_start_keeps_to_the_budget() -> None:
    alone = StoppingRule(SpeedSpec(min_rounds=6, max_rounds=9), {"eager": "backend"}, 1e9)
    ended = measure(alone, {"eager": STEADY}, ("eager",))
    assert ended == (8, "the budget of 9 rounds is spent")
