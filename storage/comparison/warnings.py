"""Warnings of a comparison, the gravest first.

A warning is a class: its fields are the fact, `find` finds it, `sentence` says it and `remedy` what
helps. A new one is a class here and an entry in `WARNINGS`; `device_warnings` has those about the
device.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal, Self

import numpy as np
import pandas as pd

from breakeven.runner.experiments.added_rounds import NOT_ADDED
from breakeven.runner.protocol.states import RunState, state_words
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.texts import listed, printable
from breakeven.storage.comparison.evidence import Evidence, number, of_role
from breakeven.storage.comparison.pairs import SIZES, unequal_blocks
from breakeven.storage.numbers.formats import count_of
from breakeven.storage.numbers.sentences import (
    Figure,
    Sentence,
    Words,
    figure,
    first_few,
    joined,
    recorded,
    recorded_clause,
    say,
)
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.statistics.speedups import MIN_MARGIN, Ratio

Severity = Literal["serious", "minor"]
"""A serious warning casts doubt on numbers, a minor one explains them."""
OWN_FOLDER_SUFFIX = "_DIR"
"""Suffix of environment variables that point into the run's own folder, and so differ."""
OPERATOR = re.compile(r"\baten\.\w+")
"""An operator of torch in the compiler's reason for giving up."""
OUTDATED_NOTE = "in their private pools; see the reserved memory instead."
"""End of a note in journals until version 0.1: the memory needed now includes these pools."""
LONGEST_NOTE = 300
"""Characters shown of a text that a process recorded; an unknown author may have written it."""
MAX_VALUE = 60
"""Largest number of characters of a setting's value that is not shortened."""
WORKLOAD_FIELDS = {
    "weights_sha256": "initial weights",
    "data_sha256": "samples or their order",
    "code_sha256": "the script and its files",
    "num_parameters": "number of parameters",
    "samples_per_step": "samples per step",
}
ENDED = {
    RunState.FAILED: "failed",
    RunState.CANCELLED: "was stopped",
    RunState.TIMEOUT: "was stopped by its time limit",
    RunState.OUT_OF_MEMORY: "ran out of memory",
    RunState.LOST: "was lost",
    RunState.FINISHED: "has its last finite loss",
}


@dataclass(frozen=True)
class Measured:
    """What the runs of an environment recorded, and what is computed of it."""

    spec: ExperimentSpec
    processes: Sequence[Evidence]
    runs: Sequence[Evidence]
    """The `processes` with repeats pooled; without repeats the two are the same."""
    speedups: Sequence[Ratio | None]
    """Of each run."""
    noise_floor: float | None

    @property
    def baseline(self) -> Evidence | None:
        return of_role(self.runs, "baseline")

    @property
    def lengths(self) -> dict[str, int]:
        """The number of steps of each finished run in batches of the same size, by label."""
        return {
            run.label: len(run.steps)
            for run in self.processes
            if run.state is RunState.FINISHED and run.batch_times == 1
        }

    @property
    def has_different_lengths(self) -> bool:
        return len(set(self.lengths.values())) > 1


def kind_of(kind: type) -> str:
    """`few rounds` of the class `FewRounds`."""
    return re.sub(r"\B([A-Z])", r" \1", kind.__name__).lower()


@dataclass(frozen=True, kw_only=True)
class ComparisonWarning(ABC):
    """A fact that casts doubt on numbers of a comparison, or explains them."""

    severity: Severity = "serious"

    @property
    def kind(self) -> str:
        """The name of the class in words."""
        return kind_of(type(self))

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        """The warnings of this class."""
        yield from ()

    @abstractmethod
    def sentence(self) -> Sentence:
        """The fact."""

    def remedy(self) -> str:
        """What helps; empty where nothing does, or where the fact says so."""
        return ""

    def words(self) -> Sentence:
        """The fact and what helps."""
        remedy = self.remedy()
        return say(self.sentence(), f" {remedy}" if remedy else "")


@dataclass(frozen=True, kw_only=True)
class MissingRuns(ComparisonWarning):
    """Planned runs of the experiment without a readable folder; `find_missing` finds them."""

    labels: tuple[str, ...]
    lacks_baseline: bool

    def sentence(self) -> Sentence:
        rest = " Nothing can be compared with that baseline." if self.lacks_baseline else ""
        runs = ", ".join(self.labels)
        return say(f"Runs whose folder is missing or unreadable have no numbers: {runs}.{rest}")


def find_missing(spec: ExperimentSpec, processes: Sequence[Evidence]) -> Iterator[MissingRuns]:
    """The planned runs that are not among the processes of all environments."""
    labels = {run.label for run in processes}
    missing = [variant for variant in spec.variants if variant.label not in labels]
    if missing:
        yield MissingRuns(
            labels=tuple(variant.label for variant in missing),
            lacks_baseline=any(variant.role == "baseline" for variant in missing),
        )


