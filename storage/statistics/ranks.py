"""The ranks of a run: whose losses leave the band first, and whose weights differ from those of
others with which they are equal in the baseline."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from breakeven.storage.statistics.parity import Parity

HASHES = ("weights_sha256", "shards_sha256")
FAR_SHARE = 0.1
"""Ranks whose distance is at least this share of the largest one are not told apart."""


def losses_by_rank(ranks: pd.DataFrame) -> dict[int, pd.Series]:
    """The losses of each rank by step; `ranks` come from `storage.queries.rank_blocks`. Empty
    unless there are several and each block has losses."""
    by_rank: dict[int, dict[int, float]] = {}
    for first, rank, losses in zip(
        ranks["first_step"], ranks["rank"], ranks["losses"], strict=True
    ):
        known = [] if losses is None or np.ndim(losses) == 0 else losses
        steps = by_rank.setdefault(int(rank), {})
        steps.update({int(first) + place: float(loss) for place, loss in enumerate(known)})
    if len(by_rank) < 2 or not all(by_rank.values()):
        return {}
    return {rank: pd.Series(by_rank[rank]).sort_index() for rank in sorted(by_rank)}


def pooled(
    baseline: Mapping[int, pd.Series], controls: Sequence[Mapping[int, pd.Series]]
) -> dict[int, list[pd.Series]]:
    """For each rank its losses with each difference of each control on any rank: a rank has only a
    part of the batch, and many ranks leave narrow bands by chance."""
    differences = [
        control[rank] - losses
        for control in controls
        for rank, losses in baseline.items()
        if rank in control
    ]
    return {
        rank: [(losses + difference).dropna() for difference in differences]
        for rank, losses in baseline.items()
    }


def rank_outside(
    parities: Mapping[int, Parity],
    baseline: Mapping[int, pd.Series],
    losses: Mapping[int, pd.Series],
) -> tuple[int | None, Parity] | None:
    """The parity of the rank that breaks it first, and this rank if no other one is nearly as far
    off at this step; None if no rank's own losses break parity."""
    broken = {rank: parity for rank, parity in parities.items() if parity.found_in_band}
    if not broken:
        return None
    step = min(parity.first_step_outside or 0 for parity in broken.values())
    off = {
        rank: abs(losses[rank].get(step, np.nan) - baseline[rank].get(step, np.nan))
        for rank in parities
    }
    farthest = farthest_of(off)
    if farthest is not None and farthest in broken:
        return farthest, broken[farthest]
    return None, next(p for p in broken.values() if p.first_step_outside == step)


def ranks_of_hashes(joined: str, other: str) -> list[int]:
    """The ranks with other hashes than in another run, if they are fewer than all; a run that has
    one hash has it on all ranks."""
    hashes, others = joined.split("-"), other.split("-")
    num_ranks = max(len(hashes), len(others))
    hashes, others = (known * num_ranks if len(known) == 1 else known for known in (hashes, others))
    if len(hashes) != len(others):
        return []
    return fewer_than_all(
        {rank for rank in range(num_ranks) if hashes[rank] != others[rank]}, num_ranks
    )


def fewer_than_all(ranks: Iterable[int], num_ranks: int) -> list[int]:
    """The ranks in their order; empty if they are all, of which none needs a name."""
    return sorted(ranks) if len(set(ranks)) < num_ranks else []


def farthest_of(distances: Mapping[int, float]) -> int | None:
    """The one that is much farther than all others; a distance that is no number is the largest."""
    sizes = {rank: float(np.nan_to_num(size, nan=np.inf)) for rank, size in distances.items()}
    largest = max(sizes.values(), default=0.0)
    far = [rank for rank, size in sizes.items() if size >= FAR_SHARE * largest]
    return far[0] if len(far) == 1 else None


@dataclass(frozen=True)
class RanksApart:
    """Ranks that have other weights than in the baseline they would share."""

    ranks: tuple[int, ...]
    """Those that are wrong; if it is not known who is, all that differ."""
    is_named: bool
    first_step: int
    last_step: int
    """Of the block after which they differ, and before which they were equal."""


def ranks_apart(baseline: pd.DataFrame, run: pd.DataFrame) -> RanksApart | None:
    """The first block after which ranks differ that are equal in the baseline after the same
    block."""
    theirs = {first: rows for first, rows in baseline.groupby("first_step")}
    for first, rows in run.groupby("first_step"):
        if first not in theirs:
            continue
        own, expected = (table.set_index("rank") for table in (rows, theirs[first]))
        apart = _apart(expected, own)
        if not apart:
            continue
        losses = own["losses"].iloc[0]
        length = 1 if losses is None or np.ndim(losses) == 0 else max(len(losses), 1)
        culprits = _culprits(apart, expected, own)
        begin = int(first)
        return RanksApart(
            culprits or tuple(sorted(apart)), bool(culprits), begin, begin + length - 1
        )
    return None


def _apart(expected: pd.DataFrame, own: pd.DataFrame) -> dict[int, set[int]]:
    """Each rank to those that it should equal and does not."""
    apart: dict[int, set[int]] = {}
    common = [
        rank
        for rank in own.index
        if rank in expected.index
        # Diverged weights may be equal by chance, for example not a number everywhere.
        and np.isfinite([table.at[rank, "weights_size"] for table in (expected, own)]).all()
    ]
    for name in HASHES:
        for first, second in combinations(common, 2):
            hashes = [table.at[rank, name] for table in (expected, own) for rank in (first, second)]
            if any(not isinstance(sha256, str) for sha256 in hashes):
                continue
            if hashes[0] == hashes[1] and hashes[2] != hashes[3]:
                apart.setdefault(int(first), set()).add(int(second))
                apart.setdefault(int(second), set()).add(int(first))
    return apart


def _culprits(
    apart: Mapping[int, set[int]], expected: pd.DataFrame, own: pd.DataFrame
) -> tuple[int, ...]:
    """The ranks from which most others differ; of two, the one whose size is far from that in the
    baseline. Empty if neither tells."""
    most = max(map(len, apart.values()))
    outvoted = tuple(sorted(rank for rank, others in apart.items() if len(others) == most))
    if len(outvoted) < len(apart):
        return outvoted
    off = {
        rank: abs(own.at[rank, "weights_size"] - expected.at[rank, "weights_size"])
        for rank in apart
    }
    farthest = farthest_of(off)
    return () if farthest is None else (farthest,)
