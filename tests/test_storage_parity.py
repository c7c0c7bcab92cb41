"""Parity, against bands worked out by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from storage.parity import (
    Parity,
    has_learned,
    judge_accuracies,
    judge_learning,
    judge_losses,
    judge_without_control,
    loss_band,
)

BASELINE = pd.Series([2.0, 1.0, 1.5, 1.0])
CONTROL = pd.Series([2.0, 1.001, 1.5, 1.0])
# Differences 0, 0.001, 0, 0; so far at most 0, 0.001, 0.001, 0.001. The float32 floor is
# 2e-6 x 2.0 = 4e-6. Times 10: 4e-5, 0.01, 0.01, 0.01.


def judged(*losses: float) -> Parity:
    return judge_losses(BASELINE, CONTROL, pd.Series(losses, dtype=float), "float32", num_steps=4)


def test_the_band_is_ten_times_the_controls_largest_difference_so_far() -> None:
    band = loss_band(BASELINE, CONTROL, "float32")
    assert band["step"].tolist() == [0, 1, 2, 3]
    assert band["baseline"].tolist() == BASELINE.tolist()
    assert band["high"].tolist() == pytest.approx([2.00004, 1.01, 1.51, 1.01])
    assert band["low"].tolist() == pytest.approx([1.99996, 0.99, 1.49, 0.99])


@pytest.mark.parametrize(
    ("precision", "half"),
    # 10 x floor x first loss 2
    [("float32", 4e-5), ("tf32", 1.2e-3), ("bf16", 5e-3), ("fp16", 1.2e-3)],
)
def test_the_band_is_never_narrower_than_the_precisions_floor(precision: str, half: float) -> None:
    band = loss_band(BASELINE, BASELINE, precision)  # type: ignore[arg-type]
    assert (band["high"] - band["baseline"]).tolist() == pytest.approx([half] * 4)


def test_losses_inside_the_band_hold() -> None:
    found = judged(2.00003, 1.009, 1.491, 1.0)
    assert found.verdict == "holds"
    assert found.first_step_outside is None
    assert found.max_ratio_to_band == pytest.approx(0.9)  # 0.009 / 0.01
    assert found.steps_compared == 4


def test_a_loss_outside_on_either_side_is_broken() -> None:
    for loss in (1.525, 1.475):
        found = judged(2.0, 1.0, loss, 1.0)
        assert found.verdict == "broken"
        assert found.first_step_outside == 2
        assert found.max_ratio_to_band == pytest.approx(2.5)  # 0.025 / 0.01


def test_what_the_control_does_later_excuses_nothing_before() -> None:
    # 0.001 is far inside the later band and far outside the first one.
    found = judged(2.001, 1.0, 1.5, 1.0)
    assert (found.verdict, found.first_step_outside) == ("broken", 0)
    assert found.max_ratio_to_band == pytest.approx(25)  # 0.001 / 4e-5


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_broken_where_the_baselines_is(loss: float) -> None:
    found = judged(2.0, 1.0, loss, 1.0)
    assert (found.verdict, found.first_step_outside) == ("broken", 2)
    assert found.max_ratio_to_band == math.inf
    assert "not finite" in found.reason


def test_steps_at_which_the_baseline_itself_diverged_are_not_compared() -> None:
    baseline = pd.Series([2.0, 1.0, math.nan, math.inf])
    backend = pd.Series([2.0, 1.0, math.nan, 5.0])
    found = judge_losses(baseline, baseline, backend, "float32", num_steps=4)
    assert (found.verdict, found.steps_compared) == ("holds", 2)


def test_a_run_that_stopped_early_is_judged_by_what_it_did() -> None:
    found = judged(2.0, 1.0)
    assert (found.verdict, found.steps_compared) == ("holds", 2)
    assert "2 of 4 steps" in found.reason


def test_without_a_common_step_nothing_is_known() -> None:
    assert judged().verdict == "unknown"


# The control differs by 0, 0.001, 0.1, 0: half widths 4e-5, 0.01, 1, 1. More than 10 % of the first
# loss, 0.2, is where the band ends: it covers steps 0 and 1.
STRAYING_CONTROL = pd.Series([2.0, 1.001, 1.6, 1.0])


def test_the_band_ends_for_good_where_the_control_strays_far() -> None:
    assert loss_band(BASELINE, STRAYING_CONTROL, "float32")["step"].tolist() == [0, 1]


def test_losses_after_the_end_of_the_band_are_not_judged_one_by_one() -> None:
    far_off = pd.Series([2.0, 1.0, 9.0, 9.0])
    found = judge_losses(BASELINE, STRAYING_CONTROL, far_off, "float32", num_steps=4)
    assert found.verdict == "holds"
    assert "over the first 2 of 4 steps" in found.reason


def test_a_loss_after_the_end_of_the_band_must_still_be_finite() -> None:
    diverged = pd.Series([2.0, 1.0, 1.5, math.nan])
    found = judge_losses(BASELINE, STRAYING_CONTROL, diverged, "float32", num_steps=4)
    assert (found.verdict, found.first_step_outside) == ("broken", 3)


def test_a_control_that_strays_at_once_leaves_parity_unknown() -> None:
    found = judge_losses(BASELINE, BASELINE + 0.1, BASELINE, "float32", num_steps=4)
    assert found.verdict == "unknown"
    assert "from the first step on" in found.reason


def test_losses_of_zero_agree_with_themselves() -> None:
    zeros = pd.Series([0.0, 0.0])
    assert judge_losses(zeros, zeros, zeros, "float32", 2).verdict == "holds"
    assert judge_losses(zeros, zeros, zeros + 1e-9, "float32", 2).max_ratio_to_band == math.inf


def test_without_a_control_only_a_loss_that_is_not_finite_is_known_to_be_wrong() -> None:
    assert judge_without_control(BASELINE, BASELINE + 1).verdict == "unknown"
    broken = judge_without_control(BASELINE, pd.Series([2.0, 1.0, math.nan, 1.0]))
    assert (broken.verdict, broken.first_step_outside) == ("broken", 2)


def accuracies(*values: float, num_samples: int = 200) -> pd.DataFrame:
    return pd.DataFrame({"accuracy": values, "num_samples": num_samples})


def test_an_accuracy_that_sampling_cannot_explain_breaks_parity() -> None:
    holds = judged(*BASELINE)
    baseline = accuracies(0.8)
    # Mean share 0.76: 2 x sqrt(2 x 0.76 x 0.24 / 200) = 0.0854, more than 0.08.
    assert judge_accuracies(holds, baseline, baseline, accuracies(0.72)).verdict == "holds"
    # Mean share 0.75: 0.0866, less than 0.1.
    broken = judge_accuracies(holds, baseline, baseline, accuracies(0.7))
    assert broken.verdict == "broken"
    assert "-10.00%" in broken.reason and "8.66%" in broken.reason
    assert broken.first_step_outside is None


def test_the_accuracy_may_stray_as_the_controls_did_the_less_the_more_epochs_tell() -> None:
    holds = judged(*BASELINE)
    # One epoch: Student's t is 63.66, and a control that lost 0.005 allows 0.32.
    found = judge_accuracies(holds, accuracies(0.8), accuracies(0.795), accuracies(0.5))
    assert found.verdict == "holds"
    # Four epochs of the same: t is 4.604 and allows 0.023; sampling, at a mean share of 0.65,
    # 2 x sqrt(2 x 0.65 x 0.35 / 200) = 0.0954.
    found = judge_accuracies(
        holds, accuracies(*[0.8] * 4), accuracies(*[0.795] * 4), accuracies(*[0.5] * 4)
    )
    assert found.verdict == "broken" and "9.54%" in found.reason
    # A control that lost 0.04 in each of them allows 4.604 x 0.04 = 0.184.
    found = judge_accuracies(
        holds, accuracies(*[0.8] * 4), accuracies(*[0.76] * 4), accuracies(*[0.5] * 4)
    )
    assert found.verdict == "broken" and "18.42%" in found.reason


def test_the_median_epoch_decides_about_the_accuracy() -> None:
    holds = judged(*BASELINE)
    baseline = accuracies(0.8, 0.8, 0.8)
    one_bad_epoch = accuracies(0.8, 0.5, 0.81)
    assert judge_accuracies(holds, baseline, baseline, one_bad_epoch).verdict == "holds"
    two_bad_epochs = accuracies(0.8, 0.5, 0.6)
    assert judge_accuracies(holds, baseline, baseline, two_bad_epochs).verdict == "broken"


def test_one_sample_less_than_all_right_is_no_broken_parity() -> None:
    # Mean share 0.9975: 2 x sqrt(2 x 0.9975 x 0.0025 / 200) = 0.00999 > 1/200.
    all_right = accuracies(1.0)
    found = judge_accuracies(judged(*BASELINE), all_right, all_right, accuracies(0.995))
    assert found.verdict == "holds"


def test_only_a_clear_fall_of_the_loss_counts_as_learning() -> None:
    falling = np.linspace(2.0, 1.0, 100)
    assert has_learned(falling, None, None, None)
    assert not has_learned(falling[::-1], None, None, None)
    # First tenth 2 +- 1, last tenth 1.5 +- 1 in turns (sample variance 10/9): the standard error of
    # the difference is sqrt((10/9 + 10/9) / 10) = 0.47, so that 0.5 is far from three of them.
    noise = np.tile([1.0, -1.0], 50)
    assert not has_learned(np.linspace(2.0, 1.5, 100) + noise, None, None, None)
    # 0.1 of noise: standard error 0.047, and 0.45 is more than three of them.
    assert has_learned(np.linspace(2.0, 1.5, 100) + 0.1 * noise, None, None, None)
    assert not has_learned(np.full(100, 1.386), None, None, None)
    assert not has_learned(np.array([2.0, 1.0]), None, None, None)
    assert not has_learned(np.append(falling, math.nan), None, None, None)


def test_an_accuracy_clearly_above_the_majority_counts_as_learning() -> None:
    flat = np.full(100, 1.386)
    # 0.25 + 3 x sqrt(0.25 x 0.75 / 200) = 0.25 + 3 x 0.0306 = 0.342
    assert has_learned(flat, 0.35, 0.25, 200)
    assert not has_learned(flat, 0.34, 0.25, 200)
    assert not has_learned(flat, 0.35, None, 200)


def test_agreement_with_a_baseline_that_learned_nothing_proves_nothing() -> None:
    holds = judged(*BASELINE)
    assert judge_learning(holds, has_learned=True) == holds
    assert judge_learning(holds, has_learned=False).verdict == "nothing learned"
    broken = judged(9.0, 1.0, 1.5, 1.0)
    assert judge_learning(broken, has_learned=False).verdict == "broken"
