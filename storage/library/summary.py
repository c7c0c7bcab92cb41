"""What an experiment came to, in a few numbers: what lists show of it.

Numbers are those of `storage.comparison`; here they are picked, and nothing is computed anew.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from breakeven.runner.folders.states import EarlyEnd, RunState
from breakeven.runner.specs.scenarios import Compared
from breakeven.runner.texts import read_json
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.correctness import Outcome, checks
from breakeven.storage.comparison.latency import cold_and_warm
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.index.store import Store
from breakeven.storage.library.device_readings import DeviceReading, device_readings

MAX_LOSSES = 40
"""Points of the small chart of losses."""
PARITY_WORST_FIRST = ("broken", *get_args(EarlyEnd), "unknown", "nothing learned", "holds")
OUTCOMES_WORST_FIRST: tuple[Outcome, ...] = ("differs", "failed", "undecided", "open", "passes")


@dataclass(frozen=True, kw_only=True)
class BackendSummary:
    """One backend of an experiment. None is undefined or unmeasured, infinite steps are never."""

    label: str
    state: str
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speed_verdict: str | None = None
    parity: str | None = None
    """Of an experiment that compares tensors, the outcome of its checks."""
    compile_seconds: float | None = None
    """Of one that compares caches, with empty ones."""
    break_even_steps: float | None = None
    break_even_verdict: str | None = None
    step_seconds: float | None = None
    peak_memory_bytes: float | None = None

    @property
    def counts(self) -> bool:
        """Whether a headline counts its speed, as `storage.comparison.standing` says."""
        return self.parity != "broken" and not RunState(self.state).ended_early

    @property
    def is_known(self) -> bool:
        """Whether anything was found out about it."""
        return self.compile_seconds is not None or self.parity not in (None, "unknown")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What an experiment came to."""

    backends: tuple[BackendSummary, ...] = ()
    losses: tuple[float, ...] = ()
    """Of the best backend, or of the baseline without one; those that are finite, thinned."""
    num_doubts: int = 0
    """Warnings beside the comparison."""
    devices: tuple[DeviceReading, ...] = ()
    """What the devices were like that it ran on."""
    problem: str | None = None
    """Why nothing can be told, where the comparison itself failed."""

    @property
    def best(self) -> BackendSummary | None:
        """The backend with the highest speedup among those that count; where none has a speedup,
        the first of which anything was found out."""
        sound = [one for one in self.backends if one.counts]
        timed = [one for one in sound if one.speedup is not None]
        if timed:
            return max(timed, key=lambda one: one.speedup or 0.0)
        return next((one for one in sound or self.backends if one.is_known), None)

    @property
    def parity(self) -> str | None:
        """The worst verdict that any backend has."""
        found = {one.parity for one in self.backends}
        order = (*PARITY_WORST_FIRST[:1], *OUTCOMES_WORST_FIRST, *PARITY_WORST_FIRST[1:])
        return next((verdict for verdict in order if verdict in found), None)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Summary":
        """Reads what `to_json` of the same code wrote."""
        content = read_json(text)
        backends = tuple(BackendSummary(**one) for one in content.pop("backends"))
        devices = tuple(DeviceReading(**one) for one in content.pop("devices"))
        losses = tuple(content.pop("losses"))
        return cls(**content, losses=losses, backends=backends, devices=devices)


def summarize(store: Store, experiment_id: str) -> Summary:
    """What an experiment came to, as far as it has got; raises `NotInStore`."""
    spec = queries.experiment_spec(store, experiment_id)
    return READERS[spec.kind.compares](store, experiment_id)


def _of_runs(store: Store, experiment_id: str) -> Summary:
    comparison = compare(store, experiment_id)
    found = [_of_result(one) for one in comparison.results if one.role == "backend"]
    summary = Summary(backends=tuple(found), num_doubts=len(comparison.warnings))
    best = summary.best.label if summary.best else comparison.baseline
    losses = _losses(store, comparison, best)
    return replace(summary, losses=losses, devices=device_readings(store, experiment_id))


def _of_result(result: Result) -> BackendSummary:
    names = ("speed_verdict", "parity", "compile_seconds", "break_even_steps", "step_seconds",
             "speedup", "speedup_low", "speedup_high", "break_even_verdict",
             "peak_memory_bytes")  # fmt: skip
    values: dict[str, Any] = {name: result.value(name) for name in names}
    return BackendSummary(label=result.label, state=result.state, **values)


def _losses(store: Store, comparison: Comparison, label: str) -> tuple[float, ...]:
    """Means over equal parts of the run."""
    run = comparison.spec.repeats_by_label.get(label, (label,))[0]
    parts = store.query(
        """SELECT avg(loss) AS loss FROM (
            SELECT loss, ntile(?) OVER (ORDER BY step) AS part FROM steps
            WHERE experiment = ? AND run_id = ? AND isfinite(loss))
        GROUP BY part ORDER BY part""",
        [
            MAX_LOSSES,
            store.number_of(comparison.experiment_id),
            f"{comparison.experiment_id}.{run}",
        ],
    )
    return tuple(map(float, parts["loss"]))


def _of_tensors(store: Store, experiment_id: str) -> Summary:
    spec = queries.experiment_spec(store, experiment_id)
    found = checks(store, experiment_id, spec)
    backends = []
    for variant in spec.variants:
        mine = [check for check in found if check.label == variant.label]
        if variant.role == "backend" and mine:
            worst = next(one for one in OUTCOMES_WORST_FIRST
                         if any(check.outcome == one for check in mine))  # fmt: skip
            backends.append(
                BackendSummary(label=variant.label, state=str(mine[0].state), parity=worst)
            )
    return Summary(backends=tuple(backends))


def _of_caches(store: Store, experiment_id: str) -> Summary:
    found = [
        BackendSummary(
            label=one.backend,
            state="finished",
            compile_seconds=one.cold_median,
            break_even_steps=None if found is None else found.steps,
            break_even_verdict=None if found is None else found.verdict,
            step_seconds=one.step_seconds,
        )
        for one in cold_and_warm(store, experiment_id)
        for found in [one.cold_break_even]
    ]
    return Summary(backends=tuple(found))


READERS: dict[Compared, Callable[[Store, str], Summary]] = {
    "runs": _of_runs,
    "tensors": _of_tensors,
    "caches": _of_caches,
}
"""What reads an experiment, by what it compares."""
