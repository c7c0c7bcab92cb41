"""How long an experiment still takes, by what it has measured and what earlier ones took: until the
first turn, for steps, compiling, evaluations, profiles, checks, and the end.

Its runs take turns, so their times add up: steps to come, evaluations to come, compiling to come,
for training and for evaluation, and profiles and checks to come. What a run has not measured yet is
taken from an earlier experiment with the same model on the same machine; without one, from the
other runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TypeVar

import pandas as pd

from breakeven.runner.folders.states import ExperimentState, RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage import queries
from breakeven.storage.index.store import Store

Number = TypeVar("Number", int, float)

MAX_EARLIER = 5
"""Experiments that are looked into for one of the same backend."""
MAX_OVERHEAD = 1.5
"""Wall time of turns over that of their steps and evaluations; more is a pause, no overhead."""
FORWARD_SHARE = 0.35
"""Of a training step, that a forward pass of as many samples takes."""
EVALUATION_COMPILE_SHARE = 0.2
"""Of compiling a training step, that compiling the forward pass of evaluation takes."""
LEFT_WHEN_OVERDUE = 0.1
"""Of what compiling was expected to take, that is left once it has taken longer than that."""
GUESSED_COMPILING = {1: 1.0, 2: 4.0, 3: 12.0}
"""By `Variant.compile_effort`: how many times the setting up of runs compiling takes, where nothing
is known of it yet; both are work of Python and of compilers on the same CPUs."""
GUESSED_PROFILED_STEP = 20.0
"""How many times a step a profiled one takes, its turn and its evaluation included."""
GUESSED_CHECK = 15.0
"""How many steps the check of a backend's random numbers takes as long as."""
GUESSED_CLOSING = 0.2
"""Of setting up, that the end of the processes takes, likewise."""


@dataclass(frozen=True, kw_only=True)
class RunCosts:
    """A row of `queries.costs`; what is not known is None."""

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
    compiled_steps: int = 0
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
        """What the first evaluation under the backend took longer than others, over what compiling
        took for training."""
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
    """None of one that was never submitted."""

    def of(self, label: str) -> RunCosts | None:
        return next((run for run in self.runs if run.label == label), None)

    @cached_property
    def efforts(self) -> dict[str, int]:
        """`Variant.compile_effort` by label."""
        return {one.label: one.compile_effort for one in self.spec.possible_variants}

    @property
    def racing_since(self) -> float | None:
        """When all had set up: for that those that compile wait with their first turn."""
        turns = [(self.efforts[run.label] == 0, run.first_turn) for run in self.runs
                 if run.first_turn is not None]  # fmt: skip
        compiling = [turn for compiles_nothing, turn in turns if not compiles_nothing]
        if compiling:
            return min(compiling)
        everyone = len(turns) == len(self.runs)
        return max(turn for _, turn in turns) if turns and everyone else None

    @property
    def setup_seconds(self) -> float | None:
        """From the start of the first process until all had set up."""
        starts = [run.started for run in self.runs if run.started is not None]
        since = self.racing_since
        return max(0.0, since - min(starts)) if starts and since is not None else None

    @property
    def closing_seconds(self) -> float | None:
        """From the last that a run measured, profiled or checked to the end of its process, at
        most."""
        ends = [(run.ended, run.checked_until or run.worked_until) for run in self.runs]
        spans = [ended - until for ended, until in ends if ended is not None and until is not None]
        return max(0.0, *spans) if spans else None

    @property
    def overhead(self) -> float:
        """Wall time of all turns over that of their steps and evaluations."""
        since = self.racing_since
        ends = [run.worked_until for run in self.runs if run.worked_until is not None]
        measured = sum(run.seconds_of_steps + run.seconds_of_evaluations for run in self.runs)
        if since is None or not ends or measured <= 0:
            return 1.0
        return min(MAX_OVERHEAD, max(1.0, (max(ends) - since) / measured))


def costs_of(store: Store, experiment_id: str) -> Costs:
    """Raises `NotInStore`."""
    spec = queries.experiment_spec(store, experiment_id)
    rows = queries.costs(store, experiment_id).to_dict("records")
    known = [{str(k): v for k, v in row.items() if not pd.isna(v)} for row in rows]
    runs = tuple(RunCosts(**row) for row in known)
    return Costs(name=spec.name, spec=spec, runs=runs, experiment_id=experiment_id)


