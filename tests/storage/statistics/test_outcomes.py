"""What equal trainings come to, and what is none of them: windows and evaluations, by hand."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from breakeven.storage.statistics.outcomes import (
    Quantity,
    Reading,
    Trainings,
    _level,
    learned_by_accuracy,
    learned_by_loss,
    loss_fall,
    prediction_half_widths,
    readings,
    without_spikes,
)
from breakeven.storage.statistics.parity import Parity, ParityFinding, doubt_dropout, judge_outcomes
from breakeven.storage.words.parity import parity_text, parity_words

HOLDS = Parity(
    verdict="holds",
    first_step_outside=None,
    max_ratio_to_band=0.1,
    steps_compared=100,
    findings=(),
    last_step_in_band=19,
)
STEPS = 100
SO = ParityFinding(kind="outside band", figures={})


def losses(offset: float = 0.0, wave: float = 0.1, phase: int = 0) -> pd.Series:
    """1 + offset, up by `wave` in every other step and down in the next."""
    signs = np.where((np.arange(STEPS) + phase) % 2 == 0, 1.0, -1.0)
    return pd.Series(1.0 + offset + wave * signs)


def evaluations(*accuracies: float, loss: float = 1.0, num_samples: int = 400) -> pd.DataFrame:
    """After 50 steps, after 100."""
    steps = [50, 100][-len(accuracies) :] if accuracies else []
    return pd.DataFrame(
        {"loss": loss, "accuracy": accuracies, "num_samples": num_samples},
        index=pd.Index(steps, dtype=int),
        dtype=float,
    )


def trainings(
    backend: pd.Series, evaluated: pd.DataFrame | None = None, controls: int = 1, **known: Any
) -> Trainings:
    """The baseline's losses wave up when the controls' wave down; all were right in 80 %."""
    right = evaluations(0.8, 0.8)
    return Trainings(
        **{
            "equals": [(losses(), right), *[(losses(phase=1), right)] * controls],
            "losses": backend,
            "evaluations": right if evaluated is None else evaluated,
            "samples_per_step": 4,
            "learned": None,
            "learned_accuracy": None,
            **known,
        }
    )


def judged(*series: Any, **more: Any) -> Parity:
    return judge_outcomes(HOLDS, readings(trainings(*series, **more), after=20))


def test_half_of_the_chance_of_a_false_alarm_is_the_last_readings() -> None:
    """4 %: all of it for a single reading; of two 2 % each; of five 2 % and four times 0.5 %."""
    assert _level(0.04, 1, is_last=True) == 0.04
    assert [_level(0.04, 2, is_last) for is_last in (False, True)] == [0.02, 0.02]
    assert [_level(0.04, 5, is_last) for is_last in (False, True)] == [0.005, 0.02]


def test_a_prediction_interval_is_a_multiple_of_the_error_of_one_further_draw() -> None:
    # One control: sqrt(1 + 1/2) = 1.2247. 5 %, two-sided: 1.960 of a normal, and Student's t of one
    # degree of freedom is 12.706, here of trainings that stray by 2 standard errors.
    explained, shown = prediction_half_widths(0.1, 2.0, 1, num_controls=1, level=0.05)
    assert explained == pytest.approx(1.960 * 0.1 * 1.2247, rel=1e-3)
    assert shown == pytest.approx(12.706 * 2 * 0.1 * 1.2247, rel=1e-3)
    # More controls make the interval narrower: t of 4 degrees of freedom is 2.776, and
    # sqrt(1 + 1/5) = 1.0954.
    _, shown = prediction_half_widths(0.1, 2.0, 4, num_controls=4, level=0.05)
    assert shown == pytest.approx(2.776 * 2 * 0.1 * 1.0954, rel=1e-3)


def test_windows_after_the_band_have_the_interval_that_independent_steps_explain() -> None:
    windows = [
        window for window in readings(trainings(losses()), after=20) if window.quantity == "loss"
    ]
    assert [window.first_step for window in windows] == [20, 28, 36, 44, 52, 60, 68, 76, 84, 92]
    assert [window.last_step for window in windows] == [27, 35, 43, 51, 59, 67, 75, 83, 91, 99]
    assert {window.value for window in windows} == {1.0}
    # Two trainings that lie 0.1 on either side of their mean at every step: each strays from it by
    # a standard deviation of 0.1 x sqrt(2), so the mean of 8 steps has an error of 0.05, and one
    # further draw beside two 0.06124. Half of 1 % for losses, half of that for the last window,
    # two-sided: 3.0233; the rest for nine others, 0.0025 / 9: 3.6354. The windows' own means are
    # all alike, so nothing more was shown.
    assert windows[-1].interval == pytest.approx(3.0233 * 0.06124, rel=1e-3)
    assert windows[0].interval == pytest.approx(3.6354 * 0.06124, rel=1e-3)


@pytest.mark.parametrize(("off", "verdict"), [(0.15, "holds"), (0.31, "unknown"), (0.32, "broken")])
def test_a_late_spread_of_equal_trainings_excuses_what_it_cannot_tell(
    off: float, verdict: str
) -> None:
    """In the last two windows four controls are 0.1 above and below the baseline. Each is 0.125
    away from the mean of the four others, and 2.5 x 0.125 = 0.3125. Over all windows their spread
    is small: an error of sqrt(0.008 / 8), an inflation of sqrt(2), a Student's t below 5 and
    sqrt(1.2) for the mean of five leave less than 0.25."""
    spread = np.where(np.arange(STEPS) >= 84, 0.1, 0.0)
    right = evaluations(0.8, 0.8)
    controls = [(losses(phase=1) + sign * spread, right) for sign in (1, -1, 1, -1)]
    backend = losses() + off * (np.arange(STEPS) >= 84)
    late_spread = trainings(backend, equals=[(losses(), right), *controls], learned=2.0)
    windows = [window for window in readings(late_spread, after=20) if window.quantity == "loss"]
    assert [window.allowed for window in windows[-3:]] == pytest.approx([0.3125] * 3)
    assert all(window.interval < 0.25 for window in windows)
    assert [window.nearby for window in windows[:-3]] == pytest.approx([0.0] * 7)
    assert judge_outcomes(HOLDS, windows).verdict == verdict


def test_an_equal_training_holds() -> None:
    parity = judged(losses())
    assert parity.verdict == "holds"
    assert parity.max_ratio_to_interval == pytest.approx(0)
    assert parity_text(parity) == "matches (checked to step 19)"


@pytest.mark.parametrize(
    ("backend", "accuracy", "verdict"),
    [(losses(), 0.9, "holds"), (losses(), 0.89, "unknown"), (losses() + 1e-12, 0.9, "unknown")],
    ids=["the same", "another evaluation", "another loss"],
)
def test_the_baselines_own_numbers_match(backend: pd.Series, accuracy: float, verdict: str) -> None:
    """Equal trainings end at 90, 50 and 20 %, on average 53 %, of which 40 % were learned: 37 % off
    is more than a quarter of that, and less than what equal trainings differ by."""
    equals = [
        (losses(), evaluations(0.9)),
        (losses(phase=1), evaluations(0.5)),
        (losses(), evaluations(0.2)),
    ]
    parity = judged(backend, evaluations(accuracy), equals=equals, learned_accuracy=0.4)
    assert parity.verdict == verdict


def test_a_lower_loss_is_no_fault_where_equal_trainings_have_not_learned() -> None:
    """A training on a plateau may leave it sooner. A higher loss and a lower accuracy are wrong."""
    backend = losses()
    backend[60:] -= 0.5
    parity = judged(backend)
    assert parity.verdict == "unknown"
    assert "inf" not in parity_text(parity)
    are_outside = [
        reading(value, quantity, interval=0.1, learned=None).is_outside
        for quantity in ("loss", "accuracy")
        for value in (1.2, 0.2)
    ]
    assert are_outside == [True, False, False, True]


@pytest.mark.parametrize("offset", [0.5, -0.5])
@pytest.mark.parametrize("begins", [30, 60, 92])
def test_other_losses_are_broken_from_their_window(offset: float, begins: int) -> None:
    backend = losses()
    backend[begins:] += offset
    parity = judged(backend, learned=2.0)
    assert parity.verdict == "broken"
    window = 20 + (begins - 20) // 8 * 8
    # A window of which the fault has 6 of 8 steps, or 4, is off by more than 0.22 as well.
    assert parity.first_step_outside == window
    assert parity_text(parity) == f"broken from step {window}"
    assert "that of equal trainings 1.000" in str(parity_words(parity))


def test_one_window_that_spikes_is_no_fault_and_two_are() -> None:
    backend = losses()
    backend[36:44] += 0.5
    assert judged(backend).verdict == "holds"
    backend[44:52] += 0.5
    parity = judged(backend)
    assert (parity.verdict, parity.first_step_outside) == ("broken", 36)


def test_an_accuracy_that_falls_while_losses_agree_is_broken() -> None:
    """As with a backend that leaves the statistics of its norms behind: training uses none."""
    parity = judged(losses(), evaluations(0.8, 0.5))
    assert parity.verdict == "broken"
    assert parity_text(parity) == "broken after 100 steps"
    words = str(parity_words(parity))
    assert "after 100 steps the accuracy is 50.0 %, that of equal trainings 80.0 %" in words
    assert judged(losses(), evaluations(0.5, 0.8)).verdict == "holds", "it passed"


def test_an_evaluation_inside_the_band_is_judged_too() -> None:
    """Its losses never left the band, and it has no evaluation later."""
    equals = trainings(losses(), evaluations(0.5))
    parity = judge_outcomes(HOLDS, readings(equals, after=STEPS))
    assert parity.verdict == "broken"


@pytest.mark.parametrize("loss", [3.0, math.nan, math.inf])
def test_an_evaluation_loss_that_is_another_one_is_broken(loss: float) -> None:
    parity = judged(losses(), evaluations(0.8, 0.8, loss=loss))
    assert parity.verdict == "broken"
    assert parity.outside.quantity == "evaluation loss"


def learned_quickly(loss: float, accuracy: float) -> Parity:
    """A training of 200 steps whose baseline knows its samples by heart at the end, while the
    control does not. By chance both end at the same loss of evaluation; before, they lay apart.

    The figures are those of a tiny BERT (Adam, 1e-3, 960 samples), whose third training ended at
    0.0947 and 98 % right.
    """
    waves = np.where(np.arange(200) % 2 == 0, 1.0, -1.0)
    steps = pd.Index([120, 180, 200])

    def table(values: list[float], right: list[float]) -> pd.DataFrame:
        return pd.DataFrame({"loss": values, "accuracy": right, "num_samples": 200.0}, index=steps)

    by_heart = np.where(np.arange(200) < 180, 0.15, 0.002)
    equals = [
        (pd.Series(0.2 + by_heart * waves), table([0.193, 0.131, 0.1454], [0.94, 0.975, 0.975])),
        (pd.Series(0.2 - 0.15 * waves), table([0.244, 0.302, 0.1404], [0.94, 0.93, 0.98])),
    ]
    given = trainings(
        equals[1][0],
        table([0.178, 0.092, loss], [0.95, 0.975, accuracy]),
        equals=equals,
        samples_per_step=16,
        learned=1.44,
        learned_accuracy=0.695,
    )
    return judge_outcomes(HOLDS, readings(given, after=94))


def test_two_trainings_that_end_close_together_say_not_how_far_a_third_may_be() -> None:
    parity = learned_quickly(0.0947, 0.98)
    assert parity.verdict == "holds"
    assert learned_quickly(0.25, 0.97).verdict == "holds", "on the other side"
    # 2.5 % of 200 wrong, pulled 6 / 202: 0.14 x sqrt(0.0297 x 0.9703 / 200) / 0.0297 = 0.0566. All
    # three have nearly that error, so half of 1 % x 1/4, two-sided: 3.2272 x 1.2247 x the error.
    last = [value for value in parity.readings if value.quantity == "evaluation loss"][-1]
    assert last.explained == pytest.approx(3.2272 * 1.2247 * 0.0566, rel=0.15)


@pytest.mark.parametrize(
    ("loss", "accuracy"), [(0.6, 0.98), (2.0, 0.98), (0.14, 0.5), (0.14, 0.2), (math.nan, 0.98)]
)
def test_a_late_fault_is_still_not_called_the_same(loss: float, accuracy: float) -> None:
    assert learned_quickly(loss, accuracy).verdict in ("broken", "unknown")


def reading(value: float, quantity: Quantity = "accuracy", **changes: float | None) -> Reading:
    """Of an accuracy of 0.7 where 0.4 were learned and one control tells nothing: 50."""
    usual: dict[str, Any] = {
        "first_step": 9,
        "last_step": 9,
        "expected": 0.7,
        "interval": 50.0,
        "learned": 0.4,
        "explained": 0.05,
    }
    return Reading(**{**usual, "quantity": quantity, "value": value, **changes})


OPEN = {"interval": math.inf}


@pytest.mark.parametrize(
    ("quantity", "value", "changes", "verdict"),
    [
        ("accuracy", 0.61, {}, "holds"),  # less than a quarter of what was learned, 0.1
        ("accuracy", 0.55, {}, "unknown"),
        ("accuracy", 0.31, {}, "unknown"),
        ("accuracy", 0.29, {}, "broken"),  # all of it is lost
        ("accuracy", 0.85, {}, "unknown"),
        ("accuracy", 1.15, {}, "broken"),  # no accuracy, but a loss could
        # Chance explains 0.05 where little was learned; `has_learned` speaks of nothing learned.
        ("accuracy", 0.66, {"learned": 0.02}, "holds"),
        ("accuracy", 0.0, {"learned": None}, "holds"),
        ("loss", 0.79, OPEN, "holds"),  # less than a quarter of what was learned, 0.1
        ("loss", 1.1, OPEN, "unknown"),  # it learned nothing
        ("loss", 1.49, OPEN, "unknown"),
        ("loss", 1.51, OPEN, "broken"),  # worse than nothing, by as much as was learned
        ("evaluation loss", 1.51, OPEN, "broken"),
        ("evaluation loss", math.nan, OPEN, "broken"),
        ("loss", -9.0, OPEN, "unknown"),  # it learned, and the equal trainings hardly did
        ("accuracy", 0.0, OPEN, "unknown"),  # it always answers what is rare
        ("accuracy", 1.0, OPEN, "unknown"),
        ("loss", 0.79, {**OPEN, "learned": 0.01, "explained": 0.1}, "holds"),
        ("loss", 9.0, {**OPEN, "learned": None}, "holds"),
    ],
)
def test_no_interval_excuses_the_loss_of_all_that_was_learned(
    quantity: Quantity, value: float, changes: dict[str, float | None], verdict: str
) -> None:
    parity = judge_outcomes(HOLDS, [reading(value, quantity, **changes)])
    assert parity.verdict == verdict
    if not changes:
        assert ("--controls 4" in str(parity_words(parity))) is (verdict == "unknown")


def test_a_parity_that_a_step_broke_stays_broken_there() -> None:
    broken = replace(HOLDS, verdict="broken", first_step_outside=3, findings=(SO,))
    parity = judge_outcomes(broken, [reading(0.0)])
    assert (parity.verdict, parity.first_step_outside, parity.findings) == ("broken", 3, (SO,))
    assert parity_text(parity) == "broken at step 3"


def test_without_a_control_nothing_is_read() -> None:
    assert readings(trainings(losses(), controls=0), after=0) == []


def test_steps_that_only_some_did_or_that_diverged_in_the_equals_are_left_out() -> None:
    equals = trainings(losses()[:60])
    equals.equals[0][0][58] = math.nan
    windows = [window for window in readings(equals, after=20) if window.quantity == "loss"]
    assert windows[-1].last_step == 59
    assert sum(window.last_step - window.first_step + 1 for window in windows) <= 40


def test_lasting_are_the_last_one_and_neighbours() -> None:
    straying = [
        reading(value, "loss", first_step=step, expected=0.0, interval=1.0, learned=None)
        for step, value in enumerate([2, 0, 2, 2, 0, 2])
    ]
    lasting = without_spikes(straying, lambda outlier: outlier.is_outside)
    assert [outlier.first_step for outlier in lasting] == [2, 3, 5]


def test_what_was_learned_is_the_most_that_any_equal_training_learned() -> None:
    slow = pd.Series(np.linspace(2.0, 1.0, 100))
    fast = pd.Series(np.linspace(2.0, 0.5, 100))
    # The first five and the last ten of a hundred even steps down by 1.5: 2 - 2 x 1.5 / 99 and
    # 0.5 + 4.5 x 1.5 / 99.
    fall, rise = (loss_fall(losses.to_numpy()) for losses in (slow, slow[::-1]))
    assert learned_by_loss(fall, [slow, fast]) == pytest.approx(1.5 - 6.5 * 1.5 / 99)
    assert learned_by_loss(rise, [slow[::-1].reset_index(drop=True), fast]) is None
    right = [pd.Series([0.3, 0.5]), pd.Series([0.6])]
    assert learned_by_accuracy(right, 0.25) == pytest.approx(0.35)
    assert learned_by_accuracy([pd.Series([0.2])], 0.25) is None
    assert learned_by_accuracy([pd.Series([], dtype=float)], 0.25) is None


def test_other_random_numbers_are_no_excuse_where_single_losses_agreed() -> None:
    backend = losses()
    backend[60:] += 0.5
    late = judged(backend)
    assert doubt_dropout(late) == late
    early = replace(HOLDS, verdict="broken", first_step_outside=3)
    assert "other random numbers" in str(parity_words(doubt_dropout(early)))
