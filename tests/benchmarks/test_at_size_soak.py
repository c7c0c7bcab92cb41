"""A soak says whether memory is flat."""

import pytest

from benchmarks.at_size import soak


def test_a_soak_tells_whether_memory_is_flat_and_how_often_it_was_too_much() -> None:
    """Ten minutes, two looks a second: 400 MB, and one look of 600 in the third minute, which is no
    growth. Then the same with 1 MB more in each minute: 60 an hour."""
    flat = [(look / 120, 600.0 if look == 250 else 400.0) for look in range(1201)]
    told = soak.summary(flat)
    assert (told["start"], told["median"], told["most"], told["above"]) == (400, 400, 600, 0.1)
    assert (told["growth"], told["growth_low"], told["growth_high"]) == (0, 0, 0)
    growing = soak.summary([(when, size + int(when)) for when, size in flat])
    assert growing["growth"] == pytest.approx(60)
    assert growing["growth_low"] > 0
