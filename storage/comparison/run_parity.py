"""The parity of an experiment's runs: what each recorded, by `storage.statistics.parity`."""

from collections.abc import Sequence

import pandas as pd

from runner.specs.experiment import ExperimentSpec
from storage.comparison.evidence import Evidence
from storage.statistics import parity as rules
from storage.statistics.learning import has_learned, learned_by_accuracy, learned_by_loss
from storage.statistics.loss_band import LEAD_STEPS, loss_band
from storage.statistics.outcomes import Reading, Trainings, readings
from storage.statistics.parity import Parity


def judge_parity(
    spec: ExperimentSpec, baseline: Evidence | None, controls: Sequence[Evidence], run: Evidence
) -> Parity | None:
    """None for what is not judged: baseline and controls, and what has no loss."""
    if run.role != "backend" or spec.is_inference or not spec.kind.compares_runs:
        return None
    if baseline is None:
        return rules.unknown("no baseline")
    if not run.workload:
        return rules.unknown("not begun")
    if run.workload.get("weights_sha256") != baseline.workload.get("weights_sha256"):
        return rules.unknown("other weights")
    if run.workload.get("data_sha256") != baseline.workload.get("data_sha256"):
        return rules.unknown("other samples")
    begun = [control for control in controls if len(control.losses)]
    if not begun:
        return rules.judge_without_control(baseline.losses, run.losses)
    parity = rules.judge_losses(
        baseline.losses,
        [control.losses for control in begun],
        run.losses,
        spec.training.precision,
        run.num_planned_steps,
    )
    parity = rules.judge_outcomes(parity, _readings(spec, parity, baseline, begun, run))
    learned = has_learned(
        baseline.losses.to_numpy(dtype=float),
        baseline.last_evaluation("accuracy"),
        baseline.workload.get("majority_share"),
        _last_num_samples(baseline),
    )
    parity = rules.judge_learning(parity, learned)
    return rules.doubt_dropout(parity) if spec.has_dropout else parity


def experiment_loss_band(
    spec: ExperimentSpec, baseline: Evidence | None, controls: Sequence[Evidence]
) -> pd.DataFrame:
    """`storage.statistics.loss_band` of the controls that have begun; empty without one."""
    begun = [control.losses for control in controls if len(control.losses)]
    if baseline is None or not begun:
        return pd.DataFrame({name: [] for name in ("step", "baseline", "low", "high")}, dtype=float)
    return loss_band(baseline.losses, begun, spec.training.precision)


def _readings(
    spec: ExperimentSpec,
    parity: Parity,
    baseline: Evidence,
    controls: Sequence[Evidence],
    run: Evidence,
) -> list[Reading]:
    """What the training came to from the end of the band on, and each of its evaluations."""
    band = experiment_loss_band(spec, baseline, controls)
    after, least = 0, 0.0
    if len(band):
        # Some steps later, because a correct backend may part from the baseline before the controls
        # do. The last steps of a band that did not end are as sure as the ones before them.
        last = band.iloc[-1]
        after = int(last["step"]) + 1 + (LEAD_STEPS if parity.band_ended else 0)
        least = 0.0 if parity.band_ended else float(last["high"] - last["baseline"])
    equals = (baseline, *controls)
    trainings = Trainings(
        equals=[(one.losses, one.evaluations) for one in equals],
        losses=run.losses,
        evaluations=run.evaluations,
        samples_per_step=baseline.workload.get("samples_per_step") or 1,
        learned=learned_by_loss([one.losses for one in equals]),
        learned_accuracy=learned_by_accuracy(
            [one.evaluations["accuracy"] for one in equals], baseline.workload.get("majority_share")
        ),
    )
    return readings(trainings, after, least)


def _last_num_samples(run: Evidence) -> int | None:
    samples = run.last_evaluation("num_samples")
    return None if samples is None else int(samples)
