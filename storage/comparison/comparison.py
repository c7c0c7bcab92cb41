"""The comparison of an experiment's runs: every number and verdict that Breakeven shows of it.

`docs/metrics.md` defines each of them. Nothing here is stored: it is computed from the raw steps,
blocks and evaluations whenever it is asked for, also while the runs go on.
"""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import pandas as pd

from runner.specs.experiment import ExperimentSpec
from storage import queries
from storage.comparison.cautions import cautions, notes
from storage.comparison.device_doubts import device_doubts
from storage.comparison.evidence import Evidence, load_evidence
from storage.comparison.repeats import pool
from storage.comparison.results import Comparison, Result
from storage.comparison.rounds import paired_blocks
from storage.comparison.run_parity import experiment_loss_band, judge_parity
from storage.index.store import Store
from storage.statistics.inference import break_parity, judge_inference
from storage.statistics.parity import Parity
from storage.statistics.speedups import (
    BreakEven,
    Ratio,
    SpeedVerdict,
    break_even,
    holm,
    noise_floor,
    paired_ratio,
    speed_verdict,
)
from storage.statistics.training_loss import loss_excess

MAX_KEPT = 16
"""Comparisons kept per store; the longest ones hold some megabytes of loss band."""
_kept: WeakKeyDictionary[Store, dict[str, tuple[tuple[int, int], Comparison]]] = WeakKeyDictionary()


def compare(store: Store, experiment_id: str) -> Comparison:
    """Compares an experiment's runs as far as they have got; raises `NotInStore`.

    Kept until the store takes in something new of the experiment, so asking again costs a query.
    """
    kept = _kept.setdefault(store, {})
    # Before the evidence is loaded: what arrives meanwhile then counts as new the next time.
    revision = queries.revision(store, experiment_id)
    known = kept.get(experiment_id)
    if known is not None and known[0] == revision:
        return known[1]
    comparison = _compare(store, experiment_id)
    kept[experiment_id] = (revision, comparison)
    for oldest in list(kept)[:-MAX_KEPT]:
        kept.pop(oldest, None)
    return comparison


def _compare(store: Store, experiment_id: str) -> Comparison:
    spec, processes = load_evidence(store, experiment_id)
    runs = pool(spec, processes)
    baseline = _find(runs, "baseline")
    controls = [run for run in runs if run.role == "control"]
    pairs = [paired_blocks(baseline, run) for run in runs]
    speedups = [
        paired_ratio(pair["baseline"], pair["other"], pair["process"])
        if spec.compares_runs
        else None
        for pair in pairs
    ]
    floor = noise_floor(
        [ratio for run, ratio in zip(runs, speedups, strict=True) if run.role == "control"]
    )
    tested = [
        ratio.p_value if ratio is not None and run.role == "backend" else None
        for run, ratio in zip(runs, speedups, strict=True)
    ]
    results = [
        _result(
            spec,
            run,
            ratio,
            p_holm,
            floor,
            pair,
            judge_parity(spec, baseline, controls, run),
            _loss_excess(baseline, run),
            device_doubts(run, baseline),
        )
        for run, ratio, p_holm, pair in zip(runs, speedups, holm(tested), pairs, strict=True)
    ]
    return Comparison(
        experiment_id=experiment_id,
        spec=spec,
        baseline="baseline",
        results=tuple(results),
        warnings=cautions(spec, processes, runs, speedups, floor),
        notes=notes(spec, processes, runs, speedups),
        noise_floor=floor,
        loss_band=experiment_loss_band(spec, baseline, controls),
    )


def _find(runs: Sequence[Evidence], role: str) -> Evidence | None:
    return next((run for run in runs if run.role == role), None)


def _result(
    spec: ExperimentSpec,
    run: Evidence,
    speedup: Ratio | None,
    p_holm: float | None,
    floor: float | None,
    pairs: pd.DataFrame,
    parity: Parity | None,
    training_loss_excess: float | None,
    doubts: tuple[str, ...],
) -> Result:
    verdict: SpeedVerdict | None = None
    if run.role == "backend" and len(run.steps) and spec.compares_runs:
        verdict = "unsure" if speedup is None else speed_verdict(speedup, p_holm, floor)
    precision = spec.training.precision
    first_loss = None if run.losses.empty else float(run.losses.iloc[0])
    inference = judge_inference(run.scores, first_loss, precision)
    return Result(
        run_id=run.run_id,
        label=run.label,
        role=run.role,
        backend=run.backend,
        state=str(run.state),
        num_steps=len(run.steps),
        step_seconds=run.step_seconds,
        samples_per_second=run.per_second("samples_per_step"),
        tokens_per_second=run.per_second("tokens_per_step"),
        real_tokens_per_second=run.real_tokens_per_second,
        flops_per_second=run.per_second("flops_per_step"),
        peak_share=run.peak_share(precision),
        speedup=speedup,
        p_holm=p_holm,
        speed_verdict=verdict,
        compile_seconds=run.compile_seconds,
        peak_memory_bytes=run.peak_memory_bytes,
        compile_peak_memory_bytes=run.compile_peak_memory_bytes,
        reserved_memory_bytes=run.reserved_memory_bytes,
        accuracy=run.last_evaluation("accuracy"),
        eval_loss=run.last_evaluation("loss"),
        metrics=run.last_scores(next(iter(spec.evaluation.splits), "validation")),
        final_loss=run.final_loss,
        parity=parity and break_parity(parity, inference.fault),
        inference_gap=inference.gap,
        training_loss_excess=training_loss_excess,
        break_even=_break_even(run, pairs) if spec.compares_runs else None,
        graph_breaks=run.num_graph_breaks,
        recompiles=run.num_recompiles,
        distinct_graph_breaks=run.num_distinct_graph_breaks,
        guards=run.num_guards,
        device_doubts=doubts,
    )


def _break_even(run: Evidence, pairs: pd.DataFrame) -> BreakEven | None:
    compile_seconds, step_seconds = run.compile_seconds, run.step_seconds
    if compile_seconds is None or step_seconds is None:
        return None
    gains = (pairs["baseline"] - pairs["other"]) / pairs["num_steps"]
    steps_per_epoch = run.workload.get("steps_per_epoch")
    return break_even(compile_seconds, gains, step_seconds, steps_per_epoch, pairs["process"])


def _loss_excess(baseline: Evidence | None, run: Evidence) -> float | None:
    if baseline is None or run.role == "baseline":
        return None
    return loss_excess(baseline.losses, run.losses)
