"""The records of a run on which its comparison rests: `storage.comparison.loading` reads them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.runner.protocol.endings import Ending
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.arm_fields import Role
from breakeven.runner.texts import printable


@dataclass(frozen=True)
class Randomness:
    """A backend's records of random numbers, made after training (docs/events.md). Without a record
    all fields are empty, and `draws_own_numbers` is None."""

    draws_own_numbers: bool | None
    """Whether compiled code draws other numbers than uncompiled code."""
    loss_spread: float
    """Standard deviation of the loss of one step over many draws, without a compiler; NaN if
    unknown."""
    inference_draws: bool
    """Whether the compiled model's answers for the same samples vary; False if unknown."""
    distances: dict[str, list[float]]
    """By parameter, in the form that `storage.statistics.random_numbers` needs."""
    changes: dict[str, float]
    """By parameter, mean squared size of the change by steps without a compiler."""
    rehearsals: dict[str, pd.Series]
    """By form, losses by step of a training without dropout."""
    dropouts: pd.DataFrame
    """The draws of each dropout, compiled or not."""

    def drawn(self, *, compiled: bool) -> list[dict[str, Any]]:
        table = self.dropouts[self.dropouts["compiled"].astype(bool) == compiled]
        return [
            {str(name): value for name, value in row.items()} for row in table.to_dict("records")
        ]


RESUMED = re.compile(r"^torch_dynamo_resume_in_(.+)_at_\d+$")
"""Dynamo's name for the part of a function after a graph break."""
MANY_BLOCKS = 6
"""A run that compiles in each of this many blocks will also compile in all later ones."""


@dataclass(frozen=True)
class Stop:
    """An end before the last step, by the training's own rules."""

    step: int
    reason: str
    ending: Ending | None = None
    """Set if measuring ended by itself; older journals have only the reason."""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What a run learned, and with which numbers. The process is the one with the most steps."""

    losses: pd.Series
    """The recorded losses by step; NaN is a loss that is not a number."""
    evaluations: pd.DataFrame
    """Evaluations of the primary split without a compiler, by the number of steps done."""
    scores: pd.DataFrame
    """All numbers of all evaluations, of all splits, compiled and not."""
    answers: pd.DataFrame
    """Answers of compiled models and of the same weights without a compiler
    (`storage.queries.answers`)."""
    randomness: Randomness
    inputs: pd.DataFrame
    """Hashes of a script's inputs at some steps (`storage.queries.inputs`)."""
    ranks: pd.DataFrame
    """Losses and weights of each rank (`storage.queries.rank_blocks`); empty on one device."""
    state: RunState
    """State of the process; that of the run is the worst of all its processes."""


@dataclass(frozen=True, kw_only=True)
class Compiling:
    """What Dynamo reported in training, in the run's first process, because a resumed one compiles
    anew."""

    frames: pd.DataFrame
    graph_breaks: pd.DataFrame


