"""The results of a comparison: one `Result` per run, with warnings and notes.

`storage.comparison.comparison` computes them; `docs/metrics.md` defines each number.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

import pandas as pd

from breakeven.runner.experiments.continuing import why_no_rounds
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.arm_fields import ENVIRONMENT_MARK
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.device_warnings import Disturbed
from breakeven.storage.comparison.energy import EnergySaving
from breakeven.storage.comparison.evidence import of_role
from breakeven.storage.comparison.pairs import Timing
from breakeven.storage.comparison.run_numbers import CapturedGraphs, RunNumbers
from breakeven.storage.comparison.run_warnings import EndedEarly, MissingRuns
from breakeven.storage.comparison.shortfall import Shortfall
from breakeven.storage.comparison.warnings import ComparisonWarning
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.break_even import BreakEven, BreakEvenVerdict
from breakeven.storage.statistics.outcomes import LossCheck, check_loss
from breakeven.storage.statistics.parity import UNDECIDED, Parity
from breakeven.storage.statistics.speedups import Ratio, SpeedVerdict, rounds_missing

SCORES = ("f1", "precision", "recall", "roc_auc", "mse", "mae", "perplexity")
"""Metrics that a task may have in addition to accuracy."""


AT_ONCE = "at once"
"""The break-even of a run that is ahead of its baseline from the first step on."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Numbers and verdicts of one run. None means undefined or unmeasured."""

    run_id: str
    label: str
    role: str
    backend: str | None
    state: str
    measured: RunNumbers
    """Numbers of the run alone; the fields below compare it with others."""
    timing: Timing
    """The times on which speedup, break-even and energy rest."""
    graphs: CapturedGraphs
    reason: str | None = None
    """Why it ended, or why no rounds were added to it."""
    speedup: Ratio | None
    """None for the baseline, for a wrong result (`without_speed`), and without a round that was
    steady in both baseline and run."""
    p_holm: float | None
    speed_verdict: SpeedVerdict | None
    """None for baseline and control, which are not judged, and without a step."""
    more_rounds: int | None
    """Estimated number of further rounds for a sure verdict; None if more would not help."""
    break_even: BreakEven | None
    """None if neither it nor its baseline compiled, and without a paired round."""
    energy: EnergySaving | None = None
    """None for baseline and control, and without readings of both in a round."""
    parity: Parity | None
    """None for baseline and control."""
    inference_gap: float | None
    training_loss_excess: float | None
    """None for the baseline, and with fewer than 100 steps."""
    batch_times: int = 1
    """How many times as large as the baseline's its batches are. Above 1 it is another training:
    speeds compare the times of as many samples."""
    changes_training: bool = False
    """Whether its arm declares another mathematics than the baseline's, in a whole training."""
    ended_as_wrong: bool = False
    """Whether a search ended it because its losses leave the band of equal trainings."""
    shortfall: Shortfall | None = None
    """Its materially worse outcome, if it is not known whether it learns the same."""
    is_uncompiled: bool = False
    """Whether the compiler compiled nothing, so that there is nothing to compare: its speed and
    break-even are None."""
    device_warnings: tuple[Disturbed, ...] = ()
    """Disturbances of the device while this run was timed; also in `Comparison.warnings`."""

    @property
    def is_wrong(self) -> bool:
        """Whether no answer may recommend it: its training is broken, worse or seems so, or ended
        materially worse, or a search ended it for its losses."""
        parity = self.parity
        is_broken = parity is not None and (parity.is_wrong or parity.seems_worse)
        return self.ended_as_wrong or is_broken or self.shortfall is not None

    @property
    def has_open_outcome(self) -> bool:
        """Whether it makes or may make another training, and it is not decided if that is as good:
        what declares another mathematics is not used before it is shown to be the same, or as good.
        """
        if self.parity is None:
            return self.changes_training
        by_outcome = self.changes_training or self.parity.by_outcome
        return by_outcome and self.parity.verdict in UNDECIDED

    @property
    def may_need_rounds(self) -> bool:
        """Whether rounds, below a tenfold of those that exist, may decide its speed."""
        has_interval = self.speedup is not None and self.speedup.low is not None
        return self.speed_verdict == "unsure" and (not has_interval or bool(self.more_rounds))

    def value(self, name: str) -> Any:
        """A number of METRICS or a task's scores; None means undefined, infinity means never."""
        return self.measured.metrics.get(name) if name in SCORES else VALUES[name](self)

    @property
    def training_loss_check(self) -> LossCheck | None:
        """Result of PyTorch's training_loss.py, corrected; a much weaker test than parity."""
        return check_loss(self.training_loss_excess)

    @property
    def break_even_verdict(self) -> BreakEvenVerdict | None:
        """Whether the run reaches break-even; None if nothing is known."""
        return None if self.break_even is None else self.break_even.verdict

    @property
    def pays(self) -> bool:
        """Whether it surely takes less time than its baseline for some length of training."""
        return self.speed_verdict == "faster" or self.break_even_verdict in ("reached", "until")

    @property
    def may_be_used(self) -> bool:
        """Whether it pays, and its training is surely not worse."""
        return self.pays and not self.has_open_outcome

    @property
    def has_single_latency(self) -> bool:
        """Whether the interval of its break-even lacks the variation of compile latencies."""
        even = self.break_even
        is_reached = even is not None and even.low is not None and even.verdict == "reached"
        return even is not None and is_reached and even.num_latencies == 1

    def text(self, name: str) -> str:
        """A number of METRICS as text for tables; an unsure break-even is "inconclusive", that of a
        lead `until 600` or `at once`."""
        verdict, value = self.break_even_verdict, self.value(name)
        if name.startswith("break_even") and verdict == "unsure":
            return format_verdict(verdict)
        if name == "break_even_steps" and verdict != "never" and value in (0, math.inf):
            return AT_ONCE
        text = METRICS[name].format(value)
        return f"until {text}" if name == "break_even_steps" and verdict == "until" else text


