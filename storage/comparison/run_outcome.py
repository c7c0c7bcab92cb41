"""Judges another training by its outcome, from the records of its run and of equal trainings.

An arm that changes the mathematics has other losses than the baseline, without a fault. It is asked
whether what it learned from as many samples is as good (`storage.statistics.as_good`).
"""

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict, replace

import numpy as np
import pandas as pd

from breakeven.runner.judged_outcome import Outcome
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.experiment_fields import CONTROLS_FOR_WORSE
from breakeven.runner.specs.values import parse_margin
from breakeven.storage.comparison.evidence import Evidence
from breakeven.storage.comparison.shortfall import find_held_out_shortfall
from breakeven.storage.statistics.as_good import (
    LEAST_SHARE,
    SAME_SIZE,
    evaluations_on_one_scale,
    find_outcome,
    first_losses,
    on_one_scale,
    outcome_of_losses,
)
from breakeven.storage.statistics.outcomes import (
    NUM_WINDOWS,
    Trainings,
    learned_by_loss,
    loss_fall,
)
from breakeven.storage.statistics.parity import (
    BEGINNINGS,
    FAULTS_BESIDE_LOSSES,
    FindingKind,
    Parity,
    ParityFinding,
)
from breakeven.storage.statistics.steps_to_loss import find_steps_to_loss

LEAVES_BAND: tuple[FindingKind, ...] = (
    *BEGINNINGS,
    "hardly outside",
    "no band",
    "dropout",
    "other numbers",
    "own numbers",
    "no rehearsal",
)
"""Findings by which unknown parity may come from a change of mathematics."""
EVALUATED = ("num_samples", "inputs_sha256")
"""Columns of evaluations that say which samples they had."""
NAMED_FAULTS: tuple[FindingKind, ...] = (*FAULTS_BESIDE_LOSSES, "not finite")
"""Faults that a change of mathematics does not explain."""


def asks_for_outcome(
    spec: ExperimentSpec, baseline: Evidence, run: Evidence, by_steps: Parity
) -> bool:
    """Whether a run is judged by its outcome; `by_steps`: its parity, judged step by step.

    By default an arm that declares another mathematics is, if its losses leave the band while there
    is one, or if it ended before the baseline: then equal steps are no equal training. An arm that
    computes the same still matches, and one that leaves its band later has a fault.
    """
    kinds = {finding.kind for finding in by_steps.findings}
    if kinds.intersection(FAULTS_BESIDE_LOSSES) or not spec.kind.trains_fully:
        return False  # Steps of the scenario `speed` repeat a few batches, and learn nothing else.
    if spec.same == "outcome" or run.batch_times > 1:
        return True
    if spec.same == "steps" or not run.changes_training or kinds.intersection(NAMED_FAULTS):
        return False
    if by_steps.verdict == "broken":
        diverges = by_steps.max_ratio_to_band == np.inf
        has_band = by_steps.last_step_in_band is not None
        return not diverges and (by_steps.found_in_band or not has_band)
    if by_steps.verdict == "holds":
        are_over = all(ended.learning.state is RunState.FINISHED for ended in (baseline, run))
        return are_over and is_shorter(baseline, run)
    return by_steps.verdict == "unknown" and bool(kinds.intersection(LEAVES_BAND))


def may_hide_in_band(spec: ExperimentSpec, run: Evidence, by_steps: Parity) -> bool:
    """Whether an arm that declares another mathematics stays in a band which may be as wide as a
    worse outcome: equal trainings with much noise have such a band."""
    may_be_other = spec.same == "auto" and spec.kind.trains_fully and run.changes_training
    return may_be_other and by_steps.verdict == "holds"


def is_shorter(baseline: Evidence, run: Evidence) -> bool:
    """Whether a run had surely fewer samples than the baseline."""
    done = round(len(run.learning.losses) * samples_ratio(baseline, run))
    return done < LEAST_SHARE * len(baseline.learning.losses)


def judge_outcome(
    spec: ExperimentSpec, equals: Sequence[Evidence], run: Evidence, by_steps: Parity
) -> Parity:
    """The parity of a run that is judged by its outcome. The baseline is the first of `equals`;
    what a training that learned nothing shows is the caller's question."""
    begins = tuple(finding for finding in by_steps.findings if finding.kind in BEGINNINGS)
    undecided = Parity(verdict="not decided", by_outcome=True, findings=begins)
    baseline = equals[0]
    if not all(judged.learning.state.is_final for judged in (baseline, run)):
        return _with_finding(undecided, ParityFinding(kind="not over"))
    diverged = _where_diverged(run)
    if diverged is not None:
        figures = {"first_step_outside": diverged}
        worse = replace(undecided, verdict="worse", first_step_outside=diverged)
        return _with_finding(worse, ParityFinding(kind="not finite", figures=figures))
    ratio, num_steps = samples_ratio(baseline, run), len(baseline.learning.losses)
    done = round(len(run.learning.losses) * ratio)
    if is_shorter(baseline, run):
        figures = {"steps_done": done, "num_steps": num_steps}
        return _with_finding(undecided, ParityFinding(kind="far shorter", figures=figures))
    controls = [
        control for control in equals[1:] if len(control.learning.losses) >= LEAST_SHARE * num_steps
    ]
    if not controls:
        return _with_finding(undecided, ParityFinding(kind="no control"))
    return _compared(spec, undecided, [baseline, *controls], run)


