"""Judges the parity of an experiment's runs from their records, by `storage.statistics.parity`.

No band can judge the losses of a backend that draws its own random numbers. Three checks replace
it: single steps of a rehearsal without dropout, the draws of each dropout, and many draws of a step
from one state (docs/parity.md; the measurements are in docs/decisions.md).

For a script it first finds whether the runs computed with the same samples, and why they diverged.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
import pandas as pd

from breakeven.runner.loss_band import LEAD_STEPS, broken_limit
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.arm_fields import CHANGES
from breakeven.runner.specs.arms import change_words
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.training import Precision
from breakeven.storage.comparison.evidence import Evidence, Randomness, counted
from breakeven.storage.comparison.run_outcome import (
    asks_for_outcome,
    judge_outcome,
    may_hide_in_band,
    samples_ratio,
)
from breakeven.storage.statistics import parity as rules
from breakeven.storage.statistics.inputs import first_difference, first_other_settings
from breakeven.storage.statistics.outcomes import (
    Fall,
    Reading,
    Trainings,
    has_learned,
    learned_by_accuracy,
    learned_by_loss,
    loss_fall,
    readings,
)
from breakeven.storage.statistics.parity import (
    Parity,
    ParityFinding,
    break_parity,
    judge_losses,
    loss_band,
    unknown_parity,
)
from breakeven.storage.statistics.random_numbers import (
    draws_alike,
    draws_numbers,
    find_dropout_faults,
    find_redraw_fault,
)
from breakeven.storage.statistics.ranks import losses_by_rank, pooled, rank_outside, ranks_of_hashes

FIRST_STEPS = 10
MAX_SHARE_OF_SPREAD = 0.1
"""Two runs drew the same numbers if their first losses differ by less than this share of the
standard deviation of a loss over many draws."""


@dataclass(frozen=True)
class EqualTrainings:
    """Baseline and controls, which judge all backends of an experiment; their band and learning are
    computed once."""

    spec: ExperimentSpec
    baseline: Evidence
    controls: Sequence[Evidence]
    """Controls that have begun."""

    @classmethod
    def from_runs(
        cls, spec: ExperimentSpec, baseline: Evidence | None, controls: Sequence[Evidence]
    ) -> "EqualTrainings | None":
        """None without a baseline."""
        begun = [control for control in controls if len(control.learning.losses)]
        return None if baseline is None else cls(spec, baseline, counted(begun))

    @property
    def precision(self) -> Precision:
        """The requested precision; for a script, the precision that its baseline recorded."""
        return computed_in(self.spec, self.baseline.workload)

    @cached_property
    def band(self) -> pd.DataFrame:
        """The band of `storage.statistics.parity`; empty without a control."""
        if not self.controls:
            return no_band()
        return loss_band(self.baseline.learning.losses, self._control_losses, self.precision)

    @cached_property
    def loss_fall(self) -> Fall | None:
        return loss_fall(self.baseline.learning.losses.to_numpy(dtype=float))

    @cached_property
    def has_learned(self) -> bool:
        return has_learned(
            self.loss_fall,
            self.baseline.last_evaluation("accuracy"),
            self.baseline.workload.get("majority_share"),
            _last_num_samples(self.baseline),
        )

    @cached_property
    def learned(self) -> float | None:
        return learned_by_loss(
            self.loss_fall, [self.baseline.learning.losses, *self._control_losses]
        )

    @cached_property
    def learned_accuracy(self) -> float | None:
        return learned_by_accuracy(
            [run.learning.evaluations["accuracy"] for run in (self.baseline, *self.controls)],
            self.baseline.workload.get("majority_share"),
        )

    @property
    def _control_losses(self) -> list[pd.Series]:
        return [control.learning.losses for control in self.controls]

    @property
    def _limit(self) -> float:
        return broken_limit(self.precision, len(self.controls))

    @cached_property
    def _rank_losses(self) -> dict[int, pd.Series]:
        return losses_by_rank(self.baseline.learning.ranks)

    @cached_property
    def _rank_controls(self) -> dict[int, list[pd.Series]]:
        by_control = [losses_by_rank(control.learning.ranks) for control in self.controls]
        return pooled(self._rank_losses, by_control)

    @cached_property
    def _rank_bands(self) -> dict[int, pd.DataFrame]:
        return {
            rank: loss_band(losses, self._rank_controls[rank], self.precision)
            for rank, losses in self._rank_losses.items()
        }

    def judge(self, run: Evidence) -> Parity:
        """The parity of a backend that has begun."""
        if draws_own_numbers(self.baseline.learning.losses, run, self.precision):
            return self._judge_own_numbers(run)
        if not self.controls:
            return rules.judge_without_control(self.baseline.learning.losses, run.learning.losses)
        parity = rules.judge_losses(
            self.baseline.learning.losses,
            self._control_losses,
            run.learning.losses,
            self.precision,
            run.num_planned_steps,
            self.band,
            self._limit,
        )
        parity = self._with_rank(parity, run)
        doubted = self._doubted(parity, run)
        outcomes = self._readings(doubted, run, by_band=doubted is parity)
        if doubted is not parity:
            outcomes = without_interval(outcomes)
        parity = self._judge_learning(rules.judge_outcomes(doubted, outcomes))
        seconds = max(float(control.blocks["seconds"].sum()) for control in self.controls)
        return rules.with_controls(parity, len(self.controls), seconds)

    def _with_rank(self, parity: Parity, run: Evidence) -> Parity:
        """Judges the losses of each rank alone, and names the rank that leaves its band; a fault of
        one rank is smaller in the mean."""
        judged_steps = run.learning.losses.index
        losses = {
            rank: series[series.index.isin(judged_steps)]
            for rank, series in losses_by_rank(run.learning.ranks).items()
        }
        if not losses or losses.keys() != self._rank_losses.keys():
            return parity
        judged = {
            rank: rules.judge_losses(
                self._rank_losses[rank],
                self._rank_controls[rank],
                losses[rank],
                self.precision,
                run.num_planned_steps,
                self._rank_bands[rank],
                self._limit,
            )
            for rank in losses
        }
        outside = rank_outside(judged, self._rank_losses, losses)
        if outside is None:
            return parity
        rank, of_rank = outside
        if rank is None:
            return parity if parity.verdict == "broken" else of_rank
        return rules.of_rank(of_rank, rank)

    def _doubted(self, parity: Parity, run: Evidence) -> Parity:
        """Makes broken parity unknown if other random numbers may be the cause and no record
        excludes them: on a GPU, or if only times are compared, where runs do not record random
        numbers. A script's generators show whether its steps draw random numbers."""
        if not self.spec.workload.is_specified:
            own, theirs = run.learning.inputs, self.baseline.learning.inputs
            draws = draws_numbers(theirs) and not draws_alike(theirs, own)
            return rules.doubt_first_loss(parity) if draws else parity
        was_checked = run.learning.randomness.draws_own_numbers is not None
        surely_same = run.computes_on_cpu and self.spec.kind.trains_fully
        if was_checked or not self.spec.has_dropout or surely_same:
            return parity
        return rules.doubt_dropout(parity)

    def _judge_own_numbers(self, run: Evidence) -> Parity:
        parity = judge_own_numbers(self.baseline.learning.losses, run, self.precision)
        parity = rules.judge_outcomes(parity, without_interval(self._readings(parity, run, False)))
        return self._judge_learning(parity)

    def _judge_learning(self, parity: Parity) -> Parity:
        return rules.judge_learning(parity, self.has_learned, self.loss_fall)

    def _readings(self, parity: Parity, run: Evidence, by_band: bool = True) -> list[Reading]:
        """Windows of losses after the end of the band, or from the first step without one, and all
        evaluations."""
        after, least = 0, 0.0
        if by_band and len(self.band):
            # Some steps later, because a correct backend may diverge from the baseline before the
            # controls do. The last steps of a band that did not end are as reliable as the others.
            last = self.band.iloc[-1]
            after = int(last["step"]) + 1 + (LEAD_STEPS if parity.band_ended else 0)
            least = 0.0 if parity.band_ended else float(last["high"] - last["baseline"])
        trainings = Trainings(
            equals=[
                (run.learning.losses, run.learning.evaluations)
                for run in (self.baseline, *self.controls)
            ],
            losses=run.learning.losses,
            evaluations=run.learning.evaluations,
            samples_per_step=self.baseline.workload.get("samples_per_step") or 1,
            learned=self.learned,
            learned_accuracy=self.learned_accuracy,
        )
        return readings(trainings, after, least)


