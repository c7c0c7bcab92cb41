"""Parity, against bands worked out by hand; and the corrected check of training_loss.py."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from breakeven.runner.loss_band import broken_limit, leaves_open
from breakeven.runner.specs.training import Precision
from breakeven.storage.statistics.outcomes import (
    Fall,
    check_loss,
    has_learned,
    loss_excess,
    loss_fall,
)
from breakeven.storage.statistics.parity import (
    Parity,
    judge_learning,
    judge_losses,
    judge_without_control,
    loss_band,
)
from breakeven.storage.words.parity import parity_words

BASELINE = pd.Series([2.0, *[1.0] * 23])
CONTROL = BASELINE.copy()
CONTROL[5] = 1.001
CONTROL[12] = 1.0015
# The float32 floor is 2e-6 x 2.0 = 4e-6, the control's largest difference so far 4e-6 up to step 4,
# 0.001 up to step 11, then 0.0015. Steps 0 to 4 see the next one coming but may only double: 8e-6.
# Steps 5 to 11 count as 0.0015 (which steps 2 to 4 would, if they might), and so do 12 and 13. From
# step 14 on nothing lies ten steps ahead. Times 10: 8e-5 up to step 4, then 0.015 up to step 13.


def judged(changes: dict[int, float], num_steps: int = 24) -> Parity:
    """A backend with the baseline's losses but for some steps."""
    backend = BASELINE.copy()
    for step, loss in changes.items():
        backend[step] = loss
    return judge_losses(BASELINE, [CONTROL], backend[:num_steps], "float32", num_steps=24)


def test_the_band_is_ten_times_the_difference_that_the_control_reaches_ten_steps_later() -> None:
    band = loss_band(BASELINE, [BASELINE, CONTROL, BASELINE], "float32")  # the farthest counts
    assert band["step"].tolist() == list(range(14))
    assert band["baseline"].tolist() == BASELINE[:14].tolist()
    assert band["high"].tolist() == pytest.approx([2.00008, *[1.00008] * 4, *[1.015] * 9])
    assert band["low"].tolist() == pytest.approx([1.99992, *[0.99992] * 4, *[0.985] * 9])


@pytest.mark.parametrize(
    ("precision", "off", "half"),
    [
        # Safety factor x floor x first loss 2
        ("float32", 0.0, 4e-5),
        ("tf32", 0.0, 1.2e-3),
        ("bf16", 0.0, 2e-3),
        ("fp16", 0.0, 1.2e-3),
        ("bf16", 0.001, 0.004),  # rounding hides less there: 4 times what is more than the floor
    ],
)
def test_the_band_has_the_precisions_floor(precision: Precision, off: float, half: float) -> None:
    band = loss_band(BASELINE, [BASELINE + off], precision)
    assert (band["high"] - band["baseline"]).tolist() == pytest.approx([half] * 14)


@pytest.mark.parametrize(("precision", "num_steps"), [("float32", 14), ("bf16", 0)])
def test_the_band_ends_sooner_in_bf16(precision: str, num_steps: int) -> None:
    control = BASELINE + 0.012  # 0.6 % of the first loss, 2: more than 0.5 %, less than 1 %
    assert len(loss_band(BASELINE, [control], precision)) == num_steps  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "verdict", "first", "ratio"),
    [
        ({0: 2.00003, 5: 1.012, 7: 0.988}, "holds", None, 0.8),  # 0.012 / 0.015
        ({7: 1.0315}, "broken", 7, 2.1),  # 0.0315 / 0.015
        ({7: 0.9685}, "broken", 7, 2.1),
        ({7: 1.0285, 9: 0.98}, "unknown", None, 1.9),  # 0.0285 / 0.015: neither fault nor the same
        # What is hardly outside hides no fault elsewhere.
        ({7: 1.0285, 13: 1.04}, "broken", 7, 0.04 / 0.015),
        ({7: 1.0285, 20: math.nan}, "broken", 7, math.inf),
        # 0.005 is far inside the later band, and 62.5 times 8e-5.
        ({4: 1.005}, "broken", 4, 62.5),
        ({2: math.nan}, "broken", 2, math.inf),
        ({20: math.inf}, "broken", 20, math.inf),
    ],
)
def test_losses_are_judged_by_the_band(
    changes: dict[int, float], verdict: str, first: int | None, ratio: float
) -> None:
    parity = judged(changes)
    assert (parity.verdict, parity.first_step_outside) == (verdict, first)
    assert parity.max_ratio_to_band == pytest.approx(ratio)
    assert parity.steps_compared == 24
    assert parity.last_step_in_band == 13 and not parity.band_ended
    words = str(parity_words(parity))
    assert ("the first 14 of 24 steps" in words) is (verdict == "holds")
    assert ("not finite" in words) is math.isinf(ratio)


