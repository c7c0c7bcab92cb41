"""Metrics over batches, against values worked out by hand."""

import pytest
import torch
from torch import Tensor, nn

from breakeven.runner.specs.training import Metric
from breakeven.runner.worker.data.splits import IGNORE, Dataset, make_split
from breakeven.runner.worker.model import loaded_workload
from breakeven.runner.worker.model.task_metrics import Scores

CPU = torch.device("cpu")


def scores(
    metrics: tuple[Metric, ...], align: loaded_workload.Align = loaded_workload.align_classes
) -> Scores:
    split = make_split({}, torch.tensor([0, 1]))
    data = Dataset(train=split, validation=split, labels=(), vocabulary_size=None)
    return Scores(
        loaded_workload.Workload(model=nn.Identity(), data=data, metrics=metrics, align=align), CPU
    )


def predicting(classes: list[int], num_classes: int) -> Tensor:
    return nn.functional.one_hot(torch.tensor(classes), num_classes).float()


def test_metrics_of_classes_over_two_batches() -> None:
    judged = scores(loaded_workload.CLASS_METRICS)
    # Labels 0 0 0 1 1 2, answers 0 0 1 1 1 1: four of six right.
    judged.update(predicting([0, 0, 1, 1], 3), torch.tensor([0, 0, 0, 1]))
    judged.update(predicting([1, 1], 3), torch.tensor([1, 2]))
    values = judged.compute()
    assert list(values) == list(loaded_workload.CLASS_METRICS)
    assert values["accuracy"] == 4 / 6
    # By class: 2 of 2 named 0 were 0, 2 of 4 named 1 were 1, none was named 2.
    assert values["precision"] == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert values["recall"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    # 2 x right / (named + real): 4/5, 4/6, 0.
    assert values["f1"] == pytest.approx((4 / 5 + 4 / 6 + 0) / 3)


def test_the_area_under_the_curve_takes_each_class_against_the_rest() -> None:
    judged = scores(("roc_auc",))
    # Three classes; the softmax of such logits gives these probabilities.
    probabilities = torch.tensor(
        [[0.7, 0.2, 0.1], [0.1, 0.55, 0.35], [0.5, 0.1, 0.4], [0.2, 0.5, 0.3]]
    )
    labels = torch.tensor([0, 1, 2, 2])
    judged.update(probabilities[:3].log(), labels[:3])
    judged.update(probabilities[3:].log(), labels[3:])
    # Class 0: 0.7 beats 0.1, 0.5, 0.2: 1. Class 1: 0.55 beats 0.2, 0.1, 0.5: 1.
    # Class 2: of the pairs of 0.4 and 0.3 with 0.1 and 0.35, only 0.3 loses to 0.35: 3/4.
    assert judged.compute()["roc_auc"] == pytest.approx((1 + 1 + 3 / 4) / 3)


def test_logits_between_zero_and_one_are_no_probabilities() -> None:
    judged = scores(("roc_auc",))
    # The softmax of the second row is (0.67, 0.33), of the third (0.55, 0.45).
    logits = torch.tensor([[0.0, 0.1], [0.9, 0.2], [0.4, 0.2]])
    judged.update(logits, torch.tensor([1, 0, 1]))
    # By softmax both pairs are won. By the plain second column, 0.2 against 0.2 were a tie.
    assert judged.compute()["roc_auc"] == 1


def test_what_nothing_was_judged_of_is_undefined() -> None:
    judged = scores(("accuracy", "roc_auc"))
    assert judged.compute() == {"accuracy": None, "roc_auc": None}
    judged.update(predicting([0, 1], 3), torch.tensor([0, 1]))  # none of the third class
    assert judged.compute() == {"accuracy": 1.0, "roc_auc": None}
    assert scores(loaded_workload.TOKEN_METRICS).compute() == {"accuracy": None, "perplexity": None}


def test_fillers_do_not_count() -> None:
    judged = scores(loaded_workload.CLASS_METRICS)
    judged.update(predicting([0, 1, 1, 1], 2), torch.tensor([0, 1, IGNORE, IGNORE]))
    judged.update(predicting([0], 2), torch.tensor([IGNORE]))
    assert set(judged.compute().values()) == {1.0}


def test_tokens_are_judged_by_the_one_that_follows() -> None:
    judged = scores(loaded_workload.TOKEN_METRICS, loaded_workload.align_next_tokens)
    # Sure of nothing between four tokens; of 2 and 1 alone equally after the second.
    even, two = [0.0] * 4, [-1e4, 0.5, 0.6, -1e4]
    logits = torch.tensor([[even, two, even, even]])
    judged.update(logits, torch.tensor([[IGNORE, 3, 2, IGNORE]]))
    values = judged.compute()
    # The first answer is token 0 where 3 follows, the second is 2, which is right.
    assert values["accuracy"] == 1 / 2
    # Token 3 had probability 1/4, token 2 that of 1 / (1 + e^-0.1) = 0.5249792.
    assert values["perplexity"] == pytest.approx((4 / 0.5249792) ** 0.5, rel=1e-5)


def test_metrics_of_numbers() -> None:
    judged = scores(loaded_workload.NUMBER_METRICS, loaded_workload.align_numbers)
    judged.update(torch.tensor([[1.0], [2.0]]), torch.tensor([1.5, 4.0]))
    judged.update(torch.tensor([[0.0]]), torch.tensor([-1.0]))
    # Off by 0.5, 2 and 1.
    assert judged.compute() == {
        "mse": pytest.approx((0.25 + 4 + 1) / 3),
        "mae": pytest.approx(3.5 / 3),
    }


def test_half_precision_logits_are_judged_like_full_ones() -> None:
    full, half = scores(("roc_auc", "accuracy")), scores(("roc_auc", "accuracy"))
    logits, labels = torch.tensor([[2.0, 1.0], [0.5, 1.5], [1.0, 0.25]]), torch.tensor([0, 1, 1])
    full.update(logits, labels)
    half.update(logits.bfloat16(), labels)
    assert half.compute() == full.compute()


def test_a_model_that_diverged_is_still_judged() -> None:
    judged = scores((*loaded_workload.CLASS_METRICS, "perplexity"))
    judged.update(torch.full((2, 2), torch.nan), torch.tensor([0, 1]))
    values = judged.compute()
    assert values["accuracy"] == 1 / 2  # the largest of nothing but NaN is the first
    assert values["perplexity"] != values["perplexity"]
