"""What a run's final weights say of every sample of a split, as a Parquet file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import torch
from torch import Tensor

from breakeven.runner.errors import WorkloadError
from breakeven.runner.folders.run_dir import UNFINISHED, RunDir
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.specs.training import SplitName
from breakeven.runner.worker.callbacks import Callback, TrainingState
from breakeven.runner.worker.data.splits import Split
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.model.workload import Align, align_classes, align_numbers
from breakeven.runner.worker.ranks.group import ALONE, Group
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.step.paired_answers import PairedAnswers


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
        self._precision = spec.experiment.training.precision
        self._compiled = evaluation.compiled and spec.variant.backend is not None
        self._run = run
        self._log = log
        self._inference = inference
        for split in self._splits.values():
            check_predictable(split, spec.experiment.task)

    def train_end(self, state: TrainingState) -> None:
        for name, split in self._splits.items():
            file = self._run.artifacts / f"predictions-{name}.parquet"
            pairs = PairedAnswers(_align(split), self._precision, self._group)
            write_predictions(
                self._inference, split, file, self._group, pairs if self._compiled else None
            )
            self._log.append(
                "prediction",
                split=name,
                file=str(file.relative_to(self._run.path)),
                num_samples=len(split),
                **({"step": state.step, "answers": pairs.told()} if self._compiled else {}),
            )


def check_predictable(split: Split, task: str) -> None:
    """Raises `WorkloadError` for labels of which a sample has more than one."""
    if split.labels.ndim != 1:
        raise WorkloadError(
            f"evaluation.predictions: task {task!r} has an answer for every token, and a file of "
            "all of them would outgrow the data; leave evaluation.predictions empty"
        )


def write_predictions(
    inference: Inference,
    split: Split,
    file: Path,
    group: Group = ALONE,
    pairs: PairedAnswers | None = None,
) -> None:
    """One row per sample, in the order of the split: label, prediction, logits. Each rank of
    `group` answers its part, and the first one writes.

    With `pairs` also `compiled_prediction` and `compiled_logits`, the answers of the same weights
    under the run's backend, which are compared there. A prediction is the class with the largest
    logit, or for labels that are no classes the one number that the model gives.
    """
    found: dict[str, list[Tensor]] = {"": []} if pairs is None else {"": [], "compiled_": []}
    for question in inference.questions(split):
        answers = [question.answer(compiled=bool(prefix)) for prefix in found]
        for mine, answer in zip(found.values(), answers, strict=True):
            mine.append(answer.logits.float().cpu())
        if pairs is not None:
            pairs.add(question, *answers)
    columns: dict[str, Any] = {"label": split.labels.cpu().numpy()}
    for prefix, parts in found.items():
        by_rank = group.gather(parts)
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


def _align(split: Split) -> Align:
    return align_numbers if split.labels.is_floating_point() else align_classes
