"""The raw series of an experiment's runs, as the comparison needs them, and what runs recorded of
their random numbers, on which the judgement of parity depends."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.variants import Role
from breakeven.runner.supervision.stopping_rule import Ending
from breakeven.storage import queries
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.memo import memo, revision
from breakeven.storage.queries.rows import ends_of_runs

Rows = Callable[[str], pd.DataFrame]


@dataclass(frozen=True)
class Randomness:
    """Recorded after training, and only of backends (docs/events.md). Without a record all is
    empty, and `draws_own_numbers` is None."""

    draws_own_numbers: bool | None
    """Whether it draws other numbers than are drawn without a compiler."""
    loss_spread: float
    """Standard deviation of the loss of one step over many draws, without a compiler; NaN if it is
    not known."""
    inference_draws: bool
    """Whether its compiled model answers the same samples otherwise each time; False if unknown."""
    distances: dict[str, list[float]]
    """By parameter, as `storage.statistics.random_numbers` takes them."""
    changes: dict[str, float]
    """By parameter, mean squared size of what steps without a compiler changed."""
    rehearsals: dict[str, pd.Series]
    """By form, losses by step of a training without dropout."""
    dropouts: pd.DataFrame
    """What each dropout drew, compiled or not."""

    def drawn(self, *, compiled: bool) -> list[dict[str, Any]]:
        table = self.dropouts[self.dropouts["compiled"].astype(bool) == compiled]
        return [
            {str(name): value for name, value in row.items()} for row in table.to_dict("records")
        ]


def load_randomness(store: Store, experiment_id: str) -> Callable[[str], Randomness]:
    """Finds a run's records by its id."""
    frames = {
        "numbers": queries.random_numbers(store, experiment_id),
        "redraws": queries.redraws(store, experiment_id),
        "rehearsals": queries.rehearsals(store, experiment_id),
        "dropouts": queries.dropouts(store, experiment_id),
    }

    def find(run_id: str) -> Randomness:
        mine = {name: frame if frame.empty else frame[frame["run_id"] == run_id]
                for name, frame in frames.items()}  # fmt: skip
        if all(frame.empty for frame in mine.values()):
            return Randomness(None, math.nan, False, {}, {}, {}, mine["dropouts"])
        same = mine["numbers"]["same"].dropna()
        redraws = mine["redraws"].dropna(subset=["distances"])
        rehearsals = mine["rehearsals"].dropna(subset=["form", "loss_by_step"])
        return Randomness(
            draws_own_numbers=None if same.empty else not same.iloc[-1],
            loss_spread=_spread(mine["numbers"]["loss_by_draw"]),
            inference_draws=bool(mine["numbers"]["inference_draws"].isin([True]).any()),
            distances={
                name: np.asarray(pairs, dtype=float).tolist()
                for name, pairs in zip(redraws["tensor"], redraws["distances"], strict=True)
            },
            changes=dict(zip(redraws["tensor"], redraws["change"].astype(float), strict=True)),
            rehearsals={
                form: pd.Series(np.asarray(losses, dtype=float))
                for form, losses in zip(rehearsals["form"], rehearsals["loss_by_step"], strict=True)
            },
            dropouts=mine["dropouts"],
        )

    return find


