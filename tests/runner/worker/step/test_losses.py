"""What training minimizes, against sums worked out by hand."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, TrainingSpec
from breakeven.runner.worker.data.splits import IGNORE, Dataset, make_split
from breakeven.runner.worker.model.loaded_workload import (
    CLASS_METRICS,
    Align,
    Workload,
    align_classes,
    align_next_tokens,
    align_numbers,
    load_workload,
)
from breakeven.runner.worker.model.losses import Objective, find_logits

CLASSES = torch.tensor([0, 1])
NUMBERS = torch.tensor([1.0, 3.0])


def workload(labels: Tensor, align: Align) -> Workload:
    split = make_split({"x": torch.zeros(len(labels), 1)}, labels)
    names = ("0", "1") if align is align_classes and labels.ndim == 1 else ()
    data = Dataset(train=split, validation=split, labels=names, vocabulary_size=None)
    return Workload(model=nn.Linear(1, 2), data=data, metrics=CLASS_METRICS, align=align)


def objective(
    *losses: str, labels: Tensor = CLASSES, align: Align = align_classes, **training: Any
) -> Objective:
    return Objective(TrainingSpec(losses=losses, **training), workload(labels, align))


def test_the_models_own_loss_alone_passes_through_untouched() -> None:
    loss = torch.tensor(0.3, requires_grad=True) * 1
    total, terms = objective("model")(SimpleNamespace(loss=loss), CLASSES)
    assert total is loss and terms is None


def test_several_terms_are_weighed_summed_and_kept_apart() -> None:
    sum_of_two = objective("0.5*MSELoss", "2*L1Loss", "model", labels=NUMBERS, align=align_numbers)
    assert sum_of_two.names == ("MSELoss", "L1Loss", "model")
    answers = torch.tensor([[2.0], [6.0]], requires_grad=True)
    total, terms = sum_of_two({"logits": answers, "loss": torch.tensor(7.0)}, NUMBERS)
    # Off by 1 and by 3: squares 1 and 9, mean 5; sizes 1 and 3, mean 2.
    assert terms is not None and not terms.requires_grad
    assert terms.tolist() == [5, 2, 7]
    assert total.item() == 0.5 * 5 + 2 * 2 + 7
    total.backward()
    # 0.5 * (2 * error / 2) + 2 * (1 / 2)
    assert answers.grad is not None and answers.grad.flatten().tolist() == [1.5, 2.5]
    single = objective("0.25*MSELoss", labels=NUMBERS, align=align_numbers)
    total, terms = single(torch.tensor([2.0, 6.0]), NUMBERS)
    assert (total.item(), terms) == (1.25, None)


def test_settings_reach_the_criterion() -> None:
    # At equal logits each of two classes has probability 1/2, whatever the smoothing and weights.
    even = torch.zeros(2, 2)
    total, _ = objective("CrossEntropyLoss:label_smoothing=0.2+weight=(1,3)")(even, CLASSES)
    assert total.item() == pytest.approx(0.6931472)  # ln 2
    # Logit differences of 2: -ln of the softmax is ln(1 + e^-2) right, and 2 more wrong.
    # Wrong in the sample of class 1, which weighs 3 of 4.
    uneven = torch.tensor([[2.0, 0.0], [2.0, 0.0]])
    total, _ = objective("CrossEntropyLoss:weight=(1,3)")(uneven, CLASSES)
    assert total.item() == pytest.approx(0.1269280 + 0.75 * 2, abs=1e-6)


def test_a_criterion_on_tokens_compares_each_with_the_one_after_it() -> None:
    labels = torch.tensor([[IGNORE, 1, 0, IGNORE]])
    # Certain of 1 after the first token and of 0 after the second: both right. After the third
    # comes nothing that counts, and after the last nothing at all.
    logits = torch.tensor([[[0.0, 9.0], [9.0, 0.0], [0.0, 9.0], [0.0, 9.0]]])
    loss = objective("CrossEntropyLoss", labels=labels, align=align_next_tokens)
    right, _ = loss(logits, labels)
    assert right.item() == pytest.approx(0.000123402, rel=1e-3)  # ln(1 + e^-9)
    wrong, _ = loss(logits.flip(-1), labels)
    assert wrong.item() == pytest.approx(9.000123402, rel=1e-6)


def test_fillers_change_neither_the_loss_nor_its_gradient() -> None:
    logits = torch.tensor([[0.3, -1.0], [0.2, 0.9], [5.0, -5.0]], requires_grad=True)
    loss = objective("CrossEntropyLoss", last_batch="pad")
    padded, _ = loss(logits, torch.tensor([0, 1, IGNORE]))
    real, _ = loss(logits[:2], torch.tensor([0, 1]))
    assert padded.item() == real.item()
    (gradient,) = torch.autograd.grad(padded, logits)
    assert gradient[2].tolist() == [0, 0]


def test_a_padded_batch_of_a_transformers_model_has_the_loss_of_its_real_samples() -> None:
    loaded = load_workload(
        ExperimentSpec(name="x", data=DataSpec(num_train_samples=90, sequence_length=16))
    )
    model = loaded.model.eval()
    indices = torch.tensor([0, 1, 2, 0, 0])
    padded = model(**loaded.data.train.batch(indices, num_real=3)).loss
    real = model(**loaded.data.train.batch(indices[:3])).loss
    assert padded.item() == pytest.approx(real.item(), rel=1e-6)


def test_an_objective_is_part_of_the_compilers_one_graph() -> None:
    loss = objective("model", "0.5*NLLLoss")

    def step(logits: Tensor) -> tuple[Tensor, Tensor | None]:
        output = SequenceClassifierOutput(loss=logits.square().mean(), logits=logits)
        return loss(output, CLASSES)

    torch._dynamo.reset()
    logits = torch.tensor([[0.5, 2.0], [1.0, -1.0]])
    compiled, terms = torch.compile(step, backend="eager", fullgraph=True)(logits)
    assert compiled == step(logits)[0] and terms is not None


def test_logits_are_found_in_every_kind_of_output_and_others_are_refused() -> None:
    logits = torch.ones(2, 2)
    for output in (
        logits,
        {"logits": logits},
        SimpleNamespace(logits=logits),
        SequenceClassifierOutput(logits=logits),
    ):
        assert find_logits(output) is logits
    with pytest.raises(WorkloadError, match=r"returned dict; it must return a tensor of logits"):
        find_logits({"scores": logits})


def test_a_model_without_a_loss_is_told_which_criterion_to_name() -> None:
    with pytest.raises(WorkloadError, match=r"no loss of its own.*\('CrossEntropyLoss',\)"):
        objective("model")(torch.zeros(2, 2), CLASSES)
    with pytest.raises(WorkloadError, match=r"\('MSELoss',\)"):
        objective("model", labels=NUMBERS, align=align_numbers)({"logits": NUMBERS}, NUMBERS)


@pytest.mark.parametrize(
    ("loss", "labels", "message"),
    [
        ("CrossEntropyLos", CLASSES, "'CrossEntropyLos', which is no criterion.*CrossEntropyLoss"),
        ("Linear", CLASSES, "'Linear', which is no criterion"),
        ("TripletMarginLoss", CLASSES, "'TripletMarginLoss', which is no criterion"),
        ("CrossEntropyLoss:smoothing=0.1", CLASSES, "do not fit torch.nn.CrossEntropyLoss"),
        ("CrossEntropyLoss:reduction=sum", CLASSES, "reduction=sum cannot.*must be the mean"),
        ("CrossEntropyLoss:weight=(1,2,3)", CLASSES, "cannot compare.*whole-number labels"),
        ("MSELoss", CLASSES, "cannot compare.*whole-number labels.*CrossEntropyLoss can"),
        ("NLLLoss", NUMBERS, "cannot compare.*numbers.*MSELoss"),
    ],
)
def test_a_criterion_that_does_not_fit_is_refused(loss: str, labels: Tensor, message: str) -> None:
    align = align_numbers if labels is NUMBERS else align_classes
    with pytest.raises(WorkloadError, match=message):
        objective(loss, labels=labels, align=align)


def test_a_criterion_that_cannot_leave_fillers_out_is_refused_only_where_there_are_some() -> None:
    objective("MultiMarginLoss")
    with pytest.raises(WorkloadError, match=r"some of them -100.*CrossEntropyLoss can"):
        objective("MultiMarginLoss", last_batch="pad")


@pytest.mark.parametrize(
    ("align", "logits", "labels"),
    [
        (align_numbers, (2, 2), (2,)),
        (align_classes, (2,), (2,)),
        (align_classes, (2, 1), (2,)),
        (align_classes, (2, 3, 5), (2, 4)),
    ],
)
def test_logits_that_do_not_belong_to_the_labels_are_refused_with_both_shapes(
    align: Align, logits: tuple[int, ...], labels: tuple[int, ...]
) -> None:
    with pytest.raises(WorkloadError) as caught:
        align(torch.zeros(logits), torch.zeros(labels))
    assert str(logits) in str(caught.value) and str(labels) in str(caught.value)