def test_a_loss_hardly_outside_calls_for_more_controls() -> None:
    parity = judged({7: 1.0285, 9: 0.98})
    words = str(parity_words(parity))
    assert words.startswith("the loss leaves the band at step 7 and is up to 1.9 x the band off: ")
    assert words.endswith("repeat it with more controls (--controls 4)")
    # Nothing that was learned, or not, makes a verdict of it.
    assert judge_learning(parity, has_learned=False).verdict == "unknown"


def test_a_correct_backend_in_bf16_is_not_broken_because_the_one_control_hardly_strays() -> None:
    # BERT-base in bf16 on an H100 with 50 steps of warm-up (docs/decisions.md): the control
    # stays within 0.5 % of the first loss to the end, the others leave that by step 47.
    losses = pd.read_csv(Path(__file__).parent / "a_control_that_hardly_strays.csv", index_col=0)
    baseline, backend = losses["baseline"], losses["eager"]
    few, all_of_them = [losses["control"]], [losses["control"], losses["control-2"]]
    with_one_control = judge_losses(
        baseline, few, backend, "bf16", 360, broken_limit=broken_limit("bf16", 1)
    )
    assert (with_one_control.verdict, with_one_control.findings[0].kind) == (
        "unknown",
        "hardly outside",
    )
    assert with_one_control.max_ratio_to_band == pytest.approx(2.5, abs=0.01)
    assert leaves_open([baseline.to_dict(), few[0].to_dict()], backend.to_dict(), "bf16")
    with_two_controls = judge_losses(baseline, all_of_them, backend, "bf16", 360)
    assert (with_two_controls.verdict, with_two_controls.last_step_in_band) == ("holds", 37)
    fault = backend.copy()
    fault[300] += 0.1  # the band is 4 x 0.0082 wide at most
    assert judge_losses(baseline, few, fault, "bf16", 360, broken_limit=5.0).verdict == "unknown"
    fault[300] += 0.1
    assert judge_losses(baseline, few, fault, "bf16", 360, broken_limit=5.0).verdict == "broken"


def test_a_correct_backend_some_steps_ahead_of_the_control_holds() -> None:
    # Differences double every 3 steps, and the backend is 11 steps ahead: 2 ^ (11 / 3) = 12.7 times
    # the control, of which the band allows 10 x 2.
    steps = np.arange(40)
    control = pd.Series(1 + 1e-5 * 2 ** (steps / 3))
    backend = pd.Series(1 + 1e-5 * 2 ** ((steps + 11) / 3))
    parity = judge_losses(pd.Series(np.ones(40)), [control], backend, "float32", num_steps=40)
    assert parity.verdict == "holds"
    assert parity.max_ratio_to_band == pytest.approx(12.7 / 20, rel=1e-2)


def test_steps_at_which_the_baseline_itself_diverged_are_not_compared() -> None:
    baseline = BASELINE.copy()
    baseline[22], baseline[23] = math.nan, math.inf
    backend = BASELINE.copy()
    backend[22], backend[23] = math.nan, 5.0
    parity = judge_losses(baseline, [baseline], backend, "float32", num_steps=24)
    assert (parity.verdict, parity.steps_compared) == ("holds", 22)


def test_a_run_that_stopped_early_is_judged_by_what_it_did() -> None:
    parity = judged({1: 1.5}, num_steps=2)
    assert (parity.verdict, parity.first_step_outside, parity.steps_compared) == ("broken", 1, 2)
    assert judged({}, num_steps=0).verdict == "unknown", "there is no common step"


def test_a_run_waits_until_the_control_is_ten_steps_on() -> None:
    parity = judge_losses(BASELINE[:10], [CONTROL[:10]], BASELINE[:10], "float32", num_steps=24)
    assert parity.verdict == "unknown" and "10 steps more" in str(parity_words(parity))
    parity = judge_losses(BASELINE[:11], [CONTROL[:11]], BASELINE[:11], "float32", num_steps=24)
    assert parity.verdict == "holds" and "the first 1 of 24 steps" in str(parity_words(parity))