def earlier_costs(store: Store, spec: ExperimentSpec, device_name: str | None) -> list[Costs]:
    """Of the newest experiments of this model, scenario and machine that finished, those of the
    most similar work first."""
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
    found = [one for one in (costs_of(store, id) for id in ids)
             if one.spec.scenario == spec.scenario]  # fmt: skip
    return sorted(found, key=lambda one: num_differences(one.spec, spec))


def num_differences(one: ExperimentSpec, other: ExperimentSpec) -> int:
    """Of what the time of a step depends on most."""
    return (
        (one.training.batch_size != other.training.batch_size)
        + (one.data.sequence_length != other.data.sequence_length)
        + (one.training.precision != other.training.precision)
        + (one.cpu_threads != other.cpu_threads)
        + (one.script.arguments != other.script.arguments)
    )


def expected_seconds(spec: ExperimentSpec, earlier: Sequence[Costs]) -> float | None:
    """How long an experiment takes that has not begun; None without an earlier one."""
    return remaining_seconds(_not_begun(spec), earlier, now=0.0)


def never_compiled(spec: ExperimentSpec, earlier: Sequence[Costs]) -> list[str]:
    """Labels of the backends of an experiment that has not begun, of which no earlier one tells how
    long they compile."""
    costs = _not_begun(spec)
    works = {run.label: _Work(costs, earlier, run) for run in costs.runs}
    return [label for label, work in works.items() if work.compiling_is_unknown]


def _not_begun(spec: ExperimentSpec) -> Costs:
    runs = tuple(RunCosts(label=one.label, role=one.role) for one in spec.variants)
    return Costs(name=spec.name, spec=spec, runs=runs)


def remaining_seconds(
    costs: Costs,
    earlier: Sequence[Costs],
    now: float,
    compiling: Mapping[str, float] | None = None,
    guess: bool = False,
) -> float | None:
    """Wall time that is still to come; None while nothing tells how long a step takes, or what
    compiling ahead takes, which may be most of it.

    `now` is in seconds since the epoch; `compiling` has, by label, for how many seconds a run has
    had the turn, in which it compiles if it has to. In the scenario `speed` it is the most that it
    can take. `guess`: compiling, profiles, checks and the end, of which nothing is known, count as
    many times as long as setting up or as steps, which is good enough for a bar.
    """
    if costs.spec.kind.searches:
        return _search_left(costs, now)
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
        closing = _first(one.closing_seconds for one in earlier)
        left += _guessed_closing(costs) * guess if closing is None else closing
    return left


def _search_left(costs: Costs, now: float) -> float:
    """At most: of its budget."""
    starts = [run.started for run in costs.runs if run.started is not None]
    return max(0.0, costs.spec.tune.max_seconds - (now - min(starts) if starts else 0.0))


def _guessed_closing(costs: Costs) -> float:
    return GUESSED_CLOSING * (costs.setup_seconds or 0.0)


def _first(values: Iterable[Number | None]) -> Number | None:
    return next((value for value in values if value is not None), None)


def _setup_left(costs: Costs, earlier: Sequence[Costs], now: float) -> float:
    """Until all have set up: processes start side by side, or each when its time comes."""
    waiting = [run for run in costs.runs if run.is_active and run.first_turn is None]
    setup = _first(one.setup_seconds for one in (costs, *earlier)) or 0.0
    if not costs.spec.takes_turns:
        return len(waiting) * setup
    if costs.racing_since is not None:
        return 0.0
    starts = [run.started for run in costs.runs if run.started is not None]
    return max(0.0, setup - (now - min(starts) if starts else 0.0))