@dataclass(frozen=True, kw_only=True)
class Across:
    """A run beside the same run in the first environment, to which each `first_` belongs. None
    means undefined or unmeasured."""

    environment: str
    first_environment: str
    backend: str | None
    """Label of the backend without its environment; None for the baseline."""
    speedup: Ratio | None
    """Step time in the first environment over that in this one."""
    p_holm: float | None
    verdict: SpeedVerdict | None
    parity: Parity | None
    compile_seconds: float | None
    first_compile_seconds: float | None
    peak_memory_bytes: int | None
    first_peak_memory_bytes: int | None
    versions: dict[str, str | None] | None
    """Versions of packages, and of Python, that differ from the first environment's."""
    first_versions: dict[str, str | None] | None

    @property
    def label(self) -> str:
        return f"{self.backend or 'baseline'}{ENVIRONMENT_MARK}{self.environment}"

    @property
    def both(self) -> tuple[str, str]:
        """Labels of the run in the first environment and of this one."""
        return self.label.removesuffix(self.environment) + self.first_environment, self.label


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The fastest backend from a length of training on."""

    from_steps: float
    """Number of steps where its line crosses that of the previous choice; 0 for the first one."""
    low: float | None = None
    """`low` and `high` are the ends of the 95 % interval of that number, as for a break-even; None
    for the first choice, and if the two were timed in too few rounds together."""
    high: float | None = None
    label: str | None
    """The backend; None for the baseline."""


@dataclass(frozen=True, kw_only=True)
class StoredComparison:
    """The stored part of a comparison; the rest is computed faster than it is read."""

    results: tuple[Result, ...]
    warnings: tuple[ComparisonWarning, ...]
    """Facts that cast doubt on the numbers or explain them, the gravest of each severity first."""
    noise_floor: float | None
    across: tuple[Across, ...] = ()
    """The runs of each further environment beside the same runs of the first one."""
    choices: tuple[Choice, ...] = ()
    """Fastest backends by length of training, the shortest first; empty without a baseline."""
    band: pd.DataFrame = field(compare=False, repr=False)
    """step, baseline, low, high: the range in which the loss of a correct backend of the first
    environment must lie. Empty without a control; ends where a control is far from the baseline."""


@dataclass(frozen=True, kw_only=True)
class Comparison(StoredComparison):
    """An experiment's results, one per run in the order of its arms."""

    experiment_id: str
    spec: ExperimentSpec
    baseline: str
    """Label of the baseline run."""

    @property
    def serious_warnings(self) -> list[ComparisonWarning]:
        """Warnings that cast doubt on the numbers."""
        return [warning for warning in self.warnings if warning.severity == "serious"]

    @property
    def minor_warnings(self) -> list[ComparisonWarning]:
        """Warnings that explain the numbers."""
        return [warning for warning in self.warnings if warning.severity == "minor"]

    def result_of(self, label: str) -> Result:
        """The result with this label, or the one that includes the run with this label."""
        return next(
            result
            for result in self.results
            if label in (result.label, *self.spec.repeats_by_label[result.label])
        )

    @property
    def unsure(self) -> list[str]:
        """Labels of the runs whose inconclusive speed more rounds may decide, or whose speed beside
        the first environment is inconclusive, with the runs that they are compared with there."""
        labels = {result.label for result in self.results if result.may_need_rounds}
        labels |= {
            label for beside in self.across if beside.verdict == "unsure" for label in beside.both
        }
        return [result.label for result in self.results if result.label in labels]

    @property
    def lacks_turns(self) -> bool:
        """Whether more rounds may decide an inconclusive speed, but such an experiment can have
        none."""
        num_tested = sum(result.p_holm is not None for result in self.results)
        return why_no_rounds(self.spec) is not None and any(
            result.speed_verdict == "unsure"
            and result.speedup is not None
            and rounds_missing(result.speedup, num_tested) is not None
            for result in self.results
        )

    @property
    def round_speedups(self) -> pd.DataFrame:
        """label, role, process, round, speedup of every paired round, without wrong results."""
        columns = ["label", "role", "process", "round", "speedup"]
        frames = [
            result.timing.speedups.assign(label=result.label, role=result.role)
            for result in self.results
            if result.role != "baseline" and not result.is_wrong
        ]
        return (
            pd.concat(frames, ignore_index=True)[columns]
            if frames
            else pd.DataFrame(columns=columns)
        )

    def baseline_of(self, label: str) -> Result | None:
        """The baseline in the environment of a result."""
        return baseline_beside(self.spec, self.results, label)

    @property
    def of_all_environments(self) -> list[Result]:
        """The results, with the parity of `with_parity_across`."""
        return with_parity_across(self.results, self.across)

    @property
    def missing(self) -> list[str]:
        """Labels of planned runs without a readable folder; these runs have no result."""
        return [
            label
            for warning in self.warnings
            if isinstance(warning, MissingRuns)
            for label in warning.labels
        ]

    def why_ended(self, label: str) -> str | None:
        """Why a run, or the first of its repeats that did so, ended early; None if unknown."""
        members = self.spec.repeats_by_label.get(label, ())
        ended = (
            warning.reason
            for warning in self.warnings
            if isinstance(warning, EndedEarly) and warning.run in members
        )
        return next(ended, None)

    def table(self) -> pd.DataFrame:
        """One row per run; columns named as in METRICS, values as in `Result.value`.

        A score other than accuracy has a column if any run has it.
        """
        has = {name for result in self.results for name in result.measured.metrics}
        names = [name for name in METRICS if name in VALUES]
        names += [name for name in SCORES if name in has]
        rows = [
            {
                **{name: getattr(result, name) for name in IDENTITY},
                **{name: result.value(name) for name in names},
            }
            for result in self.results
        ]
        return pd.DataFrame(rows, columns=[*IDENTITY, *names], dtype=object)


