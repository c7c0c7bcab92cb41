"""What a run's final weights say of every sample of a split, as a Parquet file."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import torch
from torch import Tensor

from runner.errors import WorkloadError
from runner.folders.run_dir import UNFINISHED, RunDir
from runner.specs.experiment import RunSpec
from runner.specs.training import SplitName
from runner.worker.callbacks import Callback, TrainingState
from runner.worker.data.splits import Split
from runner.worker.event_log import EventLog
from runner.worker.ranks.group import ALONE, Group
from runner.worker.step.inference import Inference


class Predictions(Callback):
    """Writes the prediction files of a run when training is over."""

    def __init__(
        self,
        spec: RunSpec,
        run: RunDir,
        log: EventLog,
        inference: Inference,
        splits: Mapping[SplitName, Split],
        group: Group = ALONE,
    ) -> None:
        self._group = group
        evaluation = spec.experiment.evaluation
        self._splits = {name: splits[name] for name in evaluation.predictions}
        self._compiled = evaluation.compiled and spec.variant.backend is not None
        self._run = run
        self._log = log
        self._inference = inference
        for split in self._splits.values():
            check_predictable(split, spec.experiment.task)

    def train_end(self, state: TrainingState) -> None:
        for name, split in self._splits.items():
            file = self._run.artifacts / f"predictions-{name}.parquet"
            write_predictions(self._inference, split, file, self._group, compiled=self._compiled)
            self._log.append(
                "prediction",
                split=name,
                file=str(file.relative_to(self._run.path)),
                num_samples=len(split),
            )


def check_predictable(split: Split, task: str) -> None:
    """Raises `WorkloadError` for labels of which a sample has more than one."""
    if split.labels.ndim != 1:
        raise WorkloadError(
            f"evaluation.predictions: task {task!r} has an answer for every token, and a file of "
            "all of them would outgrow the data; leave evaluation.predictions empty"
        )


def write_predictions(
    inference: Inference, split: Split, file: Path, group: Group = ALONE, *, compiled: bool
) -> None:
    """One row per sample, in the order of the split: label, prediction, logits. Each rank of
    `group` answers its part, and the first one writes.

    With `compiled` also `compiled_prediction` and `compiled_logits`, the answers of the same
    weights under the run's backend. A prediction is the class with the largest logit, or for labels
    that are no classes the one number that the model gives.
    """
    columns: dict[str, Any] = {"label": split.labels.cpu().numpy()}
    for prefix, under_backend in (("", False), ("compiled_", True))[: 2 if compiled else 1]:
        by_rank = group.gather(list(_logits(inference, split, compiled=under_backend)))
        logits = torch.cat([part for batch in zip(*by_rank, strict=True) for part in batch])
        is_class = not split.labels.is_floating_point()
        chosen = logits.argmax(-1) if is_class else logits.reshape(len(logits))
        columns[f"{prefix}prediction"] = chosen.numpy()
        columns[f"{prefix}logits"] = list(logits.reshape(len(logits), -1).numpy())
    if group.rank > 0:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(UNFINISHED)
    pyarrow.parquet.write_table(pa.table(columns), beside)
    os.replace(beside, file)


def _logits(inference: Inference, split: Split, *, compiled: bool) -> Iterator[Tensor]:
    for answer in inference.answers(split, compiled=compiled):
        yield answer.logits.float().cpu()
