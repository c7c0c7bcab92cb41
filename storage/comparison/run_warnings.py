"""Warnings about the ends of runs, their journals, and what should be equal in all of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from breakeven.runner.experiments.continuing import NOT_CONTINUED
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.evidence import Evidence
from breakeven.storage.comparison.pairs import SIZES, unequal_blocks
from breakeven.storage.comparison.warnings import (
    ComparisonWarning,
    Measured,
    Severity,
    ending_words,
    rounds_figure,
    runs_by_value,
    step_figure,
)
from breakeven.storage.numbers.formats import count_of
from breakeven.storage.numbers.sentences import (
    Figure,
    Sentence,
    Words,
    joined,
    recorded_clause,
    say,
)
from breakeven.storage.statistics.ranks import RanksApart, ranks_apart

OWN_FOLDER_SUFFIX = "_DIR"
"""Suffix of environment variables that point into the run's own folder, and so differ."""


MAX_VALUE = 60
"""Largest number of characters of a setting's value that is not shortened."""


WORKLOAD_FIELDS = {
    "weights_sha256": "initial weights",
    "data_sha256": "samples or their order",
    "code_sha256": "the script and its files",
    "num_parameters": "number of parameters",
    "samples_per_step": "samples per step",
}


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
    missing = [arm for arm in spec.arms if arm.label not in labels]
    if missing:
        yield MissingRuns(
            labels=tuple(arm.label for arm in missing),
            lacks_baseline=any(arm.role == "baseline" for arm in missing),
        )


@dataclass(frozen=True, kw_only=True)
class NotContinued(ComparisonWarning):
    """Runs that were to be timed further, and why they were not."""

    labels: tuple[str, ...]
    reason: str

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        labels_by_reason: dict[str, list[str]] = {}
        for run in measured.processes:
            if run.reason is not None and run.reason.startswith(NOT_CONTINUED):
                reason = run.reason.removeprefix(f"{NOT_CONTINUED}: ")
                labels_by_reason.setdefault(reason, []).append(run.label)
        for reason, labels in labels_by_reason.items():
            yield cls(labels=tuple(labels), reason=reason)

    def sentence(self) -> Sentence:
        runs = ", ".join(self.labels)
        return say(f"Timing {runs} further ended early: ", recorded_clause(self.reason), ".")


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
        rounds = {label: measured.num_rounds(label) for label in measured.speedups}
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
            yield rounds_figure(rounds)
            yield "."


@dataclass(frozen=True, kw_only=True)
class LossNotFinite(ComparisonWarning):
    """A run with a loss that is infinite or no number, first at this step."""

    run: str
    step: int

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        for run in measured.processes:
            wrong = run.learning.losses.index[~np.isfinite(run.learning.losses)]
            if len(wrong):
                yield cls(run=run.label, step=int(wrong[0]))

    def sentence(self) -> Sentence:
        return say(
            f"{self.run} has a loss that is not finite, first at ", step_figure(self.step), "."
        )


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
            if run.stop is not None and not run.is_decided:
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
            for steps, runs in runs_by_value(self.num_steps).items()
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
            if run.journal.resumed_at:
                yield cls(
                    run=run.label,
                    steps=run.journal.resumed_at,
                    has_compiled=run.has_compiled,
                    moves=run.journal.moved_at,
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
                say(
                    "at ", step_figure(step), f" on {after} instead of {count_of(before, 'device')}"
                )
                for step, before, after in self.moves
            ]
            rest = ": its step time, throughput and memory mix both parts."
            moves = (" It continued ", joined(devices, " and "), rest)
        return say(
            f"{self.run} was resumed at ",
            joined(map(step_figure, self.steps), " and "),
            f": its later part {later}; rounds that it did without the baseline do not count.",
            *moves,
        )


