"""Which blocks of two runs are held against each other."""

import numpy as np
import pandas as pd
import pytest

from breakeven.storage.comparison import rounds
from breakeven.storage.comparison.rounds import KEYS, pair

Blocks = list[tuple[int, int, int, float]]


def blocks(rows: Blocks) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[*KEYS, "seconds"])


def joined(mine: pd.DataFrame, its: pd.DataFrame) -> list[tuple[object, ...]]:
    found = [
        (*key, seconds, other)
        for *key, seconds in mine.itertuples(index=False)
        for *same, other in its.itertuples(index=False)
        if key == same
    ]
    return [tuple(row) for row in found]


CASES: dict[str, tuple[Blocks, Blocks]] = {
    "the same rounds": ([(1, 2, 10, 0.5), (1, 3, 10, 0.6)], [(1, 2, 10, 0.25), (1, 3, 10, 0.3)]),
    "some rounds": ([(1, 2, 10, 0.5), (1, 4, 10, 0.6)], [(1, 3, 10, 0.25), (1, 4, 10, 0.3)]),
    "other lengths": ([(1, 2, 10, 0.5), (1, 3, 4, 0.6)], [(1, 2, 8, 0.25), (1, 3, 4, 0.3)]),
    "another process": ([(1, 2, 10, 0.5)], [(2, 2, 10, 0.25)]),
    "two processes": ([(1, 2, 10, 0.5), (2, 2, 10, 0.7)], [(1, 2, 10, 0.2), (2, 2, 10, 0.3)]),
    "a round twice": ([(1, 2, 10, 0.5), (1, 2, 10, 0.6)], [(1, 2, 10, 0.25)]),
    "none": ([], [(1, 2, 10, 0.25)]),
}


@pytest.mark.parametrize("case", CASES)
def test_blocks_of_one_process_round_and_length_are_paired(case: str) -> None:
    mine, its = map(blocks, CASES[case])
    found = pair(mine, its)
    assert list(found.columns) == [*KEYS, "baseline", "other"]
    assert list(found.itertuples(index=False, name=None)) == joined(mine, its)


def test_a_block_a_round_needs_no_join(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    sides = []
    for _ in range(2):
        taken = np.sort(draw.choice(400, 300, replace=False))
        sides.append(blocks([(1, int(one), int(draw.choice([9, 10])), float(draw.random()))
                             for one in taken]))  # fmt: skip
    expected = joined(*sides)
    monkeypatch.setattr(pd.DataFrame, "merge", None)
    assert list(rounds.pair(*sides).itertuples(index=False, name=None)) == expected
    assert 50 < len(expected) < 300
