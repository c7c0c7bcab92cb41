"""The comparison of runs that were resumed, stopped early, pad, or score more than an accuracy."""

import math

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import DataSpec, EvaluationSpec, TrainingSpec
from breakeven.storage.comparison.run_numbers import peak_flops
from breakeven.storage.terminal.report import report
from tests.helpers.comparisons import compared, minor_warnings_of, warnings_of
from tests.helpers.journals import Recording, experiment_spec, falling_losses

SPEC = experiment_spec(num_steps=80)
LOSSES = falling_losses(80)
H100 = "NVIDIA H100 80GB HBM3"


def record(data_dir: DataDir, label: str) -> Recording:
    return Recording(data_dir.runs, label, SPEC).claim().start()


def test_a_resumed_run_has_the_latency_of_its_first_part(data_dir: DataDir) -> None:
    for label in ("baseline", "control"):
        record(data_dir, label).blocks([0.2] * 8, LOSSES).end()
    run = record(data_dir, "inductor").blocks([0.1] * 4, LOSSES[:40], compile_seconds=3.0)
    compiler = {"step": 0, "phase": "training", "compile_id": "0/0"}
    run.log.append("compile_metrics", recompile_reason="size changed", **compiler)
    run.log.append("graph_break", reason="print", location="a.py:1", count=2, **compiler)
    # What compiles for evaluation is no cost of training; old journals have no phase for that.
    for phase in ("evaluating", None):
        frame = {"step": 0, "phase": phase, "recompile_reason": "size changed"}
        run.log.append("compile_metrics", **frame)
        run.log.append("graph_break", step=0, phase=phase, reason="print", count=5)
    # Killed in its fourth round, it goes on from step 30 in the fifth and compiles again.
    run.resume(30).block([5.1] + [0.1] * 9, LOSSES[30:40], compiled=[0])
    run.log.append("compile_metrics", recompile_reason="size changed", **compiler | {"step": 30})
    run.log.append("graph_break", reason="print", location="a.py:1", **compiler | {"step": 30})
    run.blocks([0.1] * 4, LOSSES[40:]).end()

    comparison = compared(data_dir)
    inductor = comparison.result_of("inductor")
    assert inductor.measured.num_steps == 80
    assert inductor.measured.compile_seconds == pytest.approx(3.0)  # 3.1 - 1 x 0.1
    assert (inductor.measured.graph_breaks, inductor.measured.recompiles) == (2 + 5, 1 + 1)
    # Rounds 1 and 2 before, 5 to 7 after: 0 and 4 compiled, 3 was taken back, and the baseline had
    # 8 rounds only.
    assert (inductor.speedup.n, inductor.speedup.median) == (5, pytest.approx(2.0))
    assert inductor.parity.verdict == "holds"
    assert warnings_of(comparison)[0] == (
        "inductor was resumed at step 30: its later part compiled again, and compile latency, "
        "graph breaks and recompiles count the first part only; rounds that it did without the "
        "baseline do not count."
    )


def test_it_is_said_where_a_run_went_on_on_another_number_of_devices(data_dir: DataDir) -> None:
    """On one of two from step 40, and on the same one from step 60."""
    run = record(data_dir, "baseline").blocks([0.2] * 4, LOSSES)
    run.resume(40, num_devices_before=2, num_devices=1).blocks([0.2] * 2, LOSSES[40:])
    run.resume(60, 3, num_devices_before=1, num_devices=1).blocks([0.2] * 2, LOSSES[60:])
    run.end()
    comparison = compared(data_dir)
    text = "baseline was resumed at step 40 and step 60: its later part ran in a new process; "
    assert warnings_of(comparison)[1].startswith(text)
    measured = comparison.results[0].measured
    assert (measured.real_tokens_per_second, measured.flops_per_second) == (None, None)
    assert warnings_of(comparison)[1].endswith(
        "do not count. It continued at step 40 on 1 instead of 2 devices: its step time, "
        "throughput and memory mix both parts."
    )


def test_runs_that_all_stopped_at_one_step_are_noted(data_dir: DataDir) -> None:
    labels = ("baseline", "control", "inductor")
    said = "loss has reached the threshold 1.5"
    for label in labels:
        record(data_dir, label).blocks([0.1] * 4, LOSSES).stop(said).end()
    comparison = compared(data_dir)
    assert minor_warnings_of(comparison) == tuple(
        f"{stopped} stopped at step 40 of 80: {said}." for stopped in labels
    )
    assert not any("stopped" in warning for warning in warnings_of(comparison))
    assert "minor warning: baseline stopped at step 40 of 80: loss has" in report(comparison)


def test_runs_that_stopped_at_different_steps_are_compared_with_a_warning(
    data_dir: DataDir,
) -> None:
    record(data_dir, "baseline").blocks([0.1] * 4, LOSSES).stop("good enough.").end()
    record(data_dir, "control").blocks([0.1] * 2, LOSSES).end(RunState.FAILED, "exit status 1")
    record(data_dir, "inductor").blocks([0.1] * 8, LOSSES).end()
    comparison = compared(data_dir)
    assert minor_warnings_of(comparison) == ()
    # The length of a run that failed is no choice.
    assert warnings_of(comparison)[:3] == (
        "control failed at step 20 of 80: exit status 1.",
        "baseline stopped at step 40 of 80: good enough.",
        "The runs trained for different numbers of steps: 40 (baseline), 80 (inductor). "
        "Their final losses and accuracies belong to trainings of different lengths.",
    )