@dataclass(frozen=True, kw_only=True)
class RepeatedLines(ComparisonWarning):
    """The number of ignored lines in the journal of each run."""

    num_lines: Mapping[str, int]

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        if num_lines := {
            run.label: run.journal.left_out for run in measured.processes if run.journal.left_out
        }:
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
        if num_lines := {
            run.label: run.journal.missing for run in measured.processes if run.journal.missing
        }:
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
        declared = {arm.label: _declared(arm) for arm in measured.spec.possible_arms}
        for field, title in WORKLOAD_FIELDS.items():
            if field == "samples_per_step" and tells_samples:
                continue  # `DifferentSizes` names the rounds.
            values = {
                run.label: run.workload.get(field)
                for run in prepared
                if len(run.steps) or run.workload.get(field) is not None
                if field != "samples_per_step" or run.batch_times == 1
                if field not in declared.get(run.label, ())
            }
            yield from cls._of_values(title, values)
        buffers = _own_buffers(prepared)
        yield from cls._of_values("buffers, which are no weights", buffers, severity="minor")
        settings = {
            run.label: _flat(run.environment) for run in measured.processes if run.environment
        }
        for name in sorted({name for flat in settings.values() for name in flat}):
            values = {
                label: flat.get(name)
                for label, flat in settings.items()
                if name not in declared.get(label, ())
            }
            yield from cls._of_values(name, values)

    @classmethod
    def _of_values(
        cls, setting: str, by_label: Mapping[str, Any], *, severity: Severity = "serious"
    ) -> Iterator[Self]:
        values = {label: None if value is None else str(value) for label, value in by_label.items()}
        if len(set(values.values())) > 1:
            yield cls(severity=severity, setting=setting, values=values)

    def sentence(self) -> Sentence:
        groups = [
            f"{_short(value)} ({', '.join(runs)})"
            for value, runs in runs_by_value(self.values).items()
        ]
        return say(f"The runs differ in {self.setting}: {', '.join(groups)}.")


def _own_buffers(runs: Iterable[Evidence]) -> dict[str, str]:
    """The buffers of each run that not all runs have."""
    names = {run.label: [*map(str, run.workload.get("buffers") or ())] for run in runs}
    common = set.intersection(*map(set, names.values())) if names else set()
    return {
        label: ", ".join(name for name in own if name not in common) or "none"
        for label, own in names.items()
    }


def _declared(arm: Arm) -> set[str]:
    """What an arm says that it changes: no warning tells it again."""
    names = {text.partition("=")[0] for text in arm.variables}
    if "OMP_NUM_THREADS" in names:
        names |= {"cpu_threads", "cpu_threads_reason"}
    return names | ({"code_sha256"} if arm.revision or arm.diff else set())


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
                rounds_figure(work.num_rounds),
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
class WeightsOfRanks(ComparisonWarning):
    """A run whose ranks have different weights, where the baseline's have the same."""

    run: str
    apart: RanksApart

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        baseline = measured.baseline
        if baseline is None:
            return
        for run in measured.processes:
            apart = ranks_apart(baseline.learning.ranks, run.learning.ranks)
            if apart is not None:
                yield cls(run=run.label, apart=apart)

    def sentence(self) -> Sentence:
        apart = self.apart
        steps: tuple[Words, ...] = ("at ", step_figure(apart.first_step))
        if apart.last_step > apart.first_step:
            steps = (
                "between ",
                step_figure(apart.first_step),
                " and ",
                step_figure(apart.last_step),
            )
        names = " and ".join(f"rank {rank}" for rank in apart.ranks)
        what = (
            f"{names} left the weights of the others"
            if apart.is_named
            else f"the weights of {names} came apart"
        )
        return say(f"{self.run}: {what} ", *steps, ", and the baseline's stay equal, bit for bit.")

    def remedy(self) -> str:
        return (
            "Ranks with copies of one model must make equal updates: a gradient was not averaged, "
            "or one rank's optimizer computed otherwise."
        )


RUN_WARNINGS: tuple[type[ComparisonWarning], ...] = (
    NotContinued,
    EndedEarly,
    LossNotFinite,
    Unfinished,
    Stopped,
    DifferentLengths,
    Resumed,
    RepeatedLines,
    MissingLines,
    DifferentSetting,
    DifferentSizes,
    WeightsOfRanks,
)
"""The gravest first; the comparison finds `MissingRuns` in all environments at once."""
