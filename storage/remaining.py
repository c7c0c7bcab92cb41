"""Estimates the remaining time of an experiment from its own times and those of earlier ones.

Runs take turns, so their remaining times add up: setting up, steps, compiling for training and for
evaluation, evaluations, profiles, checks and the end. If a run has not measured a part yet, the
time comes from an earlier experiment with the same model on the same machine, or else from the
other runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TypeVar

import pandas as pd

from breakeven.runner.protocol.states import ExperimentState, RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage import queries
from breakeven.storage.index.store import Store

Number = TypeVar("Number", int, float)

MAX_EARLIER = 5
"""Number of earlier experiments that are examined."""
MAX_OVERHEAD = 1.5
"""Largest wall time of turns over that of their steps and evaluations; more is a pause."""
FORWARD_SHARE = 0.35
"""Time of a forward pass over that of a training step with the same number of samples."""
EVALUATION_COMPILE_SHARE = 0.2
"""Time of compiling the forward pass of evaluation over that of compiling a training step."""
LEFT_WHEN_OVERDUE = 0.1
"""Share of the expected compile time that remains if compiling takes longer than expected."""
GUESSED_COMPILING = {1: 1.0, 2: 4.0, 3: 12.0}
"""Compile time over the time of setting up, by `Arm.compile_effort`, while nothing is known;
both are work of Python and compilers on the same CPUs."""
GUESSED_PROFILED_STEP = 20.0
"""Time of a profiled step, with its turn and analysis, over that of a usual step."""
GUESSED_CHECK = 15.0
"""Time of the check of a backend's random numbers, in steps."""
GUESSED_CLOSING = 0.2
"""Time of the end of the processes over that of setting up, while nothing is known."""