@dataclass(frozen=True, kw_only=True)
class RoundsNotAdded(ComparisonWarning):
    """Runs to which rounds should have been added, and why they were not."""

    labels: tuple[str, ...]
    reason: str

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        labels_by_reason: dict[str, list[str]] = {}
        for run in measured.processes:
            if run.reason is not None and run.reason.startswith(NOT_ADDED):
                reason = run.reason.removeprefix(f"{NOT_ADDED}: ")
                labels_by_reason.setdefault(reason, []).append(run.label)
        for reason, labels in labels_by_reason.items():
            yield cls(labels=tuple(labels), reason=reason)

    def sentence(self) -> Sentence:
        runs = ", ".join(self.labels)
        return say(f"Adding rounds to {runs} ended early: ", recorded_clause(self.reason), ".")


@dataclass(frozen=True, kw_only=True)
class EndedEarly(ComparisonWarning):
    """A run that did not reach its end."""

    run: str
    role: str
    state: RunState
    reason: str | None
    steps_done: int
    num_steps: int
    """0 if it is not known."""
    num_rounds: int | None = None
    """Rounds that are compared nonetheless; None where none are."""

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        spec = measured.spec
        rounds = {
            run.label: 0 if ratio is None else ratio.n
            for run, ratio in zip(measured.runs, measured.speedups, strict=True)
        }
        for run in measured.processes:
            # A search ends candidates itself; another warning says why.
            is_dropped = (
                spec.kind.has_candidates and run.role == "backend" and run.state.is_cancelled
            )
            if not run.state.ended_early or is_dropped:
                continue
            num_rounds = None
            if spec.kind.has_speedups and run.label in rounds:  # no repeat of several
                counts = [rounds[run.label]] if run.role == "backend" else rounds.values()
                num_rounds = max(counts)
            yield cls(
                run=run.label,
                role=run.role,
                state=run.state,
                reason=run.reason,
                steps_done=len(run.steps),
                num_steps=run.num_steps,
                num_rounds=num_rounds,
            )

    def sentence(self) -> Sentence:
        return say(
            f"{self.run} ",
            ending_words(self.state, self.steps_done, self.num_steps),
            *((": ", recorded_clause(self.reason)) if self.reason else ()),
            ".",
            *self._measured(),
        )

    def _measured(self) -> Iterator[Words]:
        """The part of the run's speed that was measured before its end."""
        rounds = self.num_rounds
        if rounds is None or self.role == "control" or not self.steps_done:
            return
        if self.role == "baseline":
            has_rounds = " The other runs are compared with its rounds before that."
            yield has_rounds if rounds else " Nothing can be compared with it."
        elif not rounds:
            yield " Too little was measured before to judge its speed."
        else:
            is_complete = 0 < self.num_steps <= self.steps_done
            yield f" Its speed was measured {'completely' if is_complete else 'before'}, in "
            yield _rounds(rounds)
            yield "."


def ending_words(state: RunState, steps_done: int, num_steps: int) -> Sentence:
    """`failed at step 20 of 50`; `num_steps` is 0 if it is not known."""
    verb = ENDED[state]
    if steps_done == 0:
        return say(f"{verb} before its first step")
    if 0 < num_steps <= steps_done:
        return say(f"{verb} after the last of its ", Figure("num_steps", f"{num_steps} steps"))
    total = f" of {num_steps}" if num_steps else ""
    return say(f"{verb} at ", Figure("num_steps", f"step {steps_done}{total}"))


@dataclass(frozen=True, kw_only=True)
class LossNotFinite(ComparisonWarning):
    """A run with a loss that is infinite or no number, first at this step."""

    run: str
    step: int

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        for run in measured.processes:
            wrong = run.losses.index[~np.isfinite(run.losses)]
            if len(wrong):
                yield cls(run=run.label, step=int(wrong[0]))

    def sentence(self) -> Sentence:
        return say(f"{self.run} has a loss that is not finite, first at ", _step(self.step), ".")


@dataclass(frozen=True, kw_only=True)
class Unfinished(ComparisonWarning):
    """Runs that are not over: the state, the steps done and the planned steps of each."""

    runs: Mapping[str, tuple[str, int, int]]

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        runs = {
            run.label: (str(run.state), len(run.steps), run.num_steps)
            for run in measured.processes
            if not run.state.is_final
        }
        if runs:
            yield cls(runs=runs)

    def sentence(self) -> Sentence:
        runs = []
        for run, (state, done, num_steps) in self.runs.items():
            total = f" of {num_steps:,}" if num_steps else ""
            steps = Figure("num_steps", f"{done:,}{total} steps")
            runs.append(say(f"{run} ({state}, ", steps, ")"))
        return say(
            "The numbers of runs that are not over are preliminary: ", joined(runs, ", "), "."
        )


@dataclass(frozen=True, kw_only=True)
class Stopped(ComparisonWarning):
    """A run that its own rules stopped."""

    run: str
    step: int
    num_steps: int
    reason: str

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        if measured.spec.kind.ends_by_width or measured.spec.kind.has_candidates:
            return
        are_unequal = measured.has_different_lengths
        for run in measured.processes:
            if run.stop is not None:
                yield cls(
                    severity="serious" if are_unequal else "minor",
                    run=run.label,
                    step=run.stop.step,
                    num_steps=run.num_steps,
                    reason=run.stop.reason,
                )

    def sentence(self) -> Sentence:
        step = Figure("num_steps", f"step {self.step} of {self.num_steps}")
        return say(f"{self.run} stopped at ", step, ": ", recorded_clause(self.reason), ".")


