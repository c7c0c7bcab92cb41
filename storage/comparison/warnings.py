"""What all warnings of a comparison share.

A warning is a class: its fields are the fact, `find` finds it, `sentence` says it and `remedy` what
helps. A new one is a class and an entry in the tuple at the end of its file: `run_warnings`,
`compiler_warnings`, `measuring_warnings` or `device_warnings`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from breakeven.runner.protocol.events import FOUND_IN_SCRIPT
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.texts import printable
from breakeven.storage.comparison.evidence import Evidence, of_role
from breakeven.storage.numbers.sentences import Figure, Sentence, recorded, say
from breakeven.storage.statistics.speedups import Ratio

Severity = Literal["serious", "minor"]
"""A serious warning casts doubt on numbers, a minor one explains them."""
LINE = re.compile(r"(?<=\.py):\d+\b")
"""The number of a line, behind its file."""
OUTDATED_NOTE = "in their private pools; see the reserved memory instead."
"""End of a note in journals until version 0.1: the memory needed now includes these pools."""
LONGEST_NOTE = 300
"""Characters shown of a text that a process recorded; an unknown author may have written it."""
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
    speedups: Mapping[str, Ratio | None]
    """Of each run, by its label."""
    noise_floor: float | None

    @property
    def baseline(self) -> Evidence | None:
        return of_role(self.runs, "baseline")

    def num_rounds(self, label: str) -> int:
        """The number of paired rounds behind a run's speedup."""
        ratio = self.speedups[label]
        return 0 if ratio is None else ratio.n

    @property
    def lengths(self) -> dict[str, int]:
        """The number of steps of each run in batches of the same size that ended by itself, by
        label."""
        return {
            run.label: len(run.steps)
            for run in self.processes
            if run.state is RunState.FINISHED and run.batch_times == 1 and not run.is_decided
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
class Recorded(ComparisonWarning):
    """A sentence that runs recorded themselves: serious where some lack it, as then the comparison
    is unequal."""

    text: str

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        begun = [run for run in measured.processes if run.workload]
        # In another revision of a script the same stands at other lines.
        has_revisions = len({run.workload.get("code_sha256") for run in begun}) > 1
        notes_of_runs = [
            {
                LINE.sub("", text) if has_revisions else text: text
                for text in run.workload.get("notes") or ()
            }
            for run in begun
        ]
        # A run that ended before its first step knows less of its script than the others.
        complete = [
            notes for run, notes in zip(begun, notes_of_runs, strict=True) if not run.steps.empty
        ]
        texts = {key: text for notes in reversed(notes_of_runs) for key, text in notes.items()}
        for key, text in texts.items():
            is_partial = text.startswith(FOUND_IN_SCRIPT) and not any(
                key in notes for notes in complete
            )
            if text.endswith(OUTDATED_NOTE) or (complete and is_partial):
                continue
            is_shared = all(key in notes for notes in complete or notes_of_runs)
            yield cls(
                severity="minor" if is_shared else "serious", text=printable(text, LONGEST_NOTE)
            )

    def sentence(self) -> Sentence:
        return say(recorded(self.text))


def classes_of_warnings() -> list[type[ComparisonWarning]]:
    """All classes of warnings whose modules are loaded."""
    return ComparisonWarning.__subclasses__()


def runs_by_value(value_by_run: Mapping[str, Hashable]) -> dict[Any, list[str]]:
    """Each value with the runs that have it."""
    groups: dict[Any, list[str]] = {}
    for run, value in value_by_run.items():
        groups.setdefault(value, []).append(run)
    return groups


def step_figure(step: int) -> Figure:
    return Figure("step", f"step {step}")


def rounds_figure(count: int) -> Figure:
    return Figure("round", f"{count} rounds")
