"""Small workloads for every task."""

from pathlib import Path
from typing import Any

import pandas as pd

from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.runner.worker.model.loaded_workload import Workload, load_workload

BUILTIN = {
    "text_classification": ("builtin:bert-tiny", "builtin:reviews"),
    "image_classification": ("builtin:vit-small", "builtin:digits"),
    "causal_lm": ("builtin:gpt2-tiny", "builtin:reviews"),
    "masked_lm": ("builtin:bert-tiny", "builtin:reviews"),
}
SMALL = {"num_train_samples": 6, "num_eval_samples": 2, "num_test_samples": 0, "sequence_length": 8}
"""The fewest samples that a test needs: 8 in all."""


def spec(
    task: str,
    model: str | Path | None = None,
    data: str | Path | None = None,
    *,
    dropout: Any = "auto",
    **changes: Any,
) -> ExperimentSpec:
    """60 samples of 16 tokens, 20 for validation and 10 for testing, unless `changes` differ."""
    usual = BUILTIN.get(task, ("", ""))
    sizes = {"num_train_samples": 60, "num_eval_samples": 20, "num_test_samples": 10}
    fields = {"sequence_length": 16, **sizes, **changes}
    return ExperimentSpec(
        name="x",
        task=task,
        model=ModelSpec(source=str(model or usual[0]), dropout=dropout),
        data=DataSpec(source=str(data or usual[1]), **fields),
        training=TrainingSpec(seed=7, batch_size=1),
    )


def load(*arguments: Any, **changes: Any) -> Workload:
    return load_workload(spec(*arguments, **changes))


def texts_file(folder: Path, texts: list[str | None]) -> Path:
    """Texts without labels."""
    pd.DataFrame({"text": texts}).to_parquet(folder / "texts.parquet")
    return folder / "texts.parquet"