@dataclass(frozen=True, kw_only=True)
class Journal:
    """How often a run was continued, and how complete its journal is."""

    resumed_at: tuple[int, ...]
    """Steps done when the run was resumed."""
    added_at: tuple[int, ...]
    """Steps done when rounds were added to a run that had finished."""
    moved_at: tuple[tuple[int, int, int], ...]
    """Resumptions on another number of devices: the steps done, the number of devices before, and
    the number after."""
    left_out: int
    """Ignored events of the journal, because their `seq` does not ascend."""
    missing: int
    """Events that are missing from the journal between others."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The records of one run. None means undefined."""

    run_id: str
    label: str
    role: str
    backend: str | None
    state: RunState
    reason: str | None
    num_steps: int
    """The planned number; 0 for a script until one of its runs has reported it."""
    steps: pd.DataFrame
    blocks: pd.DataFrame
    """`storage.queries.blocks`, with `joules` by the device's meter, missing without a reading;
    without `later_blocks`."""
    later_blocks: pd.DataFrame
    """Blocks of the process that began with the compile caches of the first one."""
    cache_keys: pd.DataFrame
    """Look-ups of graphs in compile caches (`storage.queries.cache_keys`)."""
    caches: pd.DataFrame
    """Hits and misses by layer and process (`storage.queries.compile_caches`)."""
    device: pd.DataFrame
    """State of the device over time: `storage.queries.device_samples`."""
    learning: Learning
    compiling: Compiling
    journal: Journal
    stop: Stop | None
    workload: dict[str, Any]
    environment: dict[str, Any]
    batch_times: int = 1
    """How many times as large as the experiment's its batches are."""
    changes_training: bool = False
    """Whether its arm declares another mathematics than the baseline's."""

    @property
    def is_decided(self) -> bool:
        """Whether the supervisor ended it because no more rounds were needed."""
        return self.stop is not None and self.stop.ending is not None

    @property
    def ended_as_wrong(self) -> bool:
        """Whether a search ended it because its losses leave the band of equal trainings."""
        ending = None if self.stop is None else self.stop.ending
        return ending is not None and ending.cause == "wrong"

    @property
    def computes_on_cpu(self) -> bool:
        """Journals until version 0.1 lack `device_type`. They have values of device memory only for
        CUDA."""
        device_type = self.environment.get("device_type")
        return device_type == "cpu" if device_type else "gpu_memory_bytes" not in self.environment

    @property
    def clock_reads(self) -> list[str]:
        """Where a script read the clock: `file:line`."""
        return [printable(str(place)) for place in self.workload.get("clock_reads") or ()]

    @property
    def num_planned_steps(self) -> int:
        """The planned steps, or the steps done if the run's own rules stopped it."""
        return self.num_steps if self.stop is None else self.stop.step

    @cached_property
    def tells_sizes(self) -> bool:
        """Whether the amount of work of any steady block is known."""
        return any(self.steady_blocks[size].notna().any() for size in ("samples", "tokens"))

    @property
    def tells_samples(self) -> bool:
        """Whether the number of samples of every block is known."""
        return bool(self.blocks["samples"].notna().all())

    def per_step(self, size: str) -> float | None:
        """Samples or tokens of a step. A script's steps may differ: the mean over its steady steps,
        if all their sizes are known."""
        sizes = self.steady_blocks[size]
        if len(sizes) and sizes.notna().all():
            return float(sizes.sum() / self.steady_blocks["num_steps"].sum())
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
        return self.blocks[self.blocks["steady"].to_numpy(bool)]

    @property
    def first_training(self) -> pd.DataFrame:
        """The blocks of the training whose losses count: those before rounds were added."""
        begins = self.journal.added_at
        return self.blocks[self.blocks["first_step"] < min(begins)] if begins else self.blocks

    @cached_property
    def is_metered(self) -> bool:
        """Whether steady blocks have readings of energy, none of them too short for the device's
        counter to advance."""
        readings = known(self.steady_blocks["joules"])
        return len(readings) > 0 and bool((readings > 0).all())

    @cached_property
    def steady_device(self) -> pd.DataFrame:
        """Samples of steady blocks."""
        return self.device[self.device["steady"].to_numpy(bool)]

    @cached_property
    def has_compiled(self) -> bool:
        return bool(self.steps["compiled"].any()) or len(self.compiling.frames) > 0

    @cached_property
    def runs_uncompiled(self) -> bool:
        """Whether the whole run was uncompiled: no compilation began, or Dynamo captured nothing or
        gave up in each of them. A compilation without a reported frame counts as compiled."""
        if not self.has_compiled:
            return True
        frames = self.compiling.frames
        # An empty frame after a graph break has no count.
        count = frames["graph_ops"]
        goes_on = frames["function"].fillna("").str.match(RESUMED) & count.isna()
        is_empty = frames["failure"].notna() | count.fillna(1).eq(0) | goes_on
        return len(frames) > 0 and bool(is_empty.all())

    @property
    def is_idle(self) -> bool:
        """Whether this is a compiler's run in which nothing was compiled."""
        compiles = self.role == "backend" and self.backend is not None
        return compiles and len(self.steps) > 0 and self.runs_uncompiled

    @cached_property
    def never_ceases_to_compile(self) -> bool:
        """Whether every block, of at least `MANY_BLOCKS`, compiled or captured something."""
        blocks = self.blocks["compiled"]
        return len(blocks) >= MANY_BLOCKS and bool(blocks.all())

    @cached_property
    def step_seconds(self) -> float | None:
        """Median over the steady blocks of their mean step."""
        seconds = self.steps["seconds"].to_numpy(float)
        is_known = self.steps["steady"].to_numpy(bool) & ~np.isnan(seconds)
        if not is_known.any():
            return None
        # Steps are in the order of time, and those of a process together, so that a block ends
        # where the round changes. Grouping by texts and rounds would take ten times as long.
        rounds = self.steps["round"].to_numpy()[is_known]
        run, _ = pd.factorize(self.steps["run_id"])
        begins = np.flatnonzero((np.diff(rounds) != 0) | (np.diff(run[is_known]) != 0)) + 1
        begins = np.concatenate([[0], begins])
        counts = np.diff(np.append(begins, len(rounds)))
        return float(np.median(np.add.reduceat(seconds[is_known], begins) / counts))

    @cached_property
    def compile_latencies(self) -> tuple[float, ...]:
        """For each process that compiled: time of the training steps that compiled, minus the time
        of as many steady steps; at least 0. Empty if no step is steady.

        Only the first process of a resumed run counts: later compiling, with filled caches or
        without, is no cost of the backend.
        """
        first = (self.steps["attempt"] == 1).to_numpy() & self.steps["compiled"].to_numpy(bool)
        if not first.any() or self.step_seconds is None:
            return ()
        process, _ = pd.factorize(self.steps["run_id"].array[first])
        seconds = self.steps["seconds"].to_numpy(float)[first]
        spent = np.bincount(process, np.nan_to_num(seconds - self.step_seconds))
        return tuple(max(0.0, float(extra)) for extra in spent)

    @property
    def compile_seconds(self) -> float | None:
        """The compile latency; the median of several processes."""
        return float(np.median(self.compile_latencies)) if self.compile_latencies else None

    @property
    def later_compile_seconds(self) -> float | None:
        """The compile latency of a later start, with the caches of the first one: time of its
        blocks that compiled, minus that of as many steady steps. What the first process compiled
        after as many steps counts as it was. None if no later start was timed."""
        step, blocks, steps = self.step_seconds, self.later_blocks, self.steps
        if step is None or blocks.empty or blocks["compiled"].all():
            return None
        compiled = blocks[blocks["compiled"].to_numpy(bool)]
        extra = compiled["seconds"] - compiled["num_steps"] * step
        after = steps["step"] >= blocks["num_steps"].sum()
        is_late = after & (steps["attempt"] == 1) & steps["compiled"].to_numpy(bool)
        return max(0.0, float(extra.sum() + (steps["seconds"][is_late] - step).sum()))

    def last_evaluation(self, column: str) -> float | None:
        return (
            None
            if self.learning.evaluations.empty
            else number(self.learning.evaluations[column].iloc[-1])
        )


def known(values: pd.Series) -> NDArray[np.float64]:
    """The numbers of a column that are not missing."""
    numbers: NDArray[np.float64] = values.to_numpy(float)
    return numbers[~np.isnan(numbers)]


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
    return [control for control in controls if not RunState(control.state).ended_early] or [
        *controls
    ]


def of_role(runs: Iterable[_Run], role: Role) -> _Run | None:
    """The first run with a role; None if there is none, for example if its folder is missing."""
    return next((run for run in runs if run.role == role), None)
