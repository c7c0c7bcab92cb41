"""Warnings about what the compiler did."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Self

import pandas as pd

from breakeven.runner.texts import listed, printable
from breakeven.storage.comparison.evidence import RESUMED, Evidence, number
from breakeven.storage.comparison.warnings import (
    ComparisonWarning,
    Measured,
    Severity,
)
from breakeven.storage.numbers.sentences import (
    Figure,
    Sentence,
    Words,
    figure,
    first_few,
    recorded_clause,
    say,
)
from breakeven.storage.queries.cache_misses import LAYERS, keys_of, why_missed

OPERATOR = re.compile(r"\baten\.\w+")
"""An operator of torch in the compiler's reason for giving up."""


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
            why = (
                "the script never called the compiled object, or the compiler left it alone, for "
                "example because of torch.compiler.disable"
            )
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
                failures = run.compiling.frames["failure"].dropna()
                yield cls(
                    run=run.label,
                    functions=tuple(_functions_given_up(run.compiling.frames)),
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
        reason, operator = self.reason.rstrip("."), self.functions[0].operator
        if operator and operator not in reason:
            reason += f" ({operator})"
        return say(
            f"{self.run} runs {first_few(functions)} without a compiler, because the compiler gave "
            f"up there{rest}: {reason}."
        )


def _backends(measured: Measured) -> list[Evidence]:
    """The runs that are compared, and a baseline with a compiler."""
    return [
        run
        for run in measured.runs
        if len(run.steps) and (run.role == "backend" or (run.role == "baseline" and run.backend))
    ]


def _gave_up(run: Evidence) -> bool:
    return bool(run.compiling.frames["failure"].notna().any())


def _functions_given_up(frames: pd.DataFrame) -> Iterator[GivenUpFunction]:
    for _, calls in frames.groupby(frames["compile_id"].str.partition("/")[0], sort=False):
        has_failed = calls["failure"].notna()
        if has_failed.any():
            names = calls["function"].dropna()
            failed = calls[has_failed].iloc[0]
            yield GivenUpFunction(
                name=None
                if names.empty
                else RESUMED.sub(r"the rest of \1", printable(names.iloc[0])),
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
                frames = run.compiling.frames["step"]
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


@dataclass(frozen=True, kw_only=True)
class CachesMissed(ComparisonWarning):
    """A later start that compiled again what the first one had compiled, and why."""

    severity: Severity = "minor"
    run: str
    misses: tuple[str, ...]
    """Whose cache, and how many of its look-ups found nothing: `Inductor (1 of 2)`."""
    reasons: tuple[str, ...]

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        for run in measured.runs:
            later = run.caches[run.caches["starts_later"].to_numpy(bool)]
            missed = tuple(
                f"{LAYERS[row.layer]} ({row.misses + row.bypasses:.0f} of "
                f"{row.hits + row.misses + row.bypasses:.0f})"
                for row in later.itertuples()
                if row.layer in LAYERS and row.misses + row.bypasses
            )
            if missed:
                is_later = run.cache_keys["starts_later"].to_numpy(bool)
                keys = [keys_of(run.cache_keys[mask]) for mask in (~is_later, is_later)]
                yield cls(run=run.label, misses=missed, reasons=tuple(why_missed(*keys)))

    def sentence(self) -> Sentence:
        return say(
            f"The later start of {self.run} found nothing in the caches of {listed(self.misses)}: ",
            first_few([recorded_clause(reason) for reason in self.reasons]),
            ".",
        )


COMPILER_WARNINGS: tuple[type[ComparisonWarning], ...] = (
    CachesMissed,
    NothingCompiled,
    CompilerGaveUp,
    CompilesThroughout,
)