@dataclass(frozen=True, kw_only=True)
class DifferentLengths(ComparisonWarning):
    """Finished runs that trained for different numbers of steps, by their own decision."""

    num_steps: Mapping[str, int]
    clock_reads: tuple[str, ...]
    """Where the script reads the clock."""

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        spec, runs = measured.spec, measured.processes
        chose = any(run.stop for run in runs) or not spec.workload.has_known_length
        if spec.kind.trains_fully and measured.has_different_lengths and chose:
            places = dict.fromkeys(place for run in runs for place in run.clock_reads)
            yield cls(num_steps=measured.lengths, clock_reads=tuple(places))

    def sentence(self) -> Sentence:
        groups = [
            say(Figure("num_steps", str(steps)), f" ({', '.join(runs)})")
            for steps, runs in _alike(self.num_steps).items()
        ]
        rest = ""
        if self.clock_reads:
            rest = (
                f" The script reads the clock ({', '.join(self.clock_reads)}): a time budget ends "
                "its runs after as many steps as they make in it."
            )
        return say(
            "The runs trained for different numbers of steps: ",
            joined(groups, ", "),
            ". Their final losses and accuracies belong to trainings of different lengths.",
            rest,
        )


@dataclass(frozen=True, kw_only=True)
class NothingCompiled(ComparisonWarning):
    """Runs of which the compiler compiled nothing, although it gave up nowhere."""

    labels: tuple[str, ...]
    decides_scope: bool
    """Whether a script decides what is compiled."""

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        explained = [run.label for run in _backends(measured) if _gave_up(run)]
        idle = [run.label for run in _backends(measured) if run.is_idle]
        labels = tuple(label for label in idle if label not in explained)
        if labels:
            yield cls(labels=labels, decides_scope=measured.spec.workload.decides_scope)

    def sentence(self) -> Sentence:
        why = "the compiler found nothing in the model that it could capture"
        if self.decides_scope:
            why = "the script never called the compiled object, or the compiler left it alone"
        these = "this run is" if len(self.labels) == 1 else "these runs are"
        runs = ", ".join(self.labels)
        return say(f"Nothing was compiled in {runs}: {why}, so {these} the same as the baseline.")


@dataclass(frozen=True, kw_only=True)
class GivenUpFunction:
    """A function that a compiler gave up on. None means unknown."""

    name: str | None
    place: str | None
    """`train.py:15`, where it gave up; in journals until version 0.1, where the function begins."""
    operator: str | None
    """The operator that could not be traced."""
    is_part: bool
    """Whether some calls of the function are compiled nonetheless."""


@dataclass(frozen=True, kw_only=True)
class CompilerGaveUp(ComparisonWarning):
    """Functions of a run that the compiler left uncompiled, each once."""

    run: str
    functions: tuple[GivenUpFunction, ...]
    reason: str
    """The compiler's, for the first function."""
    is_all: bool
    """Whether nothing else was compiled."""

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        for run in _backends(measured):
            if _gave_up(run):
                failures = run.compiled_frames["failure"].dropna()
                yield cls(
                    run=run.label,
                    functions=tuple(_functions_given_up(run.compiled_frames)),
                    reason=printable(failures.iloc[0].partition("\n")[0]),
                    is_all=run.runs_uncompiled,
                )

    def sentence(self) -> Sentence:
        functions = [
            f"{'some calls of ' if function.is_part else ''}{function.name or 'a function'}"
            f"{f' ({function.place})' if function.place else ''}"
            for function in self.functions
        ]
        rest = " and compiled nothing else" if self.is_all else ""
        return say(
            f"{self.run} runs {first_few(functions)} without a compiler, because the compiler gave "
            f"up there{rest}: {self.reason.rstrip('.')}."
        )


def _backends(measured: Measured) -> list[Evidence]:
    return [run for run in measured.runs if run.role == "backend" and len(run.steps)]


def _gave_up(run: Evidence) -> bool:
    return bool(run.compiled_frames["failure"].notna().any())


def _functions_given_up(frames: pd.DataFrame) -> Iterator[GivenUpFunction]:
    for _, calls in frames.groupby(frames["compile_id"].str.partition("/")[0], sort=False):
        has_failed = calls["failure"].notna()
        if has_failed.any():
            names = calls["function"].dropna()
            failed = calls[has_failed].iloc[0]
            yield GivenUpFunction(
                name=None if names.empty else printable(names.iloc[0]),
                place=_place_given_up(failed, calls),
                operator=_operator_given_up(failed),
                is_part=not has_failed.all(),
            )


def _place_given_up(failed: pd.Series, calls: pd.DataFrame) -> str | None:
    if isinstance(failed["location"], str):
        return printable(PurePath(failed["location"]).name)
    file, line = (calls[name].dropna() for name in ("file", "line"))
    if file.empty or line.empty:
        return None
    return f"{printable(PurePath(file.iloc[0]).name)}:{int(line.iloc[0])}"