def computed_in(spec: ExperimentSpec, workload: Mapping[str, Any]) -> Precision:
    """The precision of the computation; `workload` is the baseline's."""
    recorded: Precision | None = workload.get("precision")
    return recorded if recorded and recorded in get_args(Precision) else spec.training.precision


def judge_parity(
    spec: ExperimentSpec, equals: EqualTrainings | None, run: Evidence
) -> Parity | None:
    """The parity of a run; None for baseline and controls, for runs without losses, and before the
    first step, when there is nothing to say."""
    if run.role != "backend" or not spec.compares_losses:
        return None
    if run.steps.empty and not run.learning.state.is_final:
        return None
    parity = _judge(spec, equals, run)
    compared = [run] if equals is None else [run, equals.baseline, *equals.controls]
    early = next(
        (
            judged
            for judged in compared
            if judged.learning.state.ended_early
            and not (judged.role == "control" and judged.made_all_steps)
        ),
        None,
    )
    # A shorter training has no outcome, and its parity says so.
    partial = compared[1:] if parity.by_outcome else compared
    early = early or next((judged for judged in partial if _is_partial(spec, judged)), None)
    if (
        early is None
        and equals is not None
        and not parity.by_outcome
        and _is_far_shorter(spec, run, equals.baseline)
    ):
        lengths: dict[str, Any] = {
            "steps_done": len(run.learning.losses),
            "num_steps": len(equals.baseline.learning.losses),
        }
        return rules.judge_end(parity, None, "far shorter", **lengths)
    if early is None:
        return parity
    is_over = early.learning.state is RunState.FINISHED
    steps_done = _last_finite(early) + 1 if is_over else early.steps_of_losses
    done: dict[str, Any] = {"steps_done": steps_done, "num_steps": early.num_steps}
    end, state = run.learning.state.early_end, early.learning.state
    return rules.judge_end(parity, end, role=early.role, state=state, **done)