IDENTITY = ("label", "role", "backend", "state")
"""Columns of the table that identify a run."""
VALUES: dict[str, Callable[[Result], Any]] = {
    **{
        number.name: attrgetter(f"measured.{number.name}")
        for number in fields(RunNumbers)
        if number.name in METRICS
    },
    "speedup": lambda result: result.speedup and result.speedup.median,
    "speedup_low": lambda result: result.speedup and result.speedup.low,
    "speedup_high": lambda result: result.speedup and result.speedup.high,
    "p_holm": lambda result: result.p_holm,
    "effect_size": lambda result: result.speedup and result.speedup.effect_size,
    "detectable_effect": lambda result: result.speedup and result.speedup.detectable_effect,
    "speed_verdict": lambda result: result.speed_verdict,
    "break_even_verdict": lambda result: result.break_even_verdict,
    "break_even_steps": lambda result: result.break_even and result.break_even.steps,
    "break_even_low": lambda result: result.break_even and result.break_even.low,
    "break_even_high": lambda result: result.break_even and result.break_even.high,
    "break_even_seconds": lambda result: result.break_even and result.break_even.seconds,
    "break_even_epochs": lambda result: result.break_even and result.break_even.epochs,
    "energy_ratio": lambda result: result.energy and result.energy.ratio.median,
    "energy_break_even_steps": lambda result: (
        result.energy and result.energy.break_even and result.energy.break_even.steps
    ),
    "parity": lambda result: result.parity and result.parity.verdict,
    "first_step_outside": lambda result: result.parity and result.parity.first_step_outside,
    "max_ratio_to_band": lambda result: result.parity and result.parity.max_ratio_to_band,
    "max_ratio_to_interval": lambda result: result.parity and result.parity.max_ratio_to_interval,
    "inference_gap": lambda result: result.inference_gap,
    "training_loss_excess": lambda result: result.training_loss_excess,
    "training_loss_check": lambda result: result.training_loss_check,
}
"""Finds each number of METRICS in a result; the scores of a task are in `measured.metrics`."""