def test_a_run_whose_loss_alone_diverged_breaks_parity(data_dir: DataDir) -> None:
    for label in ("baseline", "control"):
        record(data_dir, label).blocks([0.1] * 8, LOSSES).end()
    run = record(data_dir, "inductor").block([0.1] * 3, [*LOSSES[:2], math.nan])
    run.stop("the loss is nan").end()
    comparison = compared(data_dir)
    parity = comparison.result_of("inductor").parity
    assert (parity.verdict, parity.first_step_outside) == ("broken", 2)
    assert "inductor stopped at step 3 of 80: the loss is nan." in warnings_of(comparison)


def test_throughput_counts_tokens_and_operations(data_dir: DataDir) -> None:
    training = TrainingSpec(batch_size=8, precision="bf16")
    spec = experiment_spec(num_steps=80, training=training, devices=("cuda:0",))
    run = Recording(data_dir.runs, "baseline", spec)
    run.start(environment={"device_name": H100}, padding_share=0.25, flops_per_step=4.947e13)
    run.blocks([0.1] * 8, LOSSES)
    comparison = compared(data_dir)
    measured = comparison.results[0].measured
    assert measured.tokens_per_second == pytest.approx(10240)  # 1024 / 0.1
    assert measured.real_tokens_per_second == pytest.approx(7680)  # of which 3 in 4 are no padding
    assert measured.flops_per_second == pytest.approx(4.947e14)
    assert measured.peak_share == pytest.approx(0.5)  # of 989.4 TFLOPS


@pytest.mark.parametrize(
    ("device_name", "teraflops"),
    [
        (H100, (67, 494.7, 989.4, 989.4)),
        ("NVIDIA H100 PCIe", (51, 378, 756.5, 756.5)),
        ("NVIDIA H200", (67, 494.7, 989.4, 989.4)),
        ("NVIDIA A100-SXM4-40GB", (19.5, 156, 312, 312)),
        ("NVIDIA A100 80GB PCIe", (19.5, 156, 312, 312)),
        ("Tesla T4", (8.1, None, None, 65)),
        ("NVIDIA L4", (30.3, 60, 121, 121)),
        ("NVIDIA L40S", (91.6, 183, 362, 362)),
        ("NVIDIA L40", (None,) * 4),
        ("NVIDIA A10G", (None,) * 4),
        (f"{H100} MIG 1g.10gb", (None,) * 4),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", (None,) * 4),
        ("AMD EPYC 7T4", (None,) * 4),
        (None, (None,) * 4),
    ],
)
def test_devices_have_peaks(device_name: str | None, teraflops: tuple[float | None, ...]) -> None:
    peaks = [
        peak_flops(device_name, precision) for precision in ("float32", "tf32", "bf16", "fp16")
    ]
    assert peaks == [None if tera is None else pytest.approx(tera * 1e12) for tera in teraflops]


def test_every_score_of_the_last_evaluation_has_a_column(data_dir: DataDir) -> None:
    run = record(data_dir, "baseline").blocks([0.1] * 4, LOSSES)
    run.evaluation(0.25, metrics={"accuracy": 0.25, "f1": 0.125})
    run.blocks([0.1] * 4, LOSSES[40:])
    run.evaluation(0.5, metrics={"accuracy": 0.5, "f1": 0.375, "roc_auc": None})
    run.evaluation(0.75, metrics={"accuracy": 0.75, "f1": 0.875}, split="test")
    record(data_dir, "inductor").blocks([0.1] * 8, LOSSES).evaluation(0.5)
    comparison = compared(data_dir)
    assert comparison.result_of("baseline").measured.metrics == {"accuracy": 0.5, "f1": 0.375}
    assert comparison.result_of("inductor").measured.metrics == {"accuracy": 0.5}
    table = comparison.table()
    assert table["f1"].tolist() == [0.375, None]
    assert not {"roc_auc", "mse", "perplexity"} & set(table)


def test_a_regression_is_judged_by_its_losses_alone(data_dir: DataDir) -> None:
    data = DataSpec(num_train_samples=640, num_eval_samples=200, num_test_samples=200)
    spec = experiment_spec(num_steps=80, data=data, evaluation=EvaluationSpec(splits=("test",)))
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label, spec).claim().start(majority_share=None)
        run.blocks([0.1] * 8, LOSSES)
        run.evaluation(None, split="test", metrics={"mse": 0.25, "mae": 0.5}).end()
    comparison = compared(data_dir)
    inductor = comparison.result_of("inductor")
    assert (inductor.measured.accuracy, inductor.measured.metrics) == (
        None,
        {"mse": 0.25, "mae": 0.5},
    )
    assert inductor.parity.verdict == "holds"  # the falling loss shows that something was learned
    assert comparison.table()["mse"].tolist() == [0.25] * 3