def _operator_given_up(failed: pd.Series) -> str | None:
    if isinstance(failed["operator"], str):
        return printable(failed["operator"])
    named = OPERATOR.search(str(failed["failure"]))
    return named and printable(named[0])


@dataclass(frozen=True, kw_only=True)
class CompilesThroughout(ComparisonWarning):
    """A run that compiled until its end, so that it has no steady block."""

    run: str
    is_code: bool
    """Whether it produced new code; if not, it captured CUDA graphs."""
    num_compiled_steps: int
    steps_done: int
    compiled_step_seconds: float | None
    """Duration of a step with compiling in the second half of the run."""
    baseline_step_seconds: float | None

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        baseline = measured.baseline
        for run in _backends(measured):
            if run.never_ceases_to_compile:
                compiled = run.steps[run.steps["compiled"].astype(bool)]
                late = compiled[compiled["step"] >= run.steps["step"].median()]
                frames = run.compiled_frames["step"]
                yield cls(
                    run=run.label,
                    is_code=bool((frames >= late["step"].min()).any()),
                    num_compiled_steps=len(compiled),
                    steps_done=len(run.steps),
                    compiled_step_seconds=number(late["seconds"].median()),
                    baseline_step_seconds=baseline.step_seconds if baseline else None,
                )

    @property
    def is_slow(self) -> bool:
        """Whether its steps take longer than the baseline's."""
        with_compiling, usual = self.compiled_step_seconds, self.baseline_step_seconds
        return bool(with_compiling and usual and with_compiling > usual)

    def sentence(self) -> Sentence:
        usual: tuple[Words, ...] = ()
        if self.baseline_step_seconds:
            usual = (", the baseline's ", figure("step_seconds", self.baseline_step_seconds))
        return say(
            f"{self.run} kept {'compiling code' if self.is_code else 'capturing CUDA graphs'} "
            f"until its end, in {self.num_compiled_steps} of {self.steps_done} steps, so it has no "
            "steady block. With compiling, a step took ",
            figure("step_seconds", self.compiled_step_seconds),
            *usual,
            ".",
        )

    def remedy(self) -> str:
        return "More steps would hardly help."


@dataclass(frozen=True, kw_only=True)
class Resumed(ComparisonWarning):
    """A run that a further process continued from a checkpoint."""

    run: str
    steps: tuple[int, ...]
    """Steps done before each continuation."""
    has_compiled: bool
    """Whether the further process compiled again."""
    moves: tuple[tuple[int, int, int], ...]
    """Continuations on another number of devices: the step, the number before and after."""

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        for run in measured.processes:
            if run.resumed_at:
                yield cls(
                    run=run.label,
                    steps=run.resumed_at,
                    has_compiled=run.has_compiled,
                    moves=run.moved_at,
                )

    def sentence(self) -> Sentence:
        later = "ran in a new process"
        if self.has_compiled:
            later = (
                "compiled again, and compile latency, graph breaks and recompiles count the first "
                "part only"
            )
        moves: tuple[Words, ...] = ()
        if self.moves:
            devices = [
                say("at ", _step(step), f" on {after} instead of {count_of(before, 'device')}")
                for step, before, after in self.moves
            ]
            rest = ": its step time, throughput and memory mix both parts."
            moves = (" It continued ", joined(devices, " and "), rest)
        return say(
            f"{self.run} was resumed at ",
            joined(map(_step, self.steps), " and "),
            f": its later part {later}; rounds that it did without the baseline do not count.",
            *moves,
        )


@dataclass(frozen=True, kw_only=True)
class RepeatedLines(ComparisonWarning):
    """The number of ignored lines in the journal of each run."""

    num_lines: Mapping[str, int]

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        if num_lines := {run.label: run.left_out for run in measured.processes if run.left_out}:
            yield cls(num_lines=num_lines)

    def sentence(self) -> Sentence:
        return say(
            "The journals have lines that do not follow the lines before, for example because a "
            f"journal was copied into itself: {_lines(self.num_lines)}. The numbers leave these "
            "lines out."
        )


@dataclass(frozen=True, kw_only=True)
class MissingLines(ComparisonWarning):
    """The number of lines that the journal of each run lacks."""

    num_lines: Mapping[str, int]

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        if num_lines := {run.label: run.missing for run in measured.processes if run.missing}:
            yield cls(num_lines=num_lines)

    def sentence(self) -> Sentence:
        return say(
            "The journals lack lines that the runs wrote, for example because a disk or a copy "
            f"lost a part: {_lines(self.num_lines)}. All numbers come from the remaining lines."
        )


def _lines(num_lines: Mapping[str, int]) -> str:
    return ", ".join(f"{count_of(count, 'line')} of {run}" for run, count in num_lines.items())