@dataclass(frozen=True, kw_only=True)
class RunCosts:
    """A row of `queries.costs`; None means unknown."""

    label: str
    role: str
    state: str = RunState.QUEUED
    started: float | None = None
    ended: float | None = None
    first_turn: float | None = None
    worked_until: float | None = None
    checked_until: float | None = None
    profiling_seconds: float = 0.0
    checking_seconds: float = 0.0
    num_steps: int | None = None
    """The planned number of steps; None for a script that has not reported it."""
    steps: int = 0
    seconds_of_steps: float = 0.0
    step_seconds: float | None = None
    first_step_seconds: float | None = None
    compile_seconds: float | None = None
    seconds_of_evaluations: float = 0.0
    evaluations: int = 0
    evaluation_seconds: float | None = None
    compiled_evaluations: int = 0
    first_compiled_evaluation_seconds: float | None = None
    compiled_evaluation_seconds: float | None = None

    @property
    def is_active(self) -> bool:
        return RunState(self.state).is_active

    @property
    def evaluation_compile_share(self) -> float | None:
        """Extra time of the first evaluation under the backend, over the compile time for
        training."""
        first = self.first_compiled_evaluation_seconds
        usual = self.compiled_evaluation_seconds or self.evaluation_seconds
        if first is None or usual is None or not self.compile_seconds:
            return None
        return max(0.0, first - usual) / self.compile_seconds


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The settings of an experiment, and the times of its runs so far."""

    name: str
    spec: ExperimentSpec
    runs: tuple[RunCosts, ...]
    experiment_id: str | None = None
    """None for an experiment that was never submitted."""

    def run_costs(self, label: str) -> RunCosts | None:
        return next((run for run in self.runs if run.label == label), None)

    @cached_property
    def efforts(self) -> dict[str, int]:
        """`Arm.compile_effort` by label."""
        return {arm.label: arm.compile_effort for arm in self.spec.possible_arms}

    @property
    def racing_since(self) -> float | None:
        """When all runs had set up; compiling runs wait until then for their first turn."""
        turns = [
            (self.efforts[run.label] == 0, run.first_turn)
            for run in self.runs
            if run.first_turn is not None
        ]
        compiling = [turn for compiles_nothing, turn in turns if not compiles_nothing]
        if compiling:
            return min(compiling)
        everyone = len(turns) == len(self.runs)
        return max(turn for _, turn in turns) if turns and everyone else None

    @property
    def setup_seconds(self) -> float | None:
        """Seconds from the start of the first process until all runs had set up."""
        starts = [run.started for run in self.runs if run.started is not None]
        since = self.racing_since
        return max(0.0, since - min(starts)) if starts and since is not None else None

    @property
    def closing_seconds(self) -> float | None:
        """The longest time, in seconds, from the last measurement, profile or check of a run to the
        end of its process."""
        ends = [(run.ended, run.checked_until or run.worked_until) for run in self.runs]
        spans = [ended - until for ended, until in ends if ended is not None and until is not None]
        return max(0.0, *spans) if spans else None

    @property
    def overhead(self) -> float:
        """Wall time of all turns over the time of their steps and evaluations."""
        since = self.racing_since
        ends = [run.worked_until for run in self.runs if run.worked_until is not None]
        measured = sum(run.seconds_of_steps + run.seconds_of_evaluations for run in self.runs)
        if since is None or not ends or measured <= 0:
            return 1.0
        return min(MAX_OVERHEAD, max(1.0, (max(ends) - since) / measured))


def costs_of(store: Store, experiment_id: str) -> Costs:
    """The costs of an experiment so far; raises `NotInStore`."""
    spec = queries.experiment_spec(store, experiment_id)
    rows = queries.costs(store, experiment_id).to_dict("records")
    known = [{str(k): v for k, v in row.items() if not pd.isna(v)} for row in rows]
    runs = tuple(RunCosts(**row) for row in known)
    return Costs(name=spec.name, spec=spec, runs=runs, experiment_id=experiment_id)


def earlier_costs(store: Store, spec: ExperimentSpec, device_name: str | None) -> list[Costs]:
    """Costs of the newest finished experiments with this model, scenario and machine, the most
    similar workload first."""
    listed = queries.list_experiments(store)
    alike = listed[
        (listed["state"] == ExperimentState.FINISHED)
        & (listed["origin"] == "local")
        & (listed["model"] == spec.model.source)
        & (listed["device"] == spec.device)
    ]
    if device_name is not None:
        alike = alike[alike["device_name"] == device_name]
    ids = list(map(str, alike["experiment_id"].head(MAX_EARLIER)))
    similar = [
        costs
        for costs in (costs_of(store, id) for id in ids)
        if costs.spec.scenario == spec.scenario
    ]
    return sorted(similar, key=lambda costs: num_differences(costs.spec, spec))


def num_differences(spec: ExperimentSpec, other: ExperimentSpec) -> int:
    """Number of differences in the settings that affect the time of a step most."""
    return (
        (spec.training.batch_size != other.training.batch_size)
        + (spec.data.sequence_length != other.data.sequence_length)
        + (spec.training.precision != other.training.precision)
        + (spec.cpu_threads != other.cpu_threads)
        + (spec.script.arguments != other.script.arguments)
    )


def expected_seconds(spec: ExperimentSpec, earlier: Sequence[Costs]) -> float | None:
    """Expected seconds of an experiment that has not begun; None without an earlier one."""
    return remaining_seconds(_not_begun(spec), earlier, now=0.0)


def never_compiled(spec: ExperimentSpec, earlier: Sequence[Costs]) -> list[str]:
    """Labels of the backends with unknown compile time, for an experiment that has not begun."""
    costs = _not_begun(spec)
    works = {run.label: _Work(costs, earlier, run) for run in costs.runs}
    return [label for label, work in works.items() if work.compiling_is_unknown]


def _not_begun(spec: ExperimentSpec) -> Costs:
    runs = tuple(RunCosts(label=arm.label, role=arm.role) for arm in spec.arms)
    return Costs(name=spec.name, spec=spec, runs=runs)


def remaining_seconds(
    costs: Costs,
    earlier: Sequence[Costs],
    now: float,
    compiling: Mapping[str, float] | None = None,
    guess: bool = False,
) -> float | None:
    """Remaining wall time in seconds; None while the time of a step or of coming compilations is
    unknown, because compiling may take most of the time.

    `now` is in seconds since the epoch; `compiling` has by label the seconds since a run received
    the turn, in which it compiles if necessary. In the scenario `speed` the result is the maximum.
    `guess`: estimates unknown times of compiling, profiles, checks and the end as multiples of the
    time of setting up or of steps, accurate enough for a progress bar.
    """
    if (budget := costs.spec.kind.budget_seconds(costs.spec)) is not None:
        return _budget_left(costs, budget, now)
    left = _setup_left(costs, earlier, now)
    overhead = costs.overhead if costs.overhead > 1 else earlier[0].overhead if earlier else 1.0
    for run in costs.runs:
        if run.is_active:
            work = _Work(costs, earlier, run, guess)
            turns = work.left((compiling or {}).get(run.label, 0.0))
            if turns is None:
                return None
            left += overhead * turns + work.after_steps()
    if any(run.is_active for run in costs.runs):
        closing = _first(costs.closing_seconds for costs in earlier)
        guessed = GUESSED_CLOSING * (costs.setup_seconds or 0.0) * guess
        left += guessed if closing is None else closing
    return left


def _budget_left(costs: Costs, seconds: float, now: float) -> float:
    """The rest of the time budget, which is the maximum."""
    starts = [run.started for run in costs.runs if run.started is not None]
    return max(0.0, seconds - (now - min(starts) if starts else 0.0))


def _first(values: Iterable[Number | None]) -> Number | None:
    return next((value for value in values if value is not None), None)


def _setup_left(costs: Costs, earlier: Sequence[Costs], now: float) -> float:
    """Seconds until all runs have set up: processes start in parallel, or one after the other."""
    waiting = [run for run in costs.runs if run.is_active and run.first_turn is None]
    setup = _first(experiment.setup_seconds for experiment in (costs, *earlier)) or 0.0
    if not costs.spec.takes_turns:
        return len(waiting) * setup
    if costs.racing_since is not None:
        return 0.0
    starts = [run.started for run in costs.runs if run.started is not None]
    return max(0.0, setup - (now - min(starts) if starts else 0.0))


class _Work:
    """Remaining work of one run, each part estimated from the best known time."""

    def __init__(
        self, costs: Costs, earlier: Sequence[Costs], run: RunCosts, guess: bool = False
    ) -> None:
        self._costs = costs
        self._spec = costs.spec
        self._earlier = earlier
        self._run = run
        self._effort = costs.efforts[run.label]
        self._guess = guess

    def left(self, compiling_for: float) -> float | None:
        """Remaining seconds. None while the time of a step or of future compiling is unknown, and
        for a script that never finished and has not reported its number of steps."""
        step, num_steps = self._step_seconds(), self._num_steps
        if step is None or num_steps is None or self.compiling_is_unknown:
            return None
        steps = max(0, num_steps - self._run.steps) * step
        compiling = [part for part in self._compiling() if part > 0]
        if compiling and compiling_for:
            compiling[0] = max(compiling[0] - compiling_for, LEFT_WHEN_OVERDUE * compiling[0])
        return steps + sum(compiling) + self._evaluations(step)

    def after_steps(self) -> float:
        """Remaining seconds of profiles and checks: the expected time, at least that of any other
        run of this experiment, minus this run's time so far."""
        spec, step = self._spec, self._step_seconds() or 0.0
        profiled = spec.profile_steps * spec.profiles * GUESSED_PROFILED_STEP * step
        checks = spec.kind.trains_fully and self._run.role == "backend"
        return self._part_left(lambda run: run.profiling_seconds, profiled) + self._part_left(
            lambda run: run.checking_seconds, checks * GUESSED_CHECK * step
        )

    def _part_left(self, part: Callable[[RunCosts], float], guessed: float) -> float:
        before = (costs.run_costs(self._run.label) for costs in self._earlier)
        known = next((part(run) for run in before if run is not None), None)
        if known is None:
            here = [
                part(run) for run in self._costs.runs if run.role == self._run.role and part(run)
            ]
            known = max([guessed * self._guess, *here])
        return max(0.0, known - part(self._run))

    @property
    def _num_steps(self) -> int | None:
        """The specified number. For a script: the reported number, or that of an earlier run, which
        takes precedence if a number is specified."""
        specified = self._spec.num_steps
        if self._spec.workload.has_known_length:
            return self._run.num_steps or specified
        reported = (run.num_steps for run in (self._run, *self._costs.runs))
        made = (run.steps or None for costs in self._earlier for run in costs.runs)
        known = _first([*made, *reported] if specified else [*reported, *made])
        return min(specified, known or specified) if specified else known

    def _step_seconds(self) -> float | None:
        """Time of a step, from the first available source: the run's steady steps; those of the
        same label in an earlier experiment with a known pace; the run's first steps, which are
        slow; any other known steps."""
        if self._run.step_seconds is not None:
            return self._run.step_seconds
        of_its_name = [
            (earlier_run.step_seconds, self._pace(costs))
            for costs in self._earlier
            if (earlier_run := costs.run_costs(self._run.label))
            and earlier_run.step_seconds is not None
        ]
        sure = (step * pace for step, pace in of_its_name if pace is not None)
        likely = (step for step, _ in of_its_name)
        others = (
            run.step_seconds or run.first_step_seconds
            for costs in (self._costs, *self._earlier)
            for run in costs.runs
        )
        return _first([*sure, self._run.first_step_seconds, *likely, *others])

    def _pace(self, earlier: Costs) -> float | None:
        """Step time here over that in an earlier experiment, from runs timed in both; without such
        a run 1 for the same workload, else None."""
        ratios = [
            run.step_seconds / other.step_seconds
            for run in self._costs.runs
            if run.step_seconds and (other := earlier.run_costs(run.label)) and other.step_seconds
        ]
        if ratios:
            return median(ratios)
        return None if num_differences(earlier.spec, self._spec) else 1.0

    @property
    def compiling_is_unknown(self) -> bool:
        return bool(self._effort) and not self._run.steps and self._training_compile is None

    @property
    def _training_compile(self) -> float | None:
        known = self._likely(lambda run: run.compile_seconds)
        setup = self._costs.setup_seconds
        if known is None and self._guess and setup is not None:
            return GUESSED_COMPILING[self._effort] * setup
        return known

    def _compiling(self) -> Iterator[float]:
        """Remaining compile times: for training, then for evaluation."""
        if not self._effort:
            return
        training = self._training_compile or 0.0
        if not self._run.steps:
            yield training
        if self._compiled_evaluations_left and not self._run.compiled_evaluations:
            # Load on the machine changes both times alike, so a share is a good estimate.
            share = self._likely(lambda run: run.evaluation_compile_share)
            yield (EVALUATION_COMPILE_SHARE if share is None else share) * training

    def _likely(self, part: Callable[[RunCosts], float | None]) -> float | None:
        """A time of compiling, from the first available source: this run, an earlier one with its
        label, runs here and then in earlier experiments with equal or else with more effort."""
        same = (self._run, *(costs.run_costs(self._run.label) for costs in self._earlier))
        others = [
            (costs.efforts[run.label], run)
            for costs in (self._costs, *self._earlier)
            for run in costs.runs
        ]
        alike = (run for effort, run in others if effort == self._effort)
        more = (run for effort, run in others if effort > self._effort)
        return _first(part(run) for run in (*same, *alike, *more) if run is not None)

    @property
    def _compiled_evaluations_left(self) -> int:
        if not self._spec.evaluation.compiled or self._run.role != "backend":
            return 0
        return max(0, self._spec.num_evaluations - self._run.compiled_evaluations)

    def _evaluations(self, step: float) -> float:
        left = max(0, self._spec.num_evaluations - self._run.evaluations)
        plain = self._evaluation_seconds(step)
        compiled = self._run.compiled_evaluation_seconds or plain
        return left * plain + self._compiled_evaluations_left * compiled

    def _evaluation_seconds(self, step: float) -> float:
        """Seconds without a compiler: of any run here, or of an earlier one scaled by samples."""
        own = (self._run, *self._costs.runs)
        known = next((run.evaluation_seconds for run in own if run.evaluation_seconds), None)
        if known is not None:
            return known
        samples = _num_evaluated(self._spec)
        for costs in self._earlier:
            seconds = [run.evaluation_seconds for run in costs.runs if run.evaluation_seconds]
            if seconds and _num_evaluated(costs.spec):
                return (
                    median(seconds)
                    * samples
                    / _num_evaluated(costs.spec)
                    * (self._pace(costs) or 1.0)
                )
        per_step = self._spec.training.batch_size * self._spec.batches_per_step
        return FORWARD_SHARE * step * samples / per_step


def _num_evaluated(spec: ExperimentSpec) -> int:
    """Samples of one evaluation, over all its splits."""
    sizes = {
        "train": spec.data.num_train_samples,
        "validation": spec.data.num_eval_samples,
        "test": spec.data.num_test_samples or spec.data.num_eval_samples,
    }
    return sum(sizes[split] for split in spec.evaluation.splits)