def test_losses_after_the_end_of_the_band_are_not_judged_one_by_one() -> None:
    # Off by more than 1 % of the first loss, 0.02: ten steps earlier the band ends.
    straying = CONTROL.copy()
    straying[15] = 1.021
    assert loss_band(BASELINE, [straying], "float32")["step"].tolist() == [0, 1, 2, 3, 4]
    far_off = BASELINE.copy()
    far_off[5:] = 9.0
    parity = judge_losses(BASELINE, [straying], far_off, "float32", num_steps=24)
    assert parity.verdict == "holds"
    assert "the first 5 of 24 steps" in str(parity_words(parity))
    assert parity.band_ended and parity.last_step_in_band == 4


def test_a_control_that_strays_at_once_leaves_parity_unknown() -> None:
    parity = judge_losses(BASELINE, [BASELINE + 0.1], BASELINE, "float32", num_steps=24)
    assert parity.verdict == "unknown"
    assert "from the first step on" in str(parity_words(parity))


def test_losses_of_zero_agree_with_themselves() -> None:
    zeros = pd.Series([0.0] * 12)
    assert judge_losses(zeros, [zeros], zeros, "float32", 12).verdict == "holds"
    assert judge_losses(zeros, [zeros], zeros + 1e-9, "float32", 12).max_ratio_to_band == math.inf


def test_without_a_control_only_a_loss_that_is_not_finite_is_known_to_be_wrong() -> None:
    assert judge_without_control(BASELINE, BASELINE + 1).verdict == "unknown"
    diverged = BASELINE.copy()
    diverged[2] = math.nan
    broken = judge_without_control(BASELINE, diverged)
    assert (broken.verdict, broken.first_step_outside) == ("broken", 2)


def learned(losses: np.ndarray) -> bool:
    return has_learned(loss_fall(losses), None, None, None)


def test_a_fall_shows_learning_from_four_deviations_of_windows_and_3_percent_on() -> None:
    # 20 steps have windows of 3. All second differences of an even fall are 0.
    even = np.linspace(2.0, 1.0, 20)
    fall = loss_fall(even)
    assert fall is not None and fall.is_clear
    # After the first tenth, at least 3 steps, 3 % are enough: the median of steps 3 to 5 counts.
    assert (fall.start, fall.end) == (pytest.approx(2 - 4 / 19), pytest.approx(1 + 1 / 19))
    assert fall.needed == pytest.approx(0.03 * fall.start)
    # Medians of 3 are 1.2 and 1 in turns; those 3 steps apart have second differences of 2 x 0.2.
    # So their deviation is 0.4 / (0.6745 x sqrt(6)) = 0.2421, and 4 x sqrt(2) x 0.2421 = 1.3696.
    fall = loss_fall(np.tile([1.2, 1.0], 10))
    assert fall is not None and not fall.is_clear
    assert fall.needed == pytest.approx(1.3696 + 0.03 * 1.0, abs=1e-4)  # of steps 3 to 5


def test_twelve_steps_can_show_a_fall_and_eleven_cannot() -> None:
    """Noise shows between windows, of which twelve steps have four, of three steps each."""
    assert learned(np.linspace(2.0, 1.0, 12))
    assert loss_fall(np.linspace(2.0, 1.0, 11)) is None


STEPS = np.arange(200)
NOISE = np.random.default_rng(0).normal(size=200)