@dataclass(frozen=True, kw_only=True)
class DifferentSetting(ComparisonWarning):
    """A setting that should be equal in all runs, and its value in each; None where it is unset."""

    setting: str
    values: Mapping[str, str | None]

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        prepared = [run for run in measured.processes if run.workload]
        tells_samples = all(run.tells_samples for run in prepared if len(run.steps))
        for field, title in WORKLOAD_FIELDS.items():
            if field == "samples_per_step" and tells_samples:
                continue  # `DifferentSizes` names the rounds.
            values = {
                run.label: run.workload.get(field)
                for run in prepared
                if len(run.steps) or run.workload.get(field) is not None
                if field != "samples_per_step" or run.batch_times == 1
            }
            yield from cls._of_values(title, values)
        settings = {
            run.label: _flat(run.environment) for run in measured.processes if run.environment
        }
        for name in sorted({name for flat in settings.values() for name in flat}):
            values = {label: flat.get(name) for label, flat in settings.items()}
            yield from cls._of_values(name, values)

    @classmethod
    def _of_values(cls, setting: str, by_label: Mapping[str, Any]) -> Iterator[Self]:
        values = {label: None if value is None else str(value) for label, value in by_label.items()}
        if len(set(values.values())) > 1:
            yield cls(setting=setting, values=values)

    def sentence(self) -> Sentence:
        groups = [
            f"{_short(value)} ({', '.join(runs)})" for value, runs in _alike(self.values).items()
        ]
        return say(f"The runs differ in {self.setting}: {', '.join(groups)}.")


def _flat(environment: dict[str, Any]) -> dict[str, Any]:
    """The environment, with package versions and variables as further fields."""
    flat: dict[str, Any] = {}
    for name, value in environment.items():
        if not isinstance(value, dict):
            flat[name] = value
            continue
        prefix = "version of " if name == "versions" else ""
        flat |= {f"{prefix}{key}": entry for key, entry in value.items()}
    return {name: value for name, value in flat.items() if not name.endswith(OWN_FOLDER_SUFFIX)}


def _short(value: str | None) -> str:
    """Shortens a long hash or path to both ends, which identify it."""
    if value is None:
        return "not set"
    return f"{value[:20]}...{value[-20:]}" if len(value) > MAX_VALUE else value


@dataclass(frozen=True, kw_only=True)
class UnequalWork:
    """The rounds in which a script gave a run another amount of work than the baseline."""

    num_rounds: int
    unit: str
    """`samples` or `tokens`."""
    size: float
    """Per step, in the first of these rounds."""
    baseline_size: float


@dataclass(frozen=True, kw_only=True)
class DifferentSizes(ComparisonWarning):
    """Runs with rounds whose times do not compare, because their work differs."""

    runs: Mapping[str, UnequalWork]

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        baseline = measured.baseline
        if baseline is None:
            return
        unequal = {run.label: unequal_blocks(baseline, run) for run in measured.runs}
        runs = {label: _unequal_work(blocks) for label, blocks in unequal.items() if len(blocks)}
        if runs:
            yield cls(runs=runs)

    def sentence(self) -> Sentence:
        runs = [
            say(
                f"{run} in ",
                _rounds(work.num_rounds),
                " (",
                Figure("samples_per_second", f"{work.size:.6g}"),
                f" {work.unit} a step instead of ",
                Figure("samples_per_second", f"{work.baseline_size:.6g}"),
                " in the first of them)",
            )
            for run, work in self.runs.items()
        ]
        return say(
            "The script gave runs other amounts of work than the baseline: ",
            joined(runs, ", "),
            ". These rounds are not compared.",
        )

    def remedy(self) -> str:
        return "Have every run take the same samples."


def _unequal_work(blocks: pd.DataFrame) -> UnequalWork:
    first = blocks.iloc[0]
    unit = next(size for size in SIZES if first[size] != first[f"{size}_baseline"])
    return UnequalWork(
        num_rounds=len(blocks),
        unit=unit,
        size=float(first[unit] / first["num_steps"]),
        baseline_size=float(first[f"{unit}_baseline"] / first["num_steps"]),
    )


@dataclass(frozen=True, kw_only=True)
class Fallback(ComparisonWarning):
    """The experiment whose runs could not be alive at once, which this one repeats."""

    experiment_id: str

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        if measured.spec.fallback_of is not None:
            yield cls(experiment_id=measured.spec.fallback_of)

    def sentence(self) -> Sentence:
        return say(
            f"This experiment repeats {self.experiment_id} one run at a time, because its runs "
            "could not be alive at once: they need more memory than there is, or the same port, "
            "file or lock."
        )


@dataclass(frozen=True, kw_only=True)
class Sequential(ComparisonWarning):
    """Runs that took no turns."""

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        if measured.spec.schedule == "sequential":
            yield cls()

    def sentence(self) -> Sentence:
        return say(
            "The runs took place one after another, so the speedups include drift of clocks, heat "
            "and other load."
        )


@dataclass(frozen=True, kw_only=True)
class CompiledTogether(ComparisonWarning):
    """Runs that compiled at the same time."""

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        if measured.spec.compiling_together:
            yield cls()

    def sentence(self) -> Sentence:
        return say(
            "Several runs compiled at the same time: compile latencies and break-evens are those "
            "of a machine under load. Speedups are not affected: all runs compiled before the "
            "timed rounds."
        )


