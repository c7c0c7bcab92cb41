"""Journals of runs that were resumed, evaluated or predicted, for the tests of the run's page."""

from pathlib import Path
from typing import Any

import pandas as pd

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import CheckpointSpec, EvaluationSpec, ExperimentSpec
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

INDUCTOR = f"{EXPERIMENT_ID}.inductor"


LOSSES = falling_losses(40)


def recording(
    folder: DataDir,
    label: str,
    spec: ExperimentSpec | None = None,
    experiment_id: str = EXPERIMENT_ID,
) -> Recording:
    run = Recording(folder.runs, label, spec, experiment_id)
    return run.claim().start(labels=["bad", "good"])


def evaluate(run: Recording, step: int, split: str, compiled: bool, **metrics: float) -> None:
    loss = metrics.pop("loss")
    run.log.append(
        "evaluation",
        epoch=0,
        step=step,
        split=split,
        compiled=compiled,
        loss=loss,
        metrics=metrics,
        accuracy=metrics.get("accuracy"),
        num_samples=50,
        seconds=0.1,
    )


def predict(run: Recording, predictions: list[int], compiled: list[int] | None = None) -> None:
    """Four samples with labels 0, 0, 1, 1, and the run's predictions."""
    columns: dict[str, Any] = {"label": [0, 0, 1, 1], "prediction": predictions}
    columns["logits"] = [[1.0, 0.0] if answer == 0 else [0.0, 1.0] for answer in predictions]
    if compiled is not None:
        columns |= {"compiled_prediction": compiled, "compiled_logits": columns["logits"]}
    file = Path("artifacts/predictions-validation.parquet")
    (run.run.path / file).parent.mkdir(exist_ok=True)
    pd.DataFrame(columns).to_parquet(run.run.path / file)
    run.log.append("prediction", split="validation", file=str(file), num_samples=4)


def record_rich(folder: DataDir, experiment_id: str = EXPERIMENT_ID) -> None:
    """Everything that a run can record. The control differs from the baseline in one answer;
    inductor in two, and in one from its own weights."""
    spec = experiment_spec(
        checkpoints=CheckpointSpec(every=20, unit="steps"),
        evaluation=EvaluationSpec(metric="accuracy", predictions=("validation",)),
        callbacks=("/a/hooks.py:Mine",),
    )
    for label, answers in (("baseline", [0, 0, 1, 1]), ("control", [0, 1, 1, 1])):
        run = (
            recording(folder, label, spec, experiment_id).blocks([0.2] * 4, LOSSES).evaluation(0.8)
        )
        predict(run, answers)
        run.end()
    run = recording(folder, "inductor", spec, experiment_id).blocks([0.1] * 2, LOSSES[:20], 3.0)
    run.checkpoint(value=0.25).blocks([0.1] * 2, LOSSES[20:])
    run.checkpoint(value=0.75, removed=[20])
    for step, line, count in ((0, 7, 2), (0, 9, 1), (30, 7, 1)):
        run.log.append(
            "graph_break",
            step=step,
            phase="training",
            reason="print",
            location=f"mine.py:{line}",
            stopped_at="torch/x.py:1",
            count=count,
        )
    first = {"step": 0, "phase": "training", "compile_id": "0/0"}
    run.log.append("compile_started", trigger="DYNAMO", **first)
    run.log.append("compile_ended", trigger="DYNAMO", seconds=3.0, **first)
    took = {
        "dynamo_seconds": 1.0,
        "aot_seconds": 1.5,
        "inductor_seconds": 1.0,
        "code_seconds": 0.5,
        "kernel_seconds": 0.2,
        "total_seconds": 3.0,
        "graph_ops": 100,
    }
    for step, reason in ((0, None), (30, "0/0: size mismatch, expected 2, actual 3")):
        run.log.append(
            "compile_metrics",
            step=step,
            phase="training",
            compile_id="0/0",
            function="forward",
            file="mine.py",
            line=3,
            guards=4,
            recompile_reason=reason,
            **(took if step == 0 else {}),
        )
    run.log.append("value", step=1, name="weight norm", value=5.0)
    tensor = {"mean": 0.0, "deviation": 0.1, "largest": 0.5, "zeros": 0.0}
    for step in (0, 10):
        run.log.append(
            "gradient_statistics",
            step=step,
            tensors=[{"name": "layer.weight", "norm": 10.0, **tensor}],
        )
    for split in ("validation", "test"):
        for compiled in (False, True):
            evaluate(run, 40, split, compiled, loss=0.5, accuracy=0.75, f1=0.5)
    predict(run, [1, 0, 0, 1], [1, 1, 0, 1])
    copy = run.run.artifacts / "sources" / "hooks.py"
    copy.parent.mkdir(parents=True)
    copy.write_text("class Mine: ...")
    (folder.path / "secret.py").write_text("class Secret: ...")
    for file in ("artifacts/sources/hooks.py", "../../secret.py"):
        run.log.append("source", source="/a/hooks.py:Mine", file=file, sha256="ab12")
    run.end()
