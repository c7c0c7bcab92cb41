"""When a speed experiment ends: by the width of its intervals, its budget, or because runs died."""

import math
from collections.abc import Sequence

import pytest

from breakeven.runner.specs.experiment import SpeedSpec
from breakeven.runner.supervision.stopping_rule import StoppingRule, width_of_median

ROLES = {"baseline": "baseline", "control": "control", "eager": "backend"}


def test_fewer_than_six_rounds_have_no_interval() -> None:
    # All 5 on one side of the median: 2 / 2^5 is more than 5 %.
    assert width_of_median([1.0] * 5) is None
    assert width_of_median([1.0] * 6) == 0.0


def test_of_six_rounds_the_interval_reaches_from_the_least_to_the_most() -> None:
    assert width_of_median([1.0, 1.05, 1.01, 1.04, 1.02, 1.03]) == pytest.approx(0.05)


def test_of_twelve_rounds_it_leaves_out_two_at_each_end() -> None:
    # (1 + 12 + 66) / 4096 = 1.9 % of tosses have fewer than 3 heads, 7.3 % fewer than 4.
    ratios = [0.1, 9.0, 0.2, 8.0, 1.0, 1.1, 1.0, 1.1, 1.0, 1.1, 1.0, 1.1]
    assert width_of_median(ratios) == pytest.approx(0.1)


def test_rounds_like_their_neighbours_make_it_wider() -> None:
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


def test_measuring_ends_once_every_interval_is_narrow_but_not_before_the_least_rounds() -> None:
    times = {"baseline": STEADY, "control": STEADY, "eager": STEADY}
    assert measure(rule(), times) == (6, "every interval is narrower than 5 %")
    assert measure(rule(min_rounds=11), times)[0] == 11


def test_one_wide_interval_keeps_all_measuring_until_the_rounds_are_spent() -> None:
    times = {"baseline": STEADY, "control": STEADY, "eager": RESTLESS}
    rounds, reason = measure(rule(), times)
    assert rounds == 29  # the 30th is the last
    assert reason == (
        "the budget of 30 rounds is spent; intervals are wider than the requested 5 %: eager 10 %"
    )


def test_the_controls_interval_counts_as_well() -> None:
    times = {"baseline": STEADY, "control": RESTLESS, "eager": STEADY}
    assert measure(rule(), times)[0] == 29


def test_seconds_are_those_of_all_runs_together() -> None:
    times = {"baseline": STEADY, "control": STEADY, "eager": RESTLESS}
    rounds, reason = measure(rule(max_seconds=24.0), times)
    # 3.0 s and 3.1 s in turns: 21.4 s after 7 rounds, 24.4 s after 8.
    assert (rounds, (reason or "").partition(";")[0]) == (8, "the budget of 24 s is spent")


def test_what_is_exact_at_the_end_of_the_budget_is_said_to_be() -> None:
    times = {"baseline": STEADY, "control": STEADY, "eager": STEADY}
    assert measure(rule(min_rounds=30), times) == (
        29, "the budget of 30 rounds is spent, and every interval is narrower than 5 %",
    )  # fmt: skip


def test_a_dead_run_holds_nobody_up() -> None:
    times = {"baseline": STEADY, "control": STEADY, "eager": RESTLESS[:3]}
    assert measure(rule(), times, ("baseline", "control"))[0] == 6


@pytest.mark.parametrize("living", [("control", "eager"), ("baseline",), ()])
def test_without_anything_to_compare_the_next_round_is_the_last(living: tuple[str, ...]) -> None:
    rounds, reason = measure(rule(), {"baseline": STEADY, "eager": STEADY}, living)
    assert rounds == 1 and "nothing is left to compare" in str(reason)


def test_baselines_of_several_environments_are_compared_with_that_of_the_first_one() -> None:
    environments = {"baseline@a": "a", "baseline@b": "b"}
    roles = dict.fromkeys(environments, "baseline")

    def ends_after(times: Sequence[float], living: Sequence[str]) -> tuple[int, str | None]:
        speed = SpeedSpec(min_rounds=6, max_rounds=30, target_width=0.05)
        both = StoppingRule(speed, roles, 1e9, environments=environments)  # type: ignore[arg-type]
        return measure(both, {"baseline@a": STEADY, "baseline@b": times}, living)

    assert ends_after(STEADY, list(roles)) == (6, "every interval is narrower than 5 %")
    assert ends_after(RESTLESS, list(roles)) == (
        29,
        "the budget of 30 rounds is spent; intervals are wider than the requested 5 %: "
        "baseline@b 10 %",
    )
    rounds, reason = ends_after(STEADY, ["baseline@b"])
    assert rounds == 1 and "nothing is left to compare" in str(reason)


def test_a_run_that_is_alone_from_the_start_keeps_to_the_budget() -> None:
    alone = StoppingRule(SpeedSpec(min_rounds=6, max_rounds=9), {"eager": "backend"}, 1e9)
    rounds, reason = measure(alone, {"eager": STEADY}, ("eager",))
    assert (rounds, reason) == (8, "the budget of 9 rounds is spent")


def test_looks_lie_farther_and_farther_apart() -> None:
    # Four of the rounds are long. The interval leaves out 3 of 15 rounds at each end, and 4 of 18
    # (of 17 as well): the looks come after 6, 8, 10, 12, 15 and 18 rounds.
    eager = [1.0, 1.5, 1.0, 1.5, 1.0, 1.5, 1.0, 1.5, *STEADY]
    rounds, _ = measure(rule(), {"baseline": STEADY, "control": STEADY, "eager": eager})
    assert rounds == 18


def test_ratios_that_persist_widen_the_interval() -> None:
    """Seven of 1, the median, then six of 2. The sides 0 and 1 have the mean 6/13; the products of
    neighbours are 6 x 36, -42 and 5 x 49, their sum 419 over 546, the squares: r = 0.767. Two or
    fewer heads of 13 have 1.1 %, three 4.6 %: the third smallest and largest are the ends, 1 and 2.
    """
    r = 419 / 546
    stretch = math.sqrt((1 + r) / (1 - r))
    assert width_of_median([1.0] * 7 + [2.0] * 6) == pytest.approx(2**stretch - 1)
