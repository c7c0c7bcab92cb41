"""Loss and metrics on a split, and the answers for all its samples as a Parquet file."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from breakeven.runner.errors import WorkloadError
from breakeven.runner.files import replacement
from breakeven.runner.specs.training import Precision, SplitName
from breakeven.runner.worker.callbacks import Callback, TrainingState
from breakeven.runner.worker.context import ALONE, RankGroup, RunContext
from breakeven.runner.worker.correctness.paired_answers import PairedAnswers
from breakeven.runner.worker.data.splits import Split
from breakeven.runner.worker.model.loaded_workload import (
    Align,
    Workload,
    align_classes,
    align_numbers,
)
from breakeven.runner.worker.model.losses import Objective
from breakeven.runner.worker.step.inference import Answer, Inference, Question


class _Tally:
    """Loss and metrics of one form of the model, compiled or not."""

    def __init__(
        self,
        workload: Workload,
        objective: Objective,
        split: Split,
        group: RankGroup,
        compiled: bool,
    ) -> None:
        from breakeven.runner.worker.model.task_metrics import Scores  # needs torchmetrics

        self.compiled = compiled
        self._objective = objective
        self._group = group
        device = split.labels.device
        self._scores = Scores(workload, device, group)
        self._total, self._num_targets = torch.zeros((), device=device), 0
        self._seconds = 0.0

    def ask(self, question: Question) -> Answer:
        """Gets the model's answer and adds it to loss and metrics."""
        started = time.perf_counter()
        answer = question.answer(compiled=self.compiled)
        loss, _ = self._objective(answer.output, answer.labels)
        if answer.num_targets:  # a rank without samples would add NaN
            self._total += loss.float() * answer.num_targets
        self._num_targets += answer.num_targets
        self._scores.update(answer.logits, answer.labels[: len(answer.logits)])
        self._total.item()  # waits for the device, so that the next form's time excludes this
        self._seconds += time.perf_counter() - started
        return answer

    def fields(self) -> dict[str, Any]:
        """The fields of an `evaluation` event, the same on every rank."""
        started = time.perf_counter()
        metrics = self._group.share(self._scores.compute())
        totals = self._group.gather((self._total.item(), self._num_targets))
        return {
            "compiled": self.compiled,
            "loss": sum(loss for loss, _ in totals) / sum(count for _, count in totals),
            "metrics": metrics,
            "accuracy": metrics.get("accuracy"),
            "seconds": self._seconds + time.perf_counter() - started,
        }


@torch.no_grad()
def evaluate(
    inference: Inference,
    workload: Workload,
    objective: Objective,
    name: SplitName,
    split: Split,
    *,
    precision: Precision,
    compiled: bool,
    group: RankGroup = ALONE,
) -> list[dict[str, Any]]:
    """Evaluates a split; returns fields of `evaluation` events: mean loss per target, metrics,
    samples, and seconds.

    The first event is without a compiler. With `compiled` the second is under the backend, batch by
    batch in turns, with the distance between the answers (`PairedAnswers`). `split` is on the
    model's device. Each rank of `group` answers its part; all ranks get the same result.
    """
    forms = (False, True) if compiled else (False,)
    tallies = [_Tally(workload, objective, split, group, form) for form in forms]
    pairs = PairedAnswers(workload.align, precision, group)
    for question in inference.questions(split):
        answers = [tally.ask(question) for tally in tallies]
        if compiled:
            pairs.add(question, *answers)
    results = [{"split": name, **tally.fields(), "num_samples": len(split)} for tally in tallies]
    if compiled:
        results[-1]["answers"] = pairs.fields()
    return results


class Predictions(Callback):
    """Writes the prediction files of a run when training is over."""

    def __init__(
        self, context: RunContext, inference: Inference, splits: Mapping[SplitName, Split]
    ) -> None:
        self._run, self._log, self._group = context.run, context.log, context.group
        experiment, evaluation = context.experiment, context.experiment.evaluation
        self._splits = {name: splits[name] for name in evaluation.predictions}
        self._precision = experiment.training.precision
        self._compiled = evaluation.compiled and context.arm.backend is not None
        self._inference = inference
        for split in self._splits.values():
            check_predictable(split, experiment.task)

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
                **({"step": state.step, "answers": pairs.fields()} if self._compiled else {}),
            )


def check_predictable(split: Split, task: str) -> None:
    """Raises `WorkloadError` if a sample has more than one label."""
    if split.labels.ndim != 1:
        raise WorkloadError(
            f"evaluation.predictions: task {task!r} has an answer for every token, and a file of "
            "all of them would outgrow the data; leave evaluation.predictions empty"
        )


def write_predictions(
    inference: Inference,
    split: Split,
    file: Path,
    group: RankGroup = ALONE,
    pairs: PairedAnswers | None = None,
) -> None:
    """Writes a row per sample, in the order of the split: label, prediction, logits. Each rank of
    `group` answers its part; rank 0 writes.

    With `pairs`, adds `compiled_prediction` and `compiled_logits`, the answers of the same weights
    under the run's backend, and compares them. A prediction is the class with the largest logit;
    if labels are no classes, it is the model's one number.
    """
    logits_by_form: dict[str, list[Tensor]] = (
        {"": []} if pairs is None else {"": [], "compiled_": []}
    )
    for question in inference.questions(split):
        answers = [question.answer(compiled=bool(prefix)) for prefix in logits_by_form]
        for parts, answer in zip(logits_by_form.values(), answers, strict=True):
            parts.append(answer.logits.float().cpu())
        if pairs is not None:
            pairs.add(question, *answers)
    columns: dict[str, Any] = {"label": split.labels.cpu().numpy()}
    for prefix, parts in logits_by_form.items():
        by_rank = group.gather(parts)
        logits = torch.cat([part for batch in zip(*by_rank, strict=True) for part in batch])
        is_class = not split.labels.is_floating_point()
        chosen = logits.argmax(-1) if is_class else logits.reshape(len(logits))
        columns[f"{prefix}prediction"] = chosen.numpy()
        columns[f"{prefix}logits"] = list(logits.reshape(len(logits), -1).numpy())
    if group.rank > 0:
        return
    import pyarrow as pa
    import pyarrow.parquet

    file.parent.mkdir(parents=True, exist_ok=True)
    with replacement(file) as unfinished:
        pyarrow.parquet.write_table(pa.table(columns), unfinished)


def _align(split: Split) -> Align:
    return align_numbers if split.labels.is_floating_point() else align_classes
