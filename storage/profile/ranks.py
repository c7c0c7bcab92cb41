"""Numbers of the ranks of a run on several devices: communication, slowest rank, memory, bytes."""

from dataclasses import dataclass

import pandas as pd

from breakeven.storage import queries
from breakeven.storage.comparison.run_numbers import memory_needed
from breakeven.storage.index.store import Store


@dataclass(frozen=True, kw_only=True)
class RankNumbers:
    """One rank. Seconds are per step, medians over the profiled turns; None without a profile."""

    rank: int
    compute_seconds: float | None
    communication_seconds: float | None
    exposed_seconds: float | None
    peak_memory_bytes: int | None
    """Memory that its device needs, over all blocks."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One kind of collective: data of rank 0 per step, medians over the profiled turns."""

    name: str
    calls: float
    bytes: float | None


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """All ranks of one run."""

    label: str
    ranks: tuple[RankNumbers, ...]
    sent: tuple[Sent, ...]

    @property
    def communication_seconds(self) -> float | None:
        """Communication time of the rank that waits least, the best estimate without waiting: a
        collective lasts from a rank's arrival until the last rank is done."""
        return _least([one.communication_seconds for one in self.ranks])

    @property
    def exposed_seconds(self) -> float | None:
        """The smallest exposed communication time of all ranks."""
        return _least([one.exposed_seconds for one in self.ranks])

    @property
    def slowest(self) -> RankNumbers | None:
        """The rank that computes longest; None without a profile."""
        known = [one for one in self.ranks if one.compute_seconds is not None]
        return max(known, key=lambda one: one.compute_seconds or 0.0, default=None)

    @property
    def lag(self) -> float | None:
        """Extra compute time of the slowest rank over the fastest one, as a share."""
        known = [one.compute_seconds for one in self.ranks if one.compute_seconds]
        return max(known) / min(known) - 1 if known else None

    @property
    def sent_bytes(self) -> float | None:
        """Bytes of all collectives of a step; None if one of them is unknown."""
        known = [one.bytes for one in self.sent if one.bytes is not None]
        return sum(known) if known and len(known) == len(self.sent) else None


def ranks_of(store: Store, experiment_id: str) -> list[Ranks]:
    """The ranks of every run on several devices, in the order of the variants."""
    blocks = queries.rank_blocks(store, experiment_id)
    if blocks.empty:
        return []
    profiles = queries.rank_profiles(store, experiment_id)
    sent = queries.collectives(store, experiment_id)
    return [
        Ranks(
            label=str(label),
            ranks=tuple(
                _rank(int(rank), own, profiles[profiles["label"] == label])
                for rank, own in mine.groupby("rank")
            ),
            sent=_sent(sent[(sent["label"] == label) & (sent["rank"] == 0)]),
        )
        for label, mine in blocks.groupby("label", sort=False)
    ]


def _rank(rank: int, blocks: pd.DataFrame, profiles: pd.DataFrame) -> RankNumbers:
    mine = profiles[profiles["rank"] == rank]
    medians = {
        name: _known(mine[name].median())
        for name in ("compute_seconds", "communication_seconds", "exposed_seconds")
    }
    on_cpu = blocks["reserved_memory_bytes"].isna().all()  # other devices record it
    memory = memory_needed(blocks, on_cpu=bool(on_cpu))
    return RankNumbers(rank=rank, peak_memory_bytes=memory, **medians)


def _sent(rows: pd.DataFrame) -> tuple[Sent, ...]:
    return tuple(
        Sent(
            name=str(name),
            calls=float(kind["calls"].median()),
            bytes=None if kind["sent_bytes"].isna().any() else float(kind["sent_bytes"].median()),
        )
        for name, kind in rows.groupby("name")
    )


def _known(value: float) -> float | None:
    return None if pd.isna(value) else float(value)


def _least(values: list[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def by_run(found: list[Ranks]) -> pd.DataFrame:
    """A row for each run, over all of its ranks."""
    return pd.DataFrame(
        [
            {
                "run": one.label,
                "communication_seconds": one.communication_seconds,
                "exposed_seconds": one.exposed_seconds,
                "sent_bytes": one.sent_bytes,
                "slowest_rank": "" if one.slowest is None else f"rank {one.slowest.rank}",
                "rank_lag": one.lag,
            }
            for one in found
        ]
    )


def by_rank(one: Ranks) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "rank": f"rank {rank.rank}",
                "compute_seconds": rank.compute_seconds,
                "communication_seconds": rank.communication_seconds,
                "exposed_seconds": rank.exposed_seconds,
                "peak_memory_bytes": rank.peak_memory_bytes,
            }
            for rank in one.ranks
        ]
    )


def collectives(one: Ranks) -> pd.DataFrame:
    return pd.DataFrame(
        [{"collective": sent.name, "calls": sent.calls, "sent_bytes": sent.bytes}
         for sent in one.sent]
    )  # fmt: skip