@dataclass(frozen=True, kw_only=True)
class NoControl(ComparisonWarning):
    """A comparison without a control that computed a step."""

    state: RunState | None
    """None without a control."""
    was_requested: bool
    environment: str | None
    is_inference: bool

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        spec, runs = measured.spec, measured.runs
        control = of_role(runs, "control")
        if spec.kind.has_speedups and (control is None or control.steps.empty):
            yield cls(
                state=None if control is None else control.state,
                was_requested=spec.controls > 0,
                environment=spec.environment_by_label[runs[0].label] if runs else None,
                is_inference=spec.is_inference,
            )

    def sentence(self) -> Sentence:
        where = "" if self.environment is None else f" in {self.environment}"
        if self.state is None:
            why = "There is no control"
            if self.was_requested:
                why = f"The control's run folder{where} is missing or unreadable"
        elif self.state.is_final:
            why = f"The control{where} recorded no step ({state_words(self.state)})"
        else:
            why = f"The control{where} has recorded no step yet ({self.state})"
        unknown = "neither this machine's noise nor parity can"
        if self.is_inference:
            unknown = "this machine's noise cannot"
        return say(f"{why}: {unknown} be judged.")


@dataclass(frozen=True, kw_only=True)
class Noisy(ComparisonWarning):
    """A machine on which two equal runs differ by more than usual."""

    noise_floor: float

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        floor, control = measured.noise_floor, of_role(measured.runs, "control")
        has_control = control is not None and not control.steps.empty
        is_noisy = floor is not None and floor > MIN_MARGIN
        if measured.spec.kind.has_speedups and has_control and is_noisy:
            yield cls(noise_floor=floor or 0.0)

    def sentence(self) -> Sentence:
        return say(
            "This machine is noisy: two equal runs differ by up to ",
            figure("noise_floor", self.noise_floor),
            ", and smaller differences are not called faster or slower.",
        )


@dataclass(frozen=True, kw_only=True)
class FewRounds(ComparisonWarning):
    """Runs with too few rounds for an interval, and the number of their rounds."""

    num_rounds: Mapping[str, int]

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        spec, baseline = measured.spec, measured.baseline
        if not spec.kind.has_speedups or (baseline is not None and baseline.state.ended_early):
            return
        untimed = {variant.label for variant in spec.further_controls}
        num_rounds = {
            run.label: 0 if ratio is None else ratio.n
            for run, ratio in zip(measured.runs, measured.speedups, strict=True)
            if run.role != "baseline" and len(run.steps) and (ratio is None or ratio.n < MIN_PAIRS)
            # More steps would not help the runs that the following lines exclude.
            if run.label not in untimed
            if not run.never_ceases_to_compile and not run.state.ended_early and not run.is_idle
            if baseline is None or unequal_blocks(baseline, run).empty
        }
        if num_rounds:
            yield cls(num_rounds=num_rounds)

    def sentence(self) -> Sentence:
        runs = [
            say(f"{run} (", figure("round", count), ")") for run, count in self.num_rounds.items()
        ]
        return say(
            f"Fewer than {MIN_PAIRS} rounds can be paired with the baseline, so there is no "
            "interval: ",
            joined(runs, ", "),
            ".",
        )

    def remedy(self) -> str:
        return "Train for more steps."


@dataclass(frozen=True, kw_only=True)
class MeasuringEnded(ComparisonWarning):
    """Why measuring ended, and after how many rounds in each repeat that ended for this reason."""

    num_rounds: tuple[int, ...]
    repeats: int
    reason: str

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        spec = measured.spec
        if not spec.kind.ends_by_width:
            return
        rounds: dict[str, list[int]] = {}
        for repeat in range(1, spec.speed.repeats + 1):
            labels = [variant.label for variant in spec.variants if variant.repeat == repeat]
            runs = [run for run in measured.processes if run.label in labels]
            if any(run.state is RunState.FINISHED for run in runs):
                numbers = {number for run in runs for number in run.steady_blocks["round"]}
                rounds.setdefault(_why_measuring_ended(runs), []).append(len(numbers))
        for reason, counts in rounds.items():
            yield cls(
                severity="serious" if _wide_intervals(measured) else "minor",
                num_rounds=tuple(counts),
                repeats=spec.speed.repeats,
                reason=reason,
            )

    def sentence(self) -> Sentence:
        counts = listed(list(map(str, self.num_rounds)))
        repeats = f" in {len(self.num_rounds)} of {self.repeats} repeats"
        return say(
            "Measuring ended after ",
            Figure("round", f"{counts} rounds"),
            repeats if self.repeats > 1 else "",
            ": ",
            recorded_clause(self.reason),
            ".",
        )


def _why_measuring_ended(runs: Sequence[Evidence]) -> str:
    """Why the supervisor ended a repeat, without the widths at that moment: only the comparison's
    widths count."""
    stops = [run.stop for run in runs if run.stop is not None]
    if not stops:
        return "the requested rounds are over"
    return stops[0].reason if stops[0].ending is None else stops[0].ending.why