def _spread(losses: pd.Series) -> float:
    """Of the first half, which was drawn without a compiler."""
    if losses.dropna().empty:
        return math.nan
    drawn = np.asarray(losses.iloc[-1], dtype=float)
    return float(drawn[: len(drawn) // 2].std(ddof=1)) if len(drawn) >= 4 else math.nan


RESUMED = "torch_dynamo_resume_in_"
"""How Dynamo begins the name of what follows a graph break in a function."""
MANY_BLOCKS = 6
"""Of a run that compiles in each of so many blocks more will not be without."""


@dataclass(frozen=True)
class Stop:
    """An end before the last step by rules of the training's own."""

    step: int
    reason: str
    ending: Ending | None = None
    """Of measuring that ended by itself; older journals have the reason alone."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What one run recorded. Undefined is None."""

    run_id: str
    label: str
    role: str
    backend: str | None
    state: RunState
    reason: str | None
    num_steps: int
    """The planned number; 0 for a script until one of its runs has reported it."""
    losses: pd.Series
    """By step, those that were recorded; NaN is a loss that is not a number."""
    steps: pd.DataFrame
    blocks: pd.DataFrame
    device: pd.DataFrame
    """How the device fared: `storage.queries.device_samples`."""
    evaluations: pd.DataFrame
    """Of the primary split, without a compiler, by the number of steps done."""
    scores: pd.DataFrame
    """Every number of every evaluation, of all splits, compiled and not."""
    answers: pd.DataFrame
    """Answers of compiled models and of the same weights without a compiler
    (`storage.queries.answers`)."""
    compiled_frames: pd.DataFrame
    """Of training, by the run's first process, like `graph_breaks`: a resumed one compiles anew."""
    graph_breaks: pd.DataFrame
    randomness: Randomness
    inputs: pd.DataFrame
    """Of scripts: what they computed with at some steps, as hashes (`storage.queries.inputs`)."""
    resumed_at: tuple[int, ...]
    """Steps done when the run was resumed."""
    added_at: tuple[int, ...]
    """Steps done when rounds were added to a run that had finished."""
    moved_at: tuple[tuple[int, int, int], ...]
    """Of those, where it went on on another number of devices: the steps done, the number of
    devices before, and that after."""
    left_out: int
    """Events of the journal that do not count, because they did not come after those before."""
    missing: int
    """Events that the journal should have had between the others."""
    stop: Stop | None
    workload: dict[str, Any]
    environment: dict[str, Any]
    state_of_losses: RunState
    """Of the process whose losses and evaluations these are: of several, `state` is the worst."""

    @property
    def computes_on_cpu(self) -> bool:
        """Journals until version 0.1 lack `device_type`. They have values of device memory only for
        CUDA."""
        device_type = self.environment.get("device_type")
        return device_type == "cpu" if device_type else "gpu_memory_bytes" not in self.environment

    @property
    def num_planned_steps(self) -> int:
        """Steps that the run was to do, or did until it stopped by rules of its own."""
        return self.num_steps if self.stop is None else self.stop.step

    @property
    def tells_samples(self) -> bool:
        """Whether it is known of every block how many samples it worked on."""
        return bool(self.blocks["samples"].notna().all())

    def per_step(self, size: str) -> float | None:
        """Samples or tokens of a step: of a script, whose steps may differ, the mean over those
        that are timed, as far as it tells."""
        blocks = self.steady_blocks
        if len(blocks) and blocks[size].notna().all():
            return float(blocks[size].sum() / blocks["num_steps"].sum())
        size_per_step: float | None = self.workload.get(f"{size}_per_step")
        return size_per_step

    @property
    def steps_of_losses(self) -> int:
        """Steps of the process whose losses these are."""
        return int((self.steps["run_id"] == self.run_id).sum())

    @property
    def made_all_steps(self) -> bool:
        return 0 < self.num_steps <= self.steps_of_losses

    @cached_property
    def steady_blocks(self) -> pd.DataFrame:
        return self.blocks[self.blocks["steady"]]

    @cached_property
    def steady_device(self) -> pd.DataFrame:
        """Samples of steady blocks."""
        return self.device[self.device["steady"].astype(bool)]

    @cached_property
    def has_compiled(self) -> bool:
        return bool(self.steps["compiled"].any()) or len(self.compiled_frames) > 0

    @cached_property
    def runs_uncompiled(self) -> bool:
        """Whether all of it ran as it would without a compiler: no compilation began, or Dynamo
        found nothing to capture in any of them, or gave up on it. A compilation of which it
        reported no frame is believed to have come to something."""
        if not self.has_compiled:
            return True
        frames = self.compiled_frames
        # A frame that goes on behind a graph break and holds nothing has no count at all.
        count = frames["graph_ops"]
        goes_on = frames["function"].fillna("").str.startswith(RESUMED) & count.isna()
        is_empty = frames["failure"].notna() | count.fillna(1).eq(0) | goes_on
        return len(frames) > 0 and bool(is_empty.all())

    @cached_property
    def never_ceases_to_compile(self) -> bool:
        """Whether something was compiled, or captured, in every block of several to the last."""
        blocks = self.blocks["compiled"]
        return len(blocks) >= MANY_BLOCKS and bool(blocks.all())

    @cached_property
    def step_seconds(self) -> float | None:
        """Median over the steady steps."""
        return number(self.steps.loc[self.steps["steady"], "seconds"].median())

    @cached_property
    def compile_latencies(self) -> list[float]:
        """Of each process that compiled: time of the training steps that compiled, minus as many
        steady steps; at least 0. Empty where no step is steady.

        Of a resumed run its first process counts: what the later ones compiled again, in a cache
        that was filled or not, is no cost of the backend.
        """
        first = self.steps["attempt"] == 1
        compiled = self.steps[first & self.steps["compiled"]]
        if compiled.empty or self.step_seconds is None:
            return []
        seconds = compiled.groupby("run_id")["seconds"]
        spent = seconds.sum() - seconds.count() * self.step_seconds
        return [max(0.0, float(one)) for one in spent]

    @cached_property
    def compile_seconds(self) -> float | None:
        """The compile latency, of several processes the median."""
        return float(np.median(self.compile_latencies)) if self.compile_latencies else None

    def last_evaluation(self, column: str) -> float | None:
        return None if self.evaluations.empty else number(self.evaluations[column].iloc[-1])


FOUND_BY_BASELINE = ("flops_per_step", "precision")
"""Fields of `workload`."""


@memo(revision)
def load_evidence(store: Store, experiment_id: str) -> tuple[ExperimentSpec, list[Evidence]]:
    """All runs of an experiment, in the order of its variants; raises `NotInStore`."""
    runs = queries.run_states(store, experiment_id)
    if runs.empty:
        raise NotInStore(
            f"no experiment {experiment_id!r} in {store.data_dir.runs} or among the examples"
        )
    breaks = _of_training(queries.graph_breaks(store, experiment_id))
    series = {
        "steps": queries.step_times(store, experiment_id),
        "blocks": queries.blocks(store, experiment_id),
        "device": queries.device_samples(store, experiment_id),
        "scores": queries.evaluation_metrics(store, experiment_id),
        "answers": queries.answers(store, experiment_id),
        "compiled_frames": _of_training(queries.compile_metrics(store, experiment_id)),
        # Without those that torch makes where several devices share a run.
        "graph_breaks": breaks[breaks["cause"] == "code"],
    }
    losses = losses_by_run(store, experiment_id)  # The steps, which have them, are at hand now.
    series = {name: _by_run(frame) for name, frame in series.items()}
    resumptions = _by_run(queries.resumptions(store, experiment_id))
    stops = _by_run(queries.stops(store, experiment_id))
    evaluations = _by_run(queries.evaluations(store, experiment_id))
    workloads = queries.fields_by_run(queries.workloads(store, experiment_id))
    environments = queries.fields_by_run(queries.environments(store, experiment_id))
    randomness = load_randomness(store, experiment_id)
    inputs = _by_run(queries.inputs(store, experiment_id))
    evidence = []
    for run in runs.to_dict("records"):
        mine = {name: find(run["run_id"]) for name, find in series.items()}
        workload = workloads.get(run["run_id"], {})
        evidence.append(
            Evidence(
                run_id=run["run_id"],
                label=run["label"],
                role=run["role"],
                backend=None if pd.isna(run["backend"]) else run["backend"],
                state=RunState(run["state"]),
                state_of_losses=RunState(run["state"]),
                reason=None if pd.isna(run["reason"]) else run["reason"],
                num_steps=run["num_steps"] or int(workload.get("num_steps") or 0),
                losses=losses(run["run_id"]),
                evaluations=_by(evaluations(run["run_id"]), "step"),
                workload=workload,
                inputs=inputs(run["run_id"]),
                environment=environments.get(run["run_id"], {}),
                randomness=randomness(run["run_id"]),
                resumed_at=_steps(resumptions(run["run_id"]), adds_rounds=False),
                added_at=_steps(resumptions(run["run_id"]), adds_rounds=True),
                moved_at=moves(resumptions(run["run_id"])),
                left_out=run["left_out"],
                missing=run["missing"],
                stop=_stop(stops(run["run_id"])),
                **mine,
            )
        )
    spec = queries.experiment_spec(store, experiment_id)
    if spec.is_script:
        most_steps = max((run.num_steps for run in evidence), default=0)
        evidence = [replace(run, num_steps=run.num_steps or most_steps) for run in evidence]
        evidence = [_as_found_by_baseline(run, evidence) for run in evidence]
    return spec, evidence


def losses_by_run(store: Store, experiment_id: str) -> Callable[[str], pd.Series]:
    """Finds the recorded losses of a run, by step."""
    find = _by_run(queries.losses(store, experiment_id, max_points=None))
    return lambda run_id: _by(find(run_id), "step")["loss"]


def _steps(resumptions: pd.DataFrame, *, adds_rounds: bool) -> tuple[int, ...]:
    """Steps done when the run went on: to train, or to add rounds."""
    return tuple(resumptions.loc[resumptions["adds_rounds"] == adds_rounds, "step"])


def moves(resumptions: pd.DataFrame) -> tuple[tuple[int, int, int], ...]:
    """Steps done, devices before and after, of the resumptions that changed their number."""
    counts = resumptions[["step", "num_devices_before", "num_devices"]].dropna().astype(int)
    rows = counts[counts["num_devices_before"] != counts["num_devices"]]
    return tuple(rows.itertuples(index=False, name=None))


def _as_found_by_baseline(run: Evidence, runs: Sequence[Evidence]) -> Evidence:
    """With what only a run without a compiler finds out of a script, for it holds of all."""
    baseline = next((one for one in runs if one.role == "baseline"), run)
    of_baseline = baseline.workload
    found = {
        name: of_baseline.get(name) for name in FOUND_BY_BASELINE if run.workload.get(name) is None
    }
    return replace(run, workload=run.workload | found) if run.workload else run


def _by_run(frame: pd.DataFrame) -> Callable[[str], pd.DataFrame]:
    """Finds the rows of a run, of which there may be very many, where those of each lie together,
    as queries return them."""
    ids = frame["run_id"].array
    parts = {ids[begin]: frame.iloc[begin:end] for begin, end in pairwise(ends_of_runs(frame))}
    return lambda run_id: parts.get(run_id, frame.iloc[:0])


def _of_training(frame: pd.DataFrame) -> pd.DataFrame:
    """What the compiler did in training, in the first process of each run."""
    return frame[(frame["phase"] == "training") & (frame["attempt"] == 1)]


def _stop(stops: pd.DataFrame) -> Stop | None:
    if stops.empty:
        return None
    step, reason, ending_text = stops[["step", "reason", "ending"]].iloc[-1]
    ending = None
    if isinstance(ending_text, str):
        with suppress(InvalidSpec):  # A specification that no supervisor wrote counts as none.
            ending = Ending.from_json(ending_text)
    return Stop(int(step), reason or "no reason given", ending)


def _by(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    values = frame[column].to_numpy()
    if not (values[1:] > values[:-1]).all():
        frame = frame.drop_duplicates(column, keep="last")
    return frame.set_index(column)


def number(value: Any) -> float | None:
    """A float, or None for a missing one."""
    return None if pd.isna(value) else float(value)


class _HasRole(Protocol):
    @property
    def role(self) -> str: ...


class _HasState(Protocol):
    @property
    def state(self) -> str: ...


_Run = TypeVar("_Run", bound=_HasRole)
_Ended = TypeVar("_Ended", bound=_HasState)


def counted(controls: Sequence[_Ended]) -> list[_Ended]:
    """The controls by which parity is judged: those that did not end early, or all if all did."""
    return [one for one in controls if not RunState(one.state).ended_early] or [*controls]


def of_role(runs: Iterable[_Run], role: Role) -> _Run | None:
    """The first one that has a role; None if none has, as where a run folder is missing."""
    return next((run for run in runs if run.role == role), None)