def samples_ratio(baseline: Evidence, run: Evidence) -> float:
    """The samples of a run's step over those of the baseline's. If tokens differ by another factor,
    the smaller counts: a training with shorter samples has not seen as much."""
    if run.batch_times > 1:
        return float(run.batch_times)
    both = [(run.per_step(size), baseline.per_step(size)) for size in ("samples", "tokens")]
    ratios = [own / theirs for own, theirs in both if own and theirs]
    least = min(ratios, default=1.0)
    return 1.0 if abs(least - 1) <= SAME_SIZE else least


def _where_diverged(run: Evidence) -> int | None:
    """The first of the last losses, a tenth of all, that is not finite; None if all are."""
    losses = run.learning.losses
    end = losses.iloc[-max(1, len(losses) // NUM_WINDOWS) :]
    wrong = end.index[~np.isfinite(end.to_numpy(dtype=float))]
    return int(wrong[0]) if len(wrong) else None


def _compared(
    spec: ExperimentSpec, undecided: Parity, equals: Sequence[Evidence], run: Evidence
) -> Parity:
    baseline, margin = equals[0], parse_margin(spec.margin)
    ratio = samples_ratio(baseline, run)
    scaled = _on_one_scale(run, baseline, ratio)
    theirs, own = on_one_scale(
        baseline.learning.losses,
        [control.learning.losses for control in equals[1:]],
        run.learning.losses,
        ratio,
    )
    trainings = Trainings(
        equals=[
            (losses, judged.learning.evaluations)
            for losses, judged in zip(theirs, equals, strict=True)
        ],
        losses=own,
        evaluations=scaled.learning.evaluations,
        samples_per_step=baseline.workload.get("samples_per_step") or 1,
        learned=learned_by_loss(loss_fall(theirs[0].to_numpy(dtype=float)), theirs),
        learned_accuracy=None,
        num_judged=spec.num_judged_by_outcome,
    )
    by_losses = outcome_of_losses(trainings, margin)
    outcome = find_outcome(trainings, margin, len(baseline.learning.losses))
    if outcome is None:
        return _with_finding(undecided, ParityFinding(kind="no losses"))
    judged = replace(undecided, verdict=outcome.verdict, outcome=outcome)
    kinds = {finding.kind for finding in undecided.findings}
    doubts = [*_doubts(trainings, outcome, by_losses, kinds)]
    if by_losses is not None and not doubts:
        judged = replace(judged, to_loss=find_steps_to_loss(trainings, by_losses))
    for doubt in doubts:
        is_worse = outcome.verdict == "worse"
        judged = replace(judged, verdict="worse" if is_worse else "not decided")
        judged = _with_finding(judged, doubt)
    judged = _with_finding(judged, ParityFinding(kind="outcome", figures={"outcome": outcome}))
    shortfall = find_held_out_shortfall(equals, scaled, but=outcome.quantity)
    if shortfall is None or outcome.verdict == "worse":
        return judged
    worse = ParityFinding(kind="also worse", figures=asdict(shortfall))
    is_known = outcome.num_controls >= CONTROLS_FOR_WORSE or not math.isfinite(shortfall.value)
    return _with_finding(replace(judged, verdict="worse" if is_known else "not decided"), worse)


def _doubts(
    trainings: Trainings, outcome: Outcome, by_losses: Outcome | None, kinds: Set[FindingKind]
) -> Iterator[ParityFinding]:
    """Why an outcome that is as good or better does not show that the training is: what reports it
    belongs to the arm, and may have been changed with it."""
    has_same_weights = kinds.isdisjoint({"another model", "other weights"})
    first = first_losses(trainings)
    if first is not None:
        figures = {"value": first.value, "expected": first.expected}
        if first.is_of_another_measure and has_same_weights and outcome.quantity != "accuracy":
            yield ParityFinding(kind="another loss", figures=figures)
        elif first.is_of_another_measure and first.value < first.expected:
            yield ParityFinding(kind="begins ahead", figures=figures)
        elif first.is_of_another_function and not kinds and outcome.is_lower:
            yield ParityFinding(kind="another function", figures=figures)
    if outcome.quantity != "loss" and _is_evaluated_otherwise(trainings, outcome.step):
        yield ParityFinding(kind="other evaluation")
    if (
        outcome.quantity != "loss"
        and by_losses is not None
        and (by_losses.seems_worse or (outcome.is_lower and by_losses.excess >= 0))
    ):
        figures = {"value": by_losses.value, "expected": by_losses.expected}
        yield ParityFinding(kind="losses are worse", figures=figures)


def _is_evaluated_otherwise(trainings: Trainings, step: int) -> bool:
    """Whether the last evaluation had other samples than the equal trainings', which had the same
    ones."""
    own, *equals = (
        frame.reindex(columns=EVALUATED).reindex([step]).iloc[0].tolist()
        for frame in (trainings.evaluations, *(frame for _, frame in trainings.equals))
    )
    return any(
        len(set(known)) == 1 and pd.notna(known[0]) and pd.notna(value) and value != known[0]
        for value, known in zip(own, zip(*equals, strict=True), strict=True)
    )


def _on_one_scale(run: Evidence, baseline: Evidence, ratio: float) -> Evidence:
    """The run with its evaluations by the baseline's steps."""
    evaluations = evaluations_on_one_scale(
        run.learning.evaluations, baseline.learning.evaluations, ratio
    )
    return replace(run, learning=replace(run.learning, evaluations=evaluations))


def _with_finding(parity: Parity, finding: ParityFinding) -> Parity:
    return replace(parity, findings=(*parity.findings, finding))
