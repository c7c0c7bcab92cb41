"""The benchmark of neighbours finds the ratio that its blocks were made with."""

import pytest

from benchmarks.neighbours import Block, Window, summary

WINDOWS = [
    Window(busy=busy, began=10.0 * place, ended=10.0 * place + 8)
    for place, busy in enumerate([False, True, True, False, False, True])
]


def blocks(slower: float, control: float) -> list[Block]:
    """Ten in each window and one at its edge, which is slow and counts for nothing."""
    found = []
    for window in WINDOWS:
        for label, own in (("baseline", 1.0), ("control", control)):
            seconds = 0.1 * own * (slower if window.busy else 1.0)
            found += [Block(label=label, began=window.began + 0.5 * place,
                            ended=window.began + 0.5 * place + 0.4, step_seconds=seconds)
                      for place in range(10)]  # fmt: skip
            found.append(Block(label=label, began=window.began - 1, ended=window.began + 1,
                               step_seconds=99.0))  # fmt: skip
    return found


def test_a_neighbour_that_slows_all_steps_leaves_the_control_as_it_is() -> None:
    found = summary(WINDOWS, blocks(slower=1.25, control=1.02))
    assert found["pairs of windows"] == 3
    assert found["step beside / step alone"] == pytest.approx((1.25, 1.25, 1.25))
    assert found["control / baseline, quiet"] == pytest.approx((1.02, 1.02, 1.02))
    assert found["control / baseline, busy"] == pytest.approx((1.02, 1.02, 1.02))


def test_a_window_without_a_whole_block_says_nothing() -> None:
    few = [block for block in blocks(1.0, 1.0) if not 20 <= block.began < 28]
    assert summary(WINDOWS, few)["pairs of windows"] == 2
    assert summary(WINDOWS, [])["step beside / step alone"] is None
