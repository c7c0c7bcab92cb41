"""Summarises an experiment in a few numbers for lists, with the noise and speed of its devices.

The numbers are from `storage.comparison`; this module only selects them.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from breakeven.runner.protocol.states import EarlyEnd, RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenarios.base import Compared
from breakeven.runner.texts import printable
from breakeven.storage import queries
from breakeven.storage.comparison.cold_and_warm import cold_and_warm
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.correctness import checks
from breakeven.storage.comparison.plan import Plan, choice_words, own_plan
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import count_of
from breakeven.storage.result_caches import memo, revision, stored

MAX_LOSSES = 40
"""Points of the small chart of losses."""
WORST_FIRST = (
    "broken",
    "worse",
    "differs",
    "failed",
    "undecided",
    "open",
    "passes",
    *get_args(EarlyEnd),
    "unknown",
    "not decided",
    "nothing learned",
    "as good",
    "better",
    "holds",
)
"""Verdicts of parity and outcomes of checks."""
OF_WORKLOAD = ("scenario", "task", "cpu_threads")
WITHOUT_EFFECT: dict[str, tuple[str, ...]] = {
    "model": (),
    "data": ("num_eval_samples", "num_test_samples", "eval_split", "test_split"),
    "training": ("seed", "epochs", "max_steps"),
    "speed": ("target_width", "min_rounds", "max_rounds", "max_seconds", "repeats"),
}
"""Parts of a specification that define a step, with their fields that do not: length and precision
of the measurement, and random seed."""


@dataclass(frozen=True, kw_only=True)
class BackendSummary:
    """One backend of an experiment. None: undefined or unmeasured; infinite steps: never."""

    label: str
    state: str
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    speed_verdict: str | None = None
    parity: str | None = None
    """For an experiment that compares tensors, the outcome of its checks."""
    compile_seconds: float | None = None
    """For an experiment that compares caches, the time with empty caches."""
    break_even_steps: float | None = None
    break_even_verdict: str | None = None
    step_seconds: float | None = None
    peak_memory_bytes: float | None = None
    environment: str | None = None
    """Name of its environment; None for Breakeven's own Python."""
    torch: str | None = None
    """The version that the run recorded, as of `transformers`."""
    transformers: str | None = None
    is_wrong: bool = False
    """As in `Result`."""

    @property
    def counts(self) -> bool:
        """Whether headlines include its speed, as in `storage.comparison.results`."""
        return not (self.is_wrong or RunState(self.state).ended_early)

    @property
    def has_result(self) -> bool:
        """Whether there is any result."""
        return self.compile_seconds is not None or self.parity not in (None, "unknown")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The summary of an experiment."""

    backends: tuple[BackendSummary, ...] = ()
    losses: tuple[float, ...] = ()
    """Averaged finite losses of the best backend, or of the baseline without one."""
    leading: str | None = None
    """Label of the backend that the headline names; None if no backend is surely faster."""
    answer: str | None = None
    """The kind of the plan's answer, with the backend to use and the length that it is for:
    `use inductor for 20,000 steps`."""
    num_warnings: int = 0
    """Number of warnings of the comparison."""
    problem: str | None = None
    """Why the comparison failed; then all numbers are unknown."""
    workload: str | None = None
    """`workload_key`."""

    @property
    def best(self) -> BackendSummary | None:
        """The backend that the headline names; if none is surely faster, the one with the highest
        speedup among those that count; if none has a speedup, the first one that ran to its end and
        has any result."""
        if self.leading is not None:
            return next(backend for backend in self.backends if backend.label == self.leading)
        sound = [backend for backend in self.backends if backend.counts]
        timed = [backend for backend in sound if backend.speedup is not None]
        if timed:
            return max(timed, key=lambda backend: backend.speedup or 0.0)
        ended = [backend for backend in self.backends if not RunState(backend.state).ended_early]
        return next((backend for backend in sound or ended if backend.has_result), None)

    @property
    def parity(self) -> str | None:
        """The worst verdict of all backends."""
        verdicts = {backend.parity for backend in self.backends}
        return next((verdict for verdict in WORST_FIRST if verdict in verdicts), None)


STORED_CLASSES = (Summary, BackendSummary)


@memo(revision)
@stored("summary", *STORED_CLASSES)
def summarize(store: Store, experiment_id: str) -> Summary:
    """The summary of an experiment's present data; with a `problem` if it cannot be compared.
    Raises `NotInStore`."""
    spec = queries.experiment_spec(store, experiment_id)
    try:
        summary = SUMMARIZERS[spec.kind.compares](store, experiment_id)
    except Exception as error:  # One broken experiment must not hide the others.
        summary = Summary(problem=printable(f"{type(error).__name__}: {error}"))
    return replace(summary, workload=workload_key(spec))


def _of_runs(store: Store, experiment_id: str) -> Summary:
    comparison = compare(store, experiment_id)
    recorded = queries.fields_by_run(queries.environments(store, experiment_id))
    backends = [
        _of_result(comparison, result, recorded)
        for result in comparison.of_all_environments
        if result.role == "backend"
    ]
    planned = own_plan(comparison)
    leading = planned.leading
    summary = Summary(
        backends=tuple(backends),
        num_warnings=len(comparison.serious_warnings),
        leading=leading.label if leading else None,
        answer=_short_answer(planned),
    )
    best = summary.best.label if summary.best else comparison.baseline
    return replace(summary, losses=_losses(store, comparison, best))


def _short_answer(planned: Plan) -> str | None:
    """`do not compile for 80 steps`, of arms `keep the baseline for 80 steps`; without the length
    if the answer is for any."""
    answer = planned.answer
    if answer is None:
        return None
    words = choice_words(planned)
    names = {
        "use": f"use {answer.backend}",
        "do not compile": words.decline,
        "nothing worked": words.refused,
    }
    name = names.get(answer.kind, answer.kind)
    if planned.num_steps is None or answer.kind in ("nothing compiled", "nothing worked"):
        return name
    return f"{name} for {count_of(planned.num_steps, 'step')}"


def _of_result(
    comparison: Comparison, result: Result, recorded: Mapping[str, Mapping[str, Any]]
) -> BackendSummary:
    names = (
        "speed_verdict",
        "parity",
        "compile_seconds",
        "break_even_steps",
        "step_seconds",
        "speedup",
        "speedup_low",
        "speedup_high",
        "break_even_verdict",
        "peak_memory_bytes",
    )
    values: dict[str, Any] = {name: result.value(name) for name in names}
    versions = recorded.get(result.run_id, {}).get("versions") or {}
    return BackendSummary(
        label=result.label,
        state=result.state,
        environment=comparison.spec.environment_by_label[result.label],
        torch=versions.get("torch"),
        transformers=versions.get("transformers"),
        is_wrong=result.is_wrong,
        **values,
    )


def _losses(store: Store, comparison: Comparison, label: str) -> tuple[float, ...]:
    """Means over equal parts of the run."""
    run_id = comparison.result_of(label).run_id
    parts = store.query(
        """SELECT avg(loss) AS loss FROM (
            SELECT loss, ntile(?) OVER (ORDER BY step) AS part FROM steps
            WHERE experiment = ? AND run_id = ? AND isfinite(loss))
        GROUP BY part ORDER BY part""",
        [MAX_LOSSES, store.number_of(comparison.experiment_id), run_id],
    )
    return tuple(map(float, parts["loss"]))


def _of_tensors(store: Store, experiment_id: str) -> Summary:
    spec = queries.experiment_spec(store, experiment_id)
    known = checks(store, experiment_id, spec)
    backends = []
    for arm in spec.arms:
        own_checks = [check for check in known if check.label == arm.label]
        if arm.role == "backend" and own_checks:
            worst = next(
                outcome
                for outcome in WORST_FIRST
                if any(check.outcome == outcome for check in own_checks)
            )
            backends.append(
                BackendSummary(label=arm.label, state=str(own_checks[0].state), parity=worst)
            )
    return Summary(backends=tuple(backends))


def _of_caches(store: Store, experiment_id: str) -> Summary:
    backends = [
        BackendSummary(
            label=times.backend,
            state="finished",
            compile_seconds=times.cold_median,
            break_even_steps=None if break_even is None else break_even.steps,
            break_even_verdict=None if break_even is None else break_even.verdict,
            step_seconds=times.step_seconds,
        )
        for times in cold_and_warm(compare(store, experiment_id))
        for break_even in [times.cold_break_even]
    ]
    return Summary(backends=tuple(backends))


def _of_causes(store: Store, experiment_id: str) -> Summary:
    """Nothing: an investigation measures nothing that lists or trends compare."""
    return Summary()


SUMMARIZERS: dict[Compared, Callable[[Store, str], Summary]] = {
    "runs": _of_runs,
    "tensors": _of_tensors,
    "caches": _of_caches,
    "causes": _of_causes,
}
"""The function that summarises an experiment, by the kind of its comparison."""


def workload_key(spec: ExperimentSpec) -> str:
    """A short text that is equal for two experiments exactly if their steps do the same on the same
    kind of device. It excludes backends, because each backend has its own trend."""
    content = asdict(spec)
    identity: dict[str, Any] = {name: content[name] for name in OF_WORKLOAD}
    identity["device"] = spec.device.partition(":")[0]
    if spec.num_devices > 1:
        identity["devices"] = [spec.num_devices, spec.parallel]
    for part, left_out in WITHOUT_EFFECT.items():
        identity[part] = {
            name: value for name, value in content[part].items() if name not in left_out
        }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