@dataclass(frozen=True, kw_only=True)
class WideIntervals(ComparisonWarning):
    """Runs whose interval is wider than requested, and its width."""

    widths: Mapping[str, float]
    target_width: float
    repeats: int

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        speed = measured.spec.speed
        if widths := _wide_intervals(measured):
            yield cls(widths=widths, target_width=speed.target_width, repeats=speed.repeats)

    def sentence(self) -> Sentence:
        runs = [
            say(f"{run} ", Figure("speedup", str(figure("noise_floor", width))))
            for run, width in self.widths.items()
        ]
        advice = "allow more rounds or seconds, or use a quieter machine"
        if self.repeats > 1:
            advice = "processes of the same run differ, and only more repeats show by how much"
        return say(
            "Intervals are wider than the requested ",
            Figure("speedup", str(figure("noise_floor", self.target_width))),
            ": ",
            joined(runs, ", "),
            f"; {advice}.",
        )


def _wide_intervals(measured: Measured) -> dict[str, float]:
    """Widths of intervals that are wider than requested; empty while runs go on."""
    spec, runs = measured.spec, measured.runs
    if not spec.kind.ends_by_width or not all(run.state.is_final for run in runs):
        return {}
    return {
        run.label: ratio.width
        for run, ratio in zip(runs, measured.speedups, strict=True)
        if ratio is not None and ratio.width is not None
        if ratio.width > spec.speed.target_width
    }


@dataclass(frozen=True, kw_only=True)
class SingleRepeats(ComparisonWarning):
    """Runs with enough blocks in only one of several processes."""

    labels: tuple[str, ...]
    repeats: int

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        spec, runs = measured.spec, measured.runs
        over = all(run.state.is_final for run in runs)
        if not spec.kind.ends_by_width or spec.speed.repeats == 1 or not over:
            return
        counts = {run.label: run.steady_blocks.groupby("process").size() for run in runs}
        labels = [label for label, blocks in counts.items() if (blocks >= MIN_PAIRS).sum() == 1]
        if labels:
            yield cls(labels=tuple(labels), repeats=spec.speed.repeats)

    def sentence(self) -> Sentence:
        return say(
            f"Only one process of {self.repeats} was measured long enough in "
            f"{', '.join(self.labels)}: the interval does not include how much processes differ."
        )


@dataclass(frozen=True, kw_only=True)
class Recorded(ComparisonWarning):
    """A sentence that runs recorded themselves: serious where some lack it, as then the comparison
    is unequal."""

    text: str

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        of_runs = [run.workload.get("notes") or [] for run in measured.processes if run.workload]
        texts = dict.fromkeys(
            text for notes in of_runs for text in notes if not text.endswith(OUTDATED_NOTE)
        )
        for text in texts:
            is_shared = all(text in notes for notes in of_runs)
            yield cls(
                severity="minor" if is_shared else "serious", text=printable(text, LONGEST_NOTE)
            )

    def sentence(self) -> Sentence:
        return say(recorded(self.text))


@dataclass(frozen=True, kw_only=True)
class OperationsUnknown(ComparisonWarning):
    """Operations in a script's step that cannot be counted."""

    severity: Severity = "minor"
    names: tuple[str, ...]

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        uncounted = measured.baseline.workload.get("uncounted") if measured.baseline else None
        if uncounted is not None and len(uncounted):
            yield cls(names=tuple(map(printable, uncounted)))

    def sentence(self) -> Sentence:
        return say(
            "Floating-point operations are not known: there is no FLOP formula for ",
            f"{first_few(self.names)}.",
        )


@dataclass(frozen=True, kw_only=True)
class AnswersNotCompared(ComparisonWarning):
    """Backends whose parity does not cover inference: scripts, which evaluate by themselves, and
    models that cannot be computed with other rounding. The error of each; empty without one."""

    severity: Severity = "minor"
    errors: Mapping[str, str]

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        is_specified = measured.spec.workload.is_specified
        errors = {
            run.label: printable(" ".join(run.answers["error"].dropna()), LONGEST_NOTE)
            for run in measured.runs
            if run.role == "backend" and len(run.evaluations) and run.answers["wrong"].isna().all()
            if not is_specified or len(run.answers)
        }
        if errors:
            yield cls(errors=errors)

    def sentence(self) -> Sentence:
        error = next(filter(None, self.errors.values()), "")
        return say(
            "Answers of the compiled model were not compared with those of the same weights "
            f"without a compiler: {', '.join(self.errors)}",
            *((" (", recorded_clause(error), ")") if error else ()),
            ". Their parity does not cover inference.",
        )


@dataclass(frozen=True, kw_only=True)
class RoundsAdded(ComparisonWarning):
    """Rounds from processes that were started after the runs had finished."""

    severity: Severity = "minor"
    labels: tuple[str, ...]
    num_added: int
    num_rounds: int

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        labels = tuple(run.label for run in measured.runs if run.added_at)
        baseline = measured.baseline
        if labels and baseline is not None and baseline.added_at:
            blocks = baseline.steady_blocks
            later = blocks[blocks["first_step"] >= min(baseline.added_at)]
            yield cls(
                labels=labels,
                num_added=later["round"].nunique(),
                num_rounds=blocks["round"].nunique(),
            )

    def sentence(self) -> Sentence:
        return say(
            "Of ",
            _rounds(self.num_rounds),
            f" {self.num_added} were added later by further processes of {', '.join(self.labels)}. "
            "Compile latency, step time, losses and evaluations come from the first processes.",
        )