@pytest.mark.parametrize(
    ("losses", "shows"),
    [
        (0.001 + 0.97 * np.exp(-STEPS / 4), True),  # steep: most of it in the first twentieth
        (np.where(STEPS < 5, 2.3, 0.01) + 0.001 * NOISE, True),
        (np.where(STEPS < 1, 2.3, 1.386) + 0.001 * NOISE, False),  # an outlier at the first step
        (np.where(STEPS == 120, 40.0, 2.0 - STEPS / 200), True),  # an outlier in the middle
        (2.0 - (STEPS > 150) * 1.0 + 0.05 * NOISE, True),  # a plateau, then a fall
        (2.0 * np.exp(-STEPS / 50) + 0.2 * NOISE, True),
        (1.386 + 0.2 * NOISE, False),
        (1.609 + 0.23 * np.exp(-STEPS / 4) + 0.02 * NOISE, False),  # from random answers to chance
        (1.609 + 0.5 * np.exp(-STEPS / 4) + 0.02 * NOISE, False),
        (0.6 + 1.2 * np.exp(-STEPS / 4) + 0.02 * NOISE, True),  # from there to half of it
        (1.386 * (1 - 0.02 * STEPS / 199) + 1e-4 * NOISE, False),  # drifts by 2 %
        (1.386 * (1 - 0.06 * STEPS / 199) + 1e-4 * NOISE, True),
        (1e-8 * (2.0 - STEPS / 200), True),  # tiny
        (np.full(200, 1.386), False),
        (1.0 + STEPS / 200 + 0.05 * NOISE, False),
        (1 + np.exp(-(((STEPS - 30) / 12) ** 2)) + 0.01 * NOISE, False),  # rises and comes back
        (np.exp(-STEPS / 60) + np.exp(-(((STEPS - 30) / 12) ** 2)), True),  # warm-up, then a fall
        (np.where(STEPS < 100, 1 - STEPS / 110, 0.9 - (STEPS - 100) / 150), True),  # two stages
        (1.0 - 0.3 * (STEPS % 70) / 70 + 0.01 * NOISE, False),  # samples sorted by difficulty
        (-1.0 - STEPS / 50, True),  # a logarithm of a density
        (STEPS[:11] * -1.0, False),  # too few
        (np.append(2.0 - STEPS / 200, math.nan), False),
    ],
)
def test_a_loss_counts_as_learned_if_it_falls_by_more_than_chance_explains(
    losses: np.ndarray, shows: bool
) -> None:
    assert learned(losses) is shows


def test_a_longer_training_never_hides_a_fall_in_the_first_steps() -> None:
    for steps in (50, 500, 5000):
        tail = np.random.default_rng(1).normal(0.01, 0.001, steps)
        assert learned(np.concatenate([np.linspace(2.3, 0.1, 6), tail]))


def test_an_accuracy_clearly_above_the_majority_counts_as_learning() -> None:
    flat = loss_fall(np.full(100, 1.386))
    # 0.25 + 3 x sqrt(0.25 x 0.75 / 200) = 0.25 + 3 x 0.0306 = 0.342
    assert has_learned(flat, 0.35, 0.25, 200)
    assert not has_learned(flat, 0.34, 0.25, 200)
    assert not has_learned(flat, 0.35, None, 200)


def test_agreement_with_a_baseline_that_learned_nothing_proves_nothing() -> None:
    holds, broken = judged({}), judged({0: 9.0})
    assert judge_learning(holds, has_learned=True) == holds
    nothing = judge_learning(holds, has_learned=False)
    assert nothing.verdict == "nothing learned"
    assert "the loss of the baseline did not fall, so" in str(parity_words(nothing))
    drifted = judge_learning(holds, False, Fall(start=1.386, end=1.359, needed=0.0416))
    said = "fell from 1.386 to 1.359, and only a fall by more than 0.042 would show learning"
    assert said in str(parity_words(drifted))
    assert judge_learning(broken, has_learned=False).verdict == "broken"


def losses(*of_windows: float, rest: int = 0) -> pd.Series:
    """100 equal losses per value, and `rest` more of 99."""
    return pd.Series([loss for loss in of_windows for _ in range(100)] + [99.0] * rest)


def test_the_mean_is_taken_over_at_most_the_last_ten_whole_windows() -> None:
    # The original divides by ten: 3.0 / 10 - 2.5 / 10 = 0.05 would pass.
    assert loss_excess(losses(2.5), losses(3.0)) == pytest.approx(0.5)
    # Two windows of 5.0 lie before the last ten; the 40 steps after them fill no window.
    backend = losses(5.0, 5.0, *[1.0] * 5, *[1.1] * 5, rest=40)
    excess = loss_excess(losses(*[1.0] * 12), backend)
    assert excess == pytest.approx(0.05)  # (5 x 0 + 5 x 0.1) / 10
    assert loss_excess(losses(1.0), losses(rest=99)) is None


def test_a_higher_loss_fails_and_a_lower_one_passes_however_wrong_it_is() -> None:
    assert [check_loss(excess) for excess in (0.5, 0.05, None)] == ["fails", "passes", None]
    assert check_loss(loss_excess(losses(2.0), losses(0.0))) == "passes"
    for wrong in (math.nan, math.inf):
        diverged = losses(1.0)
        diverged[50] = wrong
        assert check_loss(loss_excess(losses(1.0), diverged)) == "fails"