def _is_far_shorter(spec: ExperimentSpec, run: Evidence, baseline: Evidence) -> bool:
    """Whether a script ended by itself, for example by a time budget, before half of the baseline's
    steps: too early to say that it trains alike."""
    is_over = run.learning.state is RunState.FINISHED
    done = len(run.learning.losses) * samples_ratio(baseline, run)
    is_short = 0 < 2 * done < len(baseline.learning.losses)
    return not spec.workload.has_known_length and is_over and is_short


def _is_partial(spec: ExperimentSpec, run: Evidence) -> bool:
    """Whether a training finished, but its journal lacks the last steps, or its losses are not
    finite there; then nothing later can be compared."""
    if run.learning.state is not RunState.FINISHED or run.learning.losses.empty:
        return False
    last = int(run.learning.losses.index[-1])
    has_length = spec.kind.trains_fully and spec.workload.has_known_length
    lacks_steps = has_length and last + 1 < run.num_planned_steps
    return lacks_steps or _last_finite(run) + LEAD_STEPS < last


def _last_finite(run: Evidence) -> int:
    """The last step with a finite loss; -1 without one."""
    finite = run.learning.losses.index[np.isfinite(run.learning.losses)]
    return int(finite.max()) if len(finite) else -1


def _judge(spec: ExperimentSpec, equals: EqualTrainings | None, run: Evidence) -> Parity:
    if equals is None:
        return rules.unknown_parity("no baseline")
    if not run.workload:
        return rules.unknown_parity("not begun")
    by_steps = _judge_steps(spec, equals, run)
    asks = asks_for_outcome(spec, equals.baseline, run, by_steps)
    if not asks and not may_hide_in_band(spec, run, by_steps):
        return by_steps
    by_outcome = judge_outcome(spec, [equals.baseline, *equals.controls], run, by_steps)
    if not asks and by_outcome.verdict != "worse" and not by_outcome.seems_worse:
        return by_steps
    return rules.judge_learning(by_outcome, equals.has_learned, equals.loss_fall)