@dataclass(frozen=True, kw_only=True)
class Standings:
    """The backends of a comparison in groups, each with the fastest first."""

    counted: tuple[Result, ...]
    """Backends with a speed and a verdict."""
    broken: tuple[Result, ...]
    """Backends whose training is wrong (`Result.is_wrong`), also beside the same run in the first
    environment, whose parity is then theirs; their speed is that of another computation."""
    unfinished: tuple[Result, ...]
    """Backends that ended before the last step."""
    uncompiled: tuple[Result, ...]
    """Backends that compiled nothing."""
    unmeasured: tuple[Result, ...]
    """Backends without a round paired with the baseline."""
    baseline: Result | None

    @property
    def num_backends(self) -> int:
        return len(self.counted) + len(self.others)

    @property
    def others(self) -> tuple[Result, ...]:
        """Backends whose speeds do not count."""
        return (*self.broken, *self.unfinished, *self.uncompiled, *self.unmeasured)

    @property
    def baseline_ended_early(self) -> bool:
        return self.baseline is not None and ended_early(self.baseline)

    @property
    def compares_nothing(self) -> bool:
        """Whether a part of the baseline is all there is, which says nothing about a training."""
        return self.baseline_ended_early and not self.counted


def baseline_beside(spec: ExperimentSpec, results: Sequence[Result], label: str) -> Result | None:
    """The baseline in the environment of a result."""
    environments = spec.environment_by_label
    return of_role(
        (result for result in results if environments[result.label] == environments[label]),
        "baseline",
    )


def without_speed(result: Result) -> Result:
    """A wrong result without speedup, verdict, break-even and energy saving: its steps compute
    something else. Another result as it is. The state of a run that ended early stays."""
    if not result.is_wrong:
        return result
    ending = RunState(result.state).early_end
    return replace(
        result,
        speedup=None,
        p_holm=None,
        speed_verdict=ending if result.role == "backend" else None,
        more_rounds=None,
        break_even=None,
        energy=None,
    )


def with_parity_across(results: Iterable[Result], across: Iterable[Across]) -> list[Result]:
    """The results; a run that breaks parity with the first environment has that parity, and no
    speed."""
    broken = {
        beside.label: beside.parity
        for beside in across
        if beside.parity is not None and beside.parity.is_wrong
    }
    return [
        without_speed(replace(result, parity=broken[result.label]))
        if result.label in broken
        else result
        for result in results
    ]


def standings(comparison: Comparison) -> Standings:
    """The groups of a comparison's backends."""
    return standings_of(comparison.spec, comparison.of_all_environments)


def standings_of(spec: ExperimentSpec, results: Sequence[Result]) -> Standings:
    """Puts each backend into the first matching group: broken, unfinished, uncompiled, unmeasured,
    counted.

    A search ends candidates that compile for too long; they are omitted. Other candidates count
    with the rounds so far if somebody stops the search."""
    groups: dict[str, list[Result]] = {
        group: [] for group in ("counted", "broken", "unfinished", "uncompiled", "unmeasured")
    }
    backends = (result for result in results if result.role == "backend")
    for result in sorted(
        backends, key=lambda result: -result.speedup.median if result.speedup else 0.0
    ):
        was_stopped = spec.kind.has_candidates and RunState(result.state).is_cancelled
        if result.speedup is not None or not was_stopped:
            groups[_group(result, counts_if_cancelled=was_stopped)].append(result)
    baseline = of_role(results, "baseline")
    return Standings(**{name: tuple(group) for name, group in groups.items()}, baseline=baseline)


def _group(result: Result, *, counts_if_cancelled: bool) -> str:
    if result.is_wrong:
        return "broken"
    if ended_early(result) and not counts_if_cancelled:
        return "unfinished"
    if result.is_uncompiled:
        return "uncompiled"
    is_rated = result.speedup is not None and result.speed_verdict is not None
    return "counted" if is_rated else "unmeasured"


def ended_early(result: Result) -> bool:
    return RunState(result.state).ended_early
