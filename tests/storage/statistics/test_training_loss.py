"""The check of PyTorch's training_loss.py, corrected, against means worked out by hand."""

import math

import pandas as pd
import pytest

from breakeven.storage.statistics.outcomes import check_loss, loss_excess


def losses(*of_windows: float, rest: int = 0) -> pd.Series:
    """100 equal losses per value, and `rest` more of 99."""
    return pd.Series([loss for loss in of_windows for _ in range(100)] + [99.0] * rest)


def test_the_mean_is_taken_over_the_windows_there_are() -> None:
    # The original divides by ten: 3.0 / 10 - 2.5 / 10 = 0.05 would pass.
    assert loss_excess(losses(2.5), losses(3.0)) == pytest.approx(0.5)
    assert check_loss(0.5) == "fails"


def test_only_the_last_ten_whole_windows_count() -> None:
    # Two windows of 5.0 lie before the last ten; the 40 steps after them fill no window.
    baseline = losses(*[1.0] * 12)
    backend = losses(5.0, 5.0, *[1.0] * 5, *[1.1] * 5, rest=40)
    assert loss_excess(baseline, backend) == pytest.approx(0.05)  # (5 x 0 + 5 x 0.1) / 10
    assert check_loss(0.05) == "passes"


def test_a_lower_loss_passes_however_wrong_it_is() -> None:
    assert check_loss(loss_excess(losses(2.0), losses(0.0))) == "passes"


def test_without_a_whole_window_there_is_no_answer() -> None:
    assert loss_excess(losses(1.0), losses(rest=99)) is None
    assert check_loss(None) is None


def test_a_loss_that_is_not_finite_fails() -> None:
    for wrong in (math.nan, math.inf):
        diverged = losses(1.0)
        diverged[50] = wrong
        assert check_loss(loss_excess(losses(1.0), diverged)) == "fails"
