"""A run that was measured again: what came out, beside what was recorded."""

from dataclasses import dataclass

from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.variants import parse_backend
from breakeven.storage import queries
from breakeven.storage.comparison.results import Result
from breakeven.storage.difference.earlier_replays import PATIENCE, spread_of_compiling
from breakeven.storage.difference.figures import Figure, Pair, Reason, Verdict, pace
from breakeven.storage.difference.settings import Differing, differing
from breakeven.storage.difference.sides import Side, load_sides
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.intervals import Spread

CHOSEN = ("backends", "controls", "model.dropout")
"""Settings in which a replay may differ by itself: it has no more than it needs."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A run that was measured again, beside what was recorded of it."""

    label: str
    recorded: Side
    again: Side
    figures: tuple[Figure, ...]
    pace: float | None
    """Times longer that a step of baseline and controls takes now: the machine, not the backend."""
    parity: tuple[str | None, str | None]
    """The verdicts, recorded and again."""
    differs: tuple[Differing, ...]
    """Machine, software, data and settings that are not what they were."""

    @property
    def is_over(self) -> bool:
        return not any(RunState(one.state).is_active for one in self.again.comparison.results)

    @property
    def has_finished(self) -> bool:
        return all(one.state == RunState.FINISHED for one in self.again.comparison.results)

    def count(self, verdict: Verdict) -> int:
        return sum(figure.verdict == verdict for figure in self.figures)


def replays_of(store: Store, experiment_id: str) -> list[str]:
    """Ids of the experiments that measured runs of this one again, newest first."""
    listed = queries.list_experiments(store)
    return list(listed.loc[listed["replay_of"] == experiment_id, "experiment_id"])


def load_replay(store: Store, experiment_id: str, patience: float = PATIENCE) -> Replay:
    """Raises `NotInStore` if this is no replay, or what it replays is not here (any more).

    `patience` is how many seconds may be spent on numbers of other replays that are not known yet.
    """
    spec = queries.experiment_spec(store, experiment_id)
    if spec.replay_of is None:
        raise NotInStore(f"experiment {experiment_id!r} measures no other one again")
    if spec.replay_of == experiment_id:
        raise NotInStore(f"experiment {experiment_id!r} says that it measures itself again")
    recorded, again = load_sides(store, [spec.replay_of, experiment_id])
    label = parse_backend(spec.backends[0]).label if spec.backends else "baseline"
    before, after = recorded.result(label), again.result(label)
    figures: list[Figure] = []
    if before is not None and after is not None:
        compiling: Spread | Reason = "missing"
        if after.measured.compile_seconds is not None:
            compiling = spread_of_compiling(store, experiment_id, patience)
        pair = Pair(sides=(recorded, again), results=(before, after), compiling=compiling)
        figures = pair.figures()
    differs = [one for one in differing([recorded, again])
               if one.kind != "setting" or one.name not in CHOSEN]  # fmt: skip
    return Replay(
        label=label,
        recorded=recorded,
        again=again,
        figures=tuple(figures),
        pace=pace((recorded, again)),
        parity=(_parity(before), _parity(after)),
        differs=tuple(differs),
    )


def _parity(result: Result | None) -> str | None:
    return result.parity.verdict if result is not None and result.parity is not None else None
