"""When compiling has paid off, against numbers worked out by hand."""

import math

import pytest

from breakeven.storage.statistics.break_even import break_even, repaid_within
from breakeven.storage.statistics.speedups import SpeedVerdict


def test_break_even_divides_the_compile_time_by_the_saving() -> None:
    # 30 s at 0.1 s a step: 300 steps; 300 x 0.3 s of the baseline = 90 s; 300 / 120 = 2.5 epochs.
    reached = break_even("faster", [30.0], [0.1] * 6, 0.3, 120)
    assert reached.verdict == "reached"
    assert (reached.steps, reached.low, reached.high) == (pytest.approx(300),) * 3
    assert reached.seconds == pytest.approx(90)
    assert reached.epochs == pytest.approx(2.5)
    at_once = break_even("faster", [0.0], [0.1] * 6, 0.3, None)
    assert (at_once.steps, at_once.low, at_once.high, at_once.seconds) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("gains", [[0.1] * 6, [-0.1] * 6, [0.0] * 6, [0.1] * 3, [0.3, -0.1] * 4])
@pytest.mark.parametrize(
    ("speed", "verdict", "steps"),
    [("slower", "never", math.inf), ("same", "never", math.inf), ("unsure", "unsure", None)],
)
def test_break_even_follows_the_verdict_of_speed_whatever_the_rounds_save(
    gains: list[float], speed: SpeedVerdict, verdict: str, steps: float | None
) -> None:
    """The verdict of speed knows of noise that the rounds alone do not tell."""
    estimate = break_even(speed, [30.0], gains, 0.3, 120)
    assert estimate.verdict == verdict
    assert (estimate.steps, estimate.low, estimate.high, estimate.seconds, estimate.epochs) == (
        steps,
    ) * 5


def test_what_saves_nothing_repays_nothing_and_a_half_takes_twice_as_many_steps() -> None:
    assert repaid_within((2.0, 3.0), [0.0] * 6) == (math.inf, math.inf)
    assert repaid_within((2.0, 3.0), [0.5] * 6) == (4.0, 6.0)


def test_only_compiling_that_takes_longer_than_the_baselines_has_to_be_repaid() -> None:
    # 30 s instead of 20 s at 0.1 s a step: 100 steps; 20 s + 100 x 0.3 s of the baseline = 50 s.
    reached = break_even("faster", [30.0], [0.1] * 6, 0.3, None, baseline_latencies=[20.0])
    assert (reached.steps, reached.low, reached.high) == (pytest.approx(100),) * 3
    assert (reached.compile_seconds, reached.further_seconds) == (30.0, 10.0)
    assert reached.seconds == pytest.approx(50)
    at_once = break_even("faster", [5.0], [0.1] * 6, 0.3, None, baseline_latencies=[20.0])
    assert (at_once.verdict, at_once.steps, at_once.low, at_once.high) == ("reached", 0, 0, 0)


def test_shorter_compiling_is_a_lead_until_slower_steps_have_taken_it_away() -> None:
    # Without a compiler 20 s ahead, and each step takes 0.1 s more: until 200 steps.
    until = break_even("slower", [], [-0.1] * 6, 0.3, None, baseline_latencies=[20.0])
    assert (until.verdict, until.compile_seconds) == ("until", 0.0)
    assert (until.steps, until.low, until.high) == (pytest.approx(200),) * 3
    # At the same speed it is ahead for good.
    same = break_even("same", [5.0], [-0.001] * 6, 0.3, None, baseline_latencies=[20.0])
    assert (same.verdict, same.steps, same.gain) == ("reached", 0.0, 0.0)
    # Latencies that overlap are no lead.
    alike = break_even("slower", [19.0], [-0.1] * 6, 0.3, None, baseline_latencies=[20.0, 18.0])
    assert alike.verdict == "never"


def test_a_lead_of_unsure_speed_is_sure_as_far_as_noise_cannot_take_it_away() -> None:
    # 20 s ahead; as measured no step loses anything, but equal runs differ by 10 % of 0.5 s.
    lead = break_even("unsure", [], [0.0] * 6, 0.5, None, baseline_latencies=[20.0], floor=0.1)
    assert (lead.verdict, lead.steps, lead.low) == ("until", math.inf, pytest.approx(400))
    few = break_even("unsure", [], [0.0] * 3, 0.5, None, baseline_latencies=[20.0], floor=0.1)
    assert (few.verdict, few.steps) == ("unsure", None)


def test_break_even_may_be_never_where_the_saving_may_be_nothing() -> None:
    # Half of the rounds save 0.3 s, a third lose 0.1 s: the median's interval reaches below 0.
    estimate = break_even("faster", [30.0], [0.3] * 4 + [-0.1] * 3, 0.5, None)
    assert estimate.steps == pytest.approx(100)  # 30 / 0.3
    assert estimate.low == pytest.approx(100)
    assert estimate.high == math.inf
    assert estimate.epochs is None
    # Of several processes the mean of ratios and that of seconds may point to different sides.
    faster_and_saves_nothing = break_even("faster", [30.0], [-0.1] * 6, 0.3, None)
    assert faster_and_saves_nothing.verdict == "unsure" and faster_and_saves_nothing.steps is None


@pytest.mark.parametrize(
    ("verdict", "latencies", "gains"),
    [
        (None, [30.0], [0.1] * 6),
        ("failed", [30.0], [0.1] * 6),
        ("faster", [], [0.1] * 6),
        ("faster", [30.0], []),
    ],
)
def test_there_is_no_break_even_without_a_verdict_a_latency_or_a_round(
    verdict: SpeedVerdict | None, latencies: list[float], gains: list[float]
) -> None:
    assert break_even(verdict, latencies, gains, 0.3, None) is None