@dataclass(frozen=True, kw_only=True)
class Confirms(ComparisonWarning):
    """The search whose answer this training tests."""

    severity: Severity = "minor"
    experiment_id: str

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        if measured.spec.confirms is not None:
            yield cls(experiment_id=measured.spec.confirms)

    def sentence(self) -> Sentence:
        return say(
            f"This training tests the answer of the search {self.experiment_id}, in fresh "
            "processes and from the beginning."
        )


@dataclass(frozen=True, kw_only=True)
class CandidatesEnded(ComparisonWarning):
    """Why a search ended candidates before its own end."""

    severity: Severity = "minor"
    reasons: Mapping[str, str]

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        end, reasons = _ends_of_search(measured)
        ended = {
            label: printable(reason, LONGEST_NOTE)
            for label, reason in reasons.items()
            if reason not in ("", end)
        }
        if ended:
            yield cls(reasons=ended)

    def sentence(self) -> Sentence:
        runs = [
            say(f"{run} (", recorded_clause(reason), ")") for run, reason in self.reasons.items()
        ]
        return say("Candidates that ended: ", joined(runs, ", "), ".")


@dataclass(frozen=True, kw_only=True)
class SearchEnded(ComparisonWarning):
    """Why a search ended, and after how many candidates."""

    severity: Severity = "minor"
    num_tried: int
    reason: str

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        end, _ = _ends_of_search(measured)
        if end is not None:
            tried = [run for run in measured.runs if run.role == "backend"]
            yield cls(num_tried=len(tried), reason=end)

    def sentence(self) -> Sentence:
        return say(
            f"Candidates tried: {self.num_tried}. The search ended: ",
            recorded_clause(self.reason),
            ".",
        )


def _ends_of_search(measured: Measured) -> tuple[str | None, dict[str, str]]:
    """Why a search ended, which the baseline tells, and why each of its candidates did. None and
    nothing for other experiments, and before the end."""
    if not measured.spec.kind.has_candidates:
        return None, {}
    over = [run for run in measured.runs if run.state.is_final]
    reasons = {run.label: (run.stop.reason if run.stop else run.reason) or "" for run in over}
    baseline = measured.baseline
    end = reasons.pop(baseline.label, "") if baseline else ""
    return end or None, {run.label: reasons[run.label] for run in over if run.role == "backend"}


@dataclass(frozen=True, kw_only=True)
class LatencyMeasuredOnce(ComparisonWarning):
    """Runs whose interval of break-even lacks a part (`Result.has_single_latency`)."""

    severity: Severity = "minor"
    labels: tuple[str, ...]

    @classmethod
    def find_in(cls, labels: Iterable[str]) -> Iterator[Self]:
        if runs := tuple(labels):
            yield cls(labels=runs)

    def sentence(self) -> Sentence:
        return say(
            f"Compile latency of {', '.join(self.labels)} was measured once: the interval of ",
            Figure("break_even_low", "break-even"),
            " includes the uncertainty of the saving, but not the variation of compile latencies.",
        )


WARNINGS: tuple[type[ComparisonWarning], ...] = (
    RoundsNotAdded,
    EndedEarly,
    LossNotFinite,
    Unfinished,
    Stopped,
    DifferentLengths,
    NothingCompiled,
    CompilerGaveUp,
    CompilesThroughout,
    Resumed,
    RepeatedLines,
    MissingLines,
    DifferentSetting,
    DifferentSizes,
    Fallback,
    Sequential,
    CompiledTogether,
    NoControl,
    Noisy,
    FewRounds,
    MeasuringEnded,
    WideIntervals,
    SingleRepeats,
    Recorded,
    OperationsUnknown,
    AnswersNotCompared,
    RoundsAdded,
    Confirms,
    CandidatesEnded,
    SearchEnded,
)
"""Warnings about the runs of an environment, the gravest first."""


def find_warnings(measured: Measured) -> list[ComparisonWarning]:
    """All of `WARNINGS` that the runs give reason for."""
    return [warning for kind in WARNINGS for warning in kind.find(measured)]


def classes_of_warnings() -> list[type[ComparisonWarning]]:
    """All classes of warnings whose modules are loaded."""
    return ComparisonWarning.__subclasses__()


def _alike(value_by_run: Mapping[str, Hashable]) -> dict[Any, list[str]]:
    """Each value with the runs that have it."""
    groups: dict[Any, list[str]] = {}
    for run, value in value_by_run.items():
        groups.setdefault(value, []).append(run)
    return groups


def _step(step: int) -> Figure:
    return Figure("step", f"step {step}")


def _rounds(count: int) -> Figure:
    return Figure("round", f"{count} rounds")
