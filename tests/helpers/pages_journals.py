"""Journals of runs that were resumed, evaluated, predicted: what the page of a run shows."""

from pathlib import Path
from typing import Any

import pandas as pd

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from tests.helpers.journals import EXPERIMENT_ID, Recording, falling_losses

INDUCTOR = f"{EXPERIMENT_ID}.inductor"


LOSSES = falling_losses(40)


def recording(folder: DataDir, label: str, spec: ExperimentSpec | None = None) -> Recording:
    return Recording(folder.runs, label, spec).claim().start(labels=["bad", "good"])


def evaluate(run: Recording, step: int, split: str, compiled: bool, **metrics: float) -> None:
    loss = metrics.pop("loss")
    run.log.append("evaluation", epoch=0, step=step, split=split, compiled=compiled, loss=loss,
                   metrics=metrics, accuracy=metrics.get("accuracy"), num_samples=50,
                   seconds=0.1)  # fmt: skip


def predict(run: Recording, predictions: list[int], compiled: list[int] | None = None) -> None:
    """Four samples labelled 0, 0, 1, 1, and what the run took them for."""
    columns: dict[str, Any] = {"label": [0, 0, 1, 1], "prediction": predictions}
    columns["logits"] = [[1.0, 0.0] if answer == 0 else [0.0, 1.0] for answer in predictions]
    if compiled is not None:
        columns |= {"compiled_prediction": compiled, "compiled_logits": columns["logits"]}
    file = Path("artifacts/predictions-validation.parquet")
    (run.run.path / file).parent.mkdir(exist_ok=True)
    pd.DataFrame(columns).to_parquet(run.run.path / file)
    run.log.append("prediction", split="validation", file=str(file), num_samples=4)
