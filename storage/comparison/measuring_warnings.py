"""Warnings about how the runs were measured, and what was not."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from breakeven.runner.protocol.states import RunState, state_words
from breakeven.runner.texts import listed, printable
from breakeven.storage.comparison.evidence import Evidence, of_role
from breakeven.storage.comparison.pairs import unequal_blocks
from breakeven.storage.comparison.warnings import (
    LONGEST_NOTE,
    ComparisonWarning,
    Measured,
    Recorded,
    Severity,
    rounds_figure,
)
from breakeven.storage.numbers.sentences import (
    Figure,
    Sentence,
    figure,
    first_few,
    joined,
    recorded_clause,
    say,
)
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.statistics.speedups import FEW_ROUNDS, MIN_MARGIN, SIGNIFICANCE


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
class OfFamily(ComparisonWarning):
    """The place of the experiment in its family, and the p-value that it needs there."""

    severity: Severity = "minor"
    family: str
    place: int
    level: float

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        spec = measured.spec
        if spec.family and spec.family_place is not None and spec.family_level is not None:
            yield cls(family=spec.family, place=spec.family_place, level=spec.family_level)

    @property
    def fewest_rounds(self) -> int:
        """With fewer, the p-value is above the level even if all rounds agree."""
        by_sign = math.ceil(1 - math.log2(self.level))
        return by_sign if by_sign >= FEW_ROUNDS else MIN_PAIRS

    def sentence(self) -> Sentence:
        return say(
            f"Proposal {self.place:,} of the family {self.family}; needs ",
            Figure("p_holm", f"p < {self.level:.2g}"),
            f" in at least {self.fewest_rounds} rounds. p-values are multiplied by "
            f"{SIGNIFICANCE / self.level:,.3g}.",
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
        is_timed = measured.spec.kind.has_speedups and has_control
        if is_timed and floor is not None and floor > MIN_MARGIN:
            yield cls(noise_floor=floor)

    def sentence(self) -> Sentence:
        return say(
            "The machine was noisy: two equal runs differ by up to ",
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
        untimed = {arm.label for arm in spec.further_controls}
        num_rounds = {
            run.label: measured.num_rounds(run.label)
            for run in measured.runs
            if run.role != "baseline" and len(run.steps)
            if measured.num_rounds(run.label) < MIN_PAIRS
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
        is_planned = any(run.is_decided for run in measured.runs if run.role == "baseline")
        if not spec.kind.ends_by_width and not (spec.is_until_decided and is_planned):
            return
        rounds: dict[str, list[int]] = {}
        for repeat in range(1, spec.speed.repeats + 1):
            labels = [arm.label for arm in spec.arms if arm.repeat == repeat]
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
        label: ratio.width
        for label, ratio in measured.speedups.items()
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
            run.label: printable(" ".join(run.learning.answers["error"].dropna()), LONGEST_NOTE)
            for run in measured.runs
            if run.role == "backend"
            and run.backend is not None
            and len(run.learning.evaluations)
            and run.learning.answers["wrong"].isna().all()
            if not is_specified or len(run.learning.answers)
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
    """Rounds of trainings after the first one of each run."""

    severity: Severity = "minor"
    labels: tuple[str, ...]
    num_added: int
    num_rounds: int

    @classmethod
    def find(cls, measured: Measured) -> Iterator[Self]:
        labels = tuple(run.label for run in measured.runs if run.journal.added_at)
        baseline = measured.baseline
        if labels and baseline is not None and baseline.journal.added_at:
            blocks = baseline.steady_blocks
            later = blocks[blocks["first_step"] >= min(baseline.journal.added_at)]
            yield cls(
                labels=labels,
                num_added=later["round"].nunique(),
                num_rounds=blocks["round"].nunique(),
            )

    def sentence(self) -> Sentence:
        return say(
            "Of ",
            rounds_figure(self.num_rounds),
            f" {self.num_added} were added by further trainings of {', '.join(self.labels)}. "
            "Compile latency, losses and evaluations come from the first ones.",
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
    """Why a search or a planned training ended backends before its own end."""

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
        if end is not None and measured.spec.kind.has_candidates:
            tried = [run for run in measured.runs if run.role == "backend"]
            yield cls(num_tried=len(tried), reason=end)

    def sentence(self) -> Sentence:
        return say(
            f"Candidates tried: {self.num_tried}. The search ended: ",
            recorded_clause(self.reason),
            ".",
        )


def _ends_of_search(measured: Measured) -> tuple[str | None, dict[str, str]]:
    """Why a search or a planned training ended, which the baseline tells, and why each of its
    backends did. None and nothing for other experiments, and before the end."""
    spec = measured.spec
    if not spec.kind.has_candidates and not spec.is_until_decided:
        return None, {}
    over = [run for run in measured.runs if run.state.is_final]
    reasons = {run.label: (run.stop.reason if run.stop else run.reason) or "" for run in over}
    baseline = measured.baseline
    end = reasons.pop(baseline.label, "") if baseline else ""
    return end or None, {run.label: reasons[run.label] for run in over if run.role == "backend"}


MEASURING_WARNINGS: tuple[type[ComparisonWarning], ...] = (
    Fallback,
    OfFamily,
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