class _Work:
    """What one run has still to do, each part by the best that is known of it."""

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
        """Seconds. None while the time of a step or of future compiling is unknown, and for a
        script that never ran to its end and has not reported its number of steps."""
        step, num_steps = self._step_seconds(), self._num_steps
        if step is None or num_steps is None or self.compiling_is_unknown:
            return None
        steps = max(0, num_steps - self._run.steps) * step
        compiling = [part for part in self._compiling() if part > 0]
        if compiling and compiling_for:
            compiling[0] = max(compiling[0] - compiling_for, LEFT_WHEN_OVERDUE * compiling[0])
        return steps + sum(compiling) + self._evaluations(step)

    def after_steps(self) -> float:
        """Seconds of profiles and checks to come. What they took in this run so far is no longer
        to come; what a run of this experiment took is the least that they are expected to."""
        spec, step = self._spec, self._step_seconds() or 0.0
        profiled = spec.profile_steps * spec.profiles * GUESSED_PROFILED_STEP * step
        checks = spec.kind.trains_fully and self._run.role == "backend"
        return (
            self._part_left(lambda run: run.profiling_seconds, profiled)
            + self._part_left(lambda run: run.checking_seconds, checks * GUESSED_CHECK * step)
        )  # fmt: skip

    def _part_left(self, part: Callable[[RunCosts], float], guessed: float) -> float:
        before = (one.of(self._run.label) for one in self._earlier)
        known = next((part(run) for run in before if run is not None), None)
        if known is None:
            here = [part(run) for run in self._costs.runs
                    if run.role == self._run.role and part(run)]  # fmt: skip
            known = max([guessed * self._guess, *here])
        return max(0.0, known - part(self._run))

    @property
    def _num_steps(self) -> int | None:
        """The specified number. For a script: the number that it reports, or made earlier; an
        earlier run with the same arguments takes precedence."""
        specified = self._spec.num_steps
        if not self._spec.is_script:
            return specified
        reported = (run.num_steps for run in (self._run, *self._costs.runs))
        made = (run.steps or None for one in self._earlier for run in one.runs)
        known = _first([*made, *reported] if specified else [*reported, *made])
        return min(specified, known or specified) if specified else known

    def _step_seconds(self) -> float | None:
        """By its steady steps; by those of its name in an experiment of the same work, or of which
        it is known how many times longer steps take here; by its first steps, which are slow; by
        whatever else is known."""
        if self._run.step_seconds is not None:
            return self._run.step_seconds
        of_its_name = [
            (found.step_seconds, self._pace(one))
            for one in self._earlier
            if (found := one.of(self._run.label)) and found.step_seconds is not None
        ]
        sure = (step * pace for step, pace in of_its_name if pace is not None)
        likely = (step for step, _ in of_its_name)
        others = (run.step_seconds or run.first_step_seconds
                  for one in (self._costs, *self._earlier) for run in one.runs)  # fmt: skip
        return _first([*sure, self._run.first_step_seconds, *likely, *others])

    def _pace(self, earlier: Costs) -> float | None:
        """How many times longer a step takes here than in an earlier experiment, by the runs that
        both timed; without one, 1 for the same work, else None."""
        ratios = [
            run.step_seconds / other.step_seconds
            for run in self._costs.runs
            if run.step_seconds and (other := earlier.of(run.label)) and other.step_seconds
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
        """For training, then for evaluation."""
        if not self._effort:
            return
        training = self._training_compile or 0.0
        if not self._run.steps:
            yield training
        if self._compiled_evaluations_left and not self._run.compiled_evaluations:
            # How busy the machine is changes both alike, so the one tells of the other.
            share = self._likely(lambda run: run.evaluation_compile_share)
            yield (EVALUATION_COMPILE_SHARE if share is None else share) * training

    def _likely(self, part: Callable[[RunCosts], float | None]) -> float | None:
        """What compiling takes: by this run, by an earlier one of its name, by others that compile
        as much, of this experiment and then of earlier ones, and by those that compile more."""
        same = (self._run, *(one.of(self._run.label) for one in self._earlier))
        others = [(one.efforts[run.label], run) for one in (self._costs, *self._earlier)
                  for run in one.runs]  # fmt: skip
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
        """Without a compiler: the same work in every run, and as many samples in an earlier one."""
        own = (self._run, *self._costs.runs)
        known = next((run.evaluation_seconds for run in own if run.evaluation_seconds), None)
        if known is not None:
            return known
        samples = _num_evaluated(self._spec)
        for one in self._earlier:
            found = [run.evaluation_seconds for run in one.runs if run.evaluation_seconds]
            if found and _num_evaluated(one.spec):
                return median(found) * samples / _num_evaluated(one.spec) * (self._pace(one) or 1.0)
        per_step = self._spec.training.batch_size * self._spec.batches_per_step
        return FORWARD_SHARE * step * samples / per_step


def _num_evaluated(spec: ExperimentSpec) -> int:
    """Samples of one evaluation, over all its splits."""
    sizes = {"train": spec.data.num_train_samples, "validation": spec.data.num_eval_samples,
             "test": spec.data.num_test_samples or spec.data.num_eval_samples}  # fmt: skip
    return sum(sizes[split] for split in spec.evaluation.splits)