def _judge_steps(spec: ExperimentSpec, equals: EqualTrainings, run: Evidence) -> Parity:
    begins = _other_beginning(equals.baseline, run)
    if begins is not None:
        return Parity(verdict="unknown", findings=(begins,))
    for other in (*equals.controls, run):
        unlike = _first_unlike(spec, equals.baseline, other)
        if unlike is not None:
            return _judge_before(equals, run, unlike)
    if any(len(judged.steps) and judged.learning.losses.empty for judged in (equals.baseline, run)):
        return rules.unknown_parity("no losses")
    parity = equals.judge(run)
    if run.learning.randomness.inference_draws:
        return break_parity(parity, rules.ParityFinding(kind="draws in inference"))
    return parity


def _other_beginning(baseline: Evidence, run: Evidence) -> ParityFinding | None:
    """The gravest difference of what two trainings begin with; None if there is none."""
    own, theirs = run.workload, baseline.workload
    sizes = [workload.get("num_parameters") for workload in (own, theirs)]
    has_other_weights = own.get("weights_sha256") != theirs.get("weights_sha256")
    if has_other_weights and None not in sizes and sizes[0] != sizes[1]:
        return ParityFinding(
            kind="another model", figures=dict(zip(("size", "baseline_size"), sizes, strict=True))
        )
    if run.batch_times > 1:
        size = theirs.get("samples_per_step")
        figures = {"times": run.batch_times, "baseline_size": size}
        return ParityFinding(kind="other batch", figures=figures)
    if has_other_weights:
        return ParityFinding(kind="other weights")
    hashes = [str(workload.get("data_sha256")) for workload in (own, theirs)]
    if hashes[0] != hashes[1]:
        return ParityFinding(kind="other samples", figures={"ranks": ranks_of_hashes(*hashes)})
    return None


def _own_changes(spec: ExperimentSpec, run: Evidence) -> str:
    """What a run's arm changes in the command, if that is not what the baseline changes."""
    first = spec.repeats_by_label[run.label][0]
    arm = next(possible for possible in spec.possible_arms if possible.label == first)
    base = spec.arms[0]
    is_other = any(getattr(arm, name) != getattr(base, name) for name in CHANGES)
    return change_words(arm) if is_other else ""


def _first_unlike(
    spec: ExperimentSpec, baseline: Evidence, other: Evidence
) -> ParityFinding | None:
    """The first difference between what two runs were given: data, or settings of optimizers."""
    changes = _own_changes(spec, other)
    declared = {"changes": changes} if changes else {}
    data = first_difference(baseline.learning.inputs, other.learning.inputs)
    settings = first_other_settings(baseline.learning.inputs, other.learning.inputs)
    is_control = other.role == "control"
    if settings is not None and (data is None or settings["first_step"] <= data["first_step"]):
        facts = {**settings, "is_control": is_control, "clock_reads": baseline.clock_reads}
        facts |= declared
        return ParityFinding(kind="other settings", figures=facts)
    if data is None:
        return None
    data |= declared
    return ParityFinding(kind="not repeatable" if is_control else "other inputs", figures=data)


def _judge_before(equals: EqualTrainings, run: Evidence, unlike: ParityFinding) -> Parity:
    """Broken if the steps before the difference already show a fault, for which it is no excuse;
    a fault may also have caused it. Otherwise unknown."""
    last_alike = unlike.figures["last_alike"]
    if last_alike is not None:
        losses, evaluations = run.learning.losses, run.learning.evaluations
        until_then = replace(
            run.learning,
            losses=losses[losses.index <= last_alike],
            evaluations=evaluations[evaluations.index <= last_alike + 1],
        )
        before = equals.judge(replace(run, learning=until_then))
        if before.verdict == "broken":
            return before
    return Parity(verdict="unknown", findings=(unlike,))


def no_band() -> pd.DataFrame:
    """The band of an experiment without a baseline or a control."""
    return pd.DataFrame({name: [] for name in ("step", "baseline", "low", "high")}, dtype=float)


def _last_num_samples(run: Evidence) -> int | None:
    samples = run.last_evaluation("num_samples")
    return None if samples is None or pd.isna(samples) else int(samples)


def draws_own_numbers(baseline: pd.Series, run: Evidence, precision: Precision) -> bool:
    """Whether the run's single losses cannot be judged, because it draws other random numbers than
    the baseline.

    A wrong backend also differs in the steps from the final state. Other numbers are not the cause
    if the first losses agree, or if the run is wrong without dropout and each of its dropouts drops
    exactly as many numbers as without a compiler.
    """
    randomness = run.learning.randomness
    if not randomness.draws_own_numbers or _agree_at_first(
        baseline, run.learning.losses, randomness.loss_spread
    ):
        return False
    eager, compiled = (
        [row["zeros"] for row in randomness.drawn(compiled=c)] for c in (False, True)
    )
    return not (
        eager and eager == compiled and _without_dropout(randomness, precision).verdict == "broken"
    )


def _agree_at_first(baseline: pd.Series, losses: pd.Series, spread: float) -> bool:
    pairs = pd.concat([baseline, losses], axis="columns", join="inner").sort_index()
    first = pairs.iloc[:FIRST_STEPS].astype(float)
    distance = math.sqrt(((first.iloc[:, 0] - first.iloc[:, 1]) ** 2).mean(skipna=False))
    return distance <= MAX_SHARE_OF_SPREAD * spread


def judge_own_numbers(baseline: pd.Series, run: Evidence, precision: Precision) -> Parity:
    """The parity from the three checks; the losses of training must only be finite where the
    baseline's are. The caller judges windows and evaluations."""
    randomness = run.learning.randomness
    parity = _without_dropout(randomness, precision)
    faults = find_dropout_faults(randomness.drawn(compiled=False), randomness.drawn(compiled=True))
    if faults:
        finding = ParityFinding(
            kind="dropout wrong", figures={"fault": faults[0], "count": len(faults)}
        )
        parity = _broken(parity, finding)
    redrawn = find_redraw_fault(randomness.distances, randomness.changes, precision)
    if redrawn is not None:
        parity = _broken(parity, ParityFinding(kind="redraws differ", figures=asdict(redrawn)))
    wrong = _first_not_finite(baseline, run.learning.losses)
    if wrong is not None:
        finding = ParityFinding(kind="not finite", figures={"first_step_outside": wrong})
        parity = replace(_broken(parity, finding), first_step_outside=wrong)
    return parity


def without_interval(readings: Sequence[Reading]) -> list[Reading]:
    """The readings with infinite intervals: how far other random numbers move equal trainings is
    unknown, so only the learning result can be judged."""
    return [replace(reading, interval=math.inf) for reading in readings]


def _without_dropout(randomness: Randomness, precision: Precision) -> Parity:
    forms = randomness.rehearsals
    own = ParityFinding(kind="own numbers")
    if not {"eager", "perturbed", "compiled"} <= forms.keys():
        return replace(
            unknown_parity("no rehearsal"), findings=(own, ParityFinding(kind="no rehearsal"))
        )
    rehearsed_parity = judge_losses(
        forms["eager"], [forms["perturbed"]], forms["compiled"], precision, len(forms["eager"])
    )
    rehearsed = [
        ParityFinding(
            kind="rehearsal", figures={"verdict": rehearsed_parity.verdict, **finding.figures}
        )
        if finding.kind in ("inside band", "hardly outside", "outside band")
        else finding
        for finding in rehearsed_parity.findings
    ]
    # Steps of a rehearsal are no steps of the training.
    return replace(
        rehearsed_parity,
        first_step_outside=None,
        last_step_in_band=None,
        findings=(own, *rehearsed),
    )


def _broken(parity: Parity, finding: ParityFinding) -> Parity:
    return replace(parity, verdict="broken", findings=(*parity.findings, finding))


def _first_not_finite(baseline: pd.Series, losses: pd.Series) -> int | None:
    pairs = pd.concat([baseline, losses], axis="columns", join="inner").astype(float)
    finite = pairs.map(math.isfinite)
    wrong = pairs.index[finite.iloc[:, 0] & ~finite.iloc[:, 1]]
    return int(wrong.min()) if len(wrong) else None
