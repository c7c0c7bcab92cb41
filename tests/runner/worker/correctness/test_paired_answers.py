"""Answers under a compiler beside those without one: what is rounding, and what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo import register_backend
from torch.fx import GraphModule

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.training import Precision, TrainingSpec
from breakeven.runner.worker.correctness.paired_answers import PairedAnswers, PerturbedRounding
from breakeven.runner.worker.data.splits import IGNORE, Split, make_split
from breakeven.runner.worker.model.loaded_workload import (
    Align,
    align_classes,
    align_next_tokens,
    align_numbers,
)
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.step.stepping import MixedPrecision

pytestmark = pytest.mark.usefixtures("fresh_torch")


class Net(nn.Module):
    """Logits of three classes, of numbers (samples, width)."""

    def __init__(self, spread: float = 1.0, outputs: int = 3) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.hidden = nn.Linear(64, 128)
        self.head = nn.Linear(128, outputs)
        with torch.no_grad():
            self.head.weight *= spread
            self.head.bias.fill_(0.25)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        logits: Tensor = self.head(torch.tanh(self.hidden(x)))
        return logits


def classes(num_samples: int = 22) -> Split:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(num_samples, 64, generator=generator)
    return make_split({"x": x}, torch.randint(3, (num_samples,), generator=generator))


def compared_answers(
    model: nn.Module,
    split: Split,
    backend: str = "eager",
    precision: Precision = "float32",
    align: Align = align_classes,
) -> dict[str, Any]:
    arm = Arm(label="other", role="backend", backend=backend)
    mixed = MixedPrecision(TrainingSpec(precision=precision), torch.device("cpu"))
    inference = Inference(model, mixed, arm, 8, own_loss=False)
    pairs = PairedAnswers(align, precision)
    for question in inference.questions(split):
        pairs.add(question, question.answer(compiled=False), question.answer(compiled=True))
    return pairs.fields()


def other_backend(change: Callable[[Tensor], Tensor]) -> str:
    """One that changes the logits (samples, ...) of each batch."""

    def changes_logits(graph: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        return lambda *given: [change(output) for output in graph.forward(*given)]

    name = f"changes_logits_{id(change)}"
    register_backend(changes_logits, name=name)
    return name


def in_double(graph: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """Computes in double precision, as no backend in float32 rounds."""

    def run(*given: Tensor) -> list[Tensor]:
        wide = [value.double() if value.is_floating_point() else value for value in given]
        return [output.float() for output in graph.forward(*wide)]

    return run


register_backend(in_double, name="in_double")


@pytest.mark.parametrize(
    ("backend", "spread"),
    [("eager", 1.0), ("in_double", 1.0), ("in_double", 1e-5), ("in_double", 0.0)],
)
def test_backends_that_round_otherwise_answer_rightly_however_close_the_classes(
    backend: str, spread: float
) -> None:
    answers = compared_answers(Net(spread), classes(), backend)
    assert (answers["compared"], answers["wrong"], answers["samples"]) == (22, 0, [])
    assert answers["ratio"] < 1 and answers["tolerance"] < 1e-4


def test_classes_that_rounding_chooses_between_are_no_wrong_answers() -> None:
    model = Net(0.0)  # all logits are 0.25
    ulp = torch.finfo(torch.float32).eps / 4
    sways = other_backend(lambda logits: logits + ulp * torch.eye(3)[2])
    answers = compared_answers(model, classes(), sways)
    assert (answers["differing"], answers["wrong"]) == (22, 0)


def test_under_autocast_rounding_goes_farther_and_faults_show_all_the_same() -> None:
    model, split = Net(), classes()
    right = compared_answers(model, split, "eager", "bf16")
    assert right["wrong"] == 0 and right["tolerance"] > 1e-3
    exchanges = other_backend(lambda logits: torch.cat([logits[:1].roll(1, 1), logits[1:]]))
    assert compared_answers(model, split, exchanges, "bf16")["samples"] == [0, 8, 16]


def test_a_model_that_prefers_no_class_clearly_hides_no_exchanged_classes() -> None:
    answers = compared_answers(
        Net(1e-4), classes(), other_backend(lambda logits: logits.roll(1, 1))
    )
    assert answers["differing"] == answers["wrong"] == 22
    assert answers["margin"] < 1e-3


class Masked(Net):
    """A fourth class that is never chosen; without a `mask`, by the least number of its type."""

    def __init__(self, mask: float | None) -> None:
        super().__init__(outputs=4)
        self.mask = mask

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        logits = super().forward(x)
        mask = torch.finfo(logits.dtype).min if self.mask is None else self.mask
        return logits.masked_fill(torch.arange(4) == 3, mask)


@pytest.mark.parametrize(
    ("mask", "precision"),
    [(-1e9, "float32"), (None, "float32"), (-torch.inf, "float32"), (-1e4, "bf16"), (None, "bf16")],
)
def test_a_masked_class_hides_no_exchanged_classes(
    mask: float | None, precision: Precision
) -> None:
    """The last place of a mask of -1e9 is 64 in float32, that of -1e4 in bf16 is 64, too."""

    def exchanges(logits: Tensor) -> Tensor:
        return torch.cat([logits[:, :3].roll(1, 1), logits[:, 3:]], 1)

    assert compared_answers(Masked(mask), classes(), "eager", precision)["wrong"] == 0
    assert (
        compared_answers(Masked(mask), classes(), other_backend(exchanges), precision)["wrong"]
        == 22
    )


def test_one_number_that_is_missing_is_one_wrong_answer() -> None:
    def loses_one(logits: Tensor) -> Tensor:
        logits[3, 1] = torch.nan
        return logits

    answers = compared_answers(Net(), classes(8), other_backend(loses_one))
    assert (answers["wrong"], answers["samples"], answers["difference"]) == (1, [3], torch.inf)
    # What is no number without a compiler is not compared.
    split = classes(8)
    split.inputs["x"][2] = torch.nan
    assert compared_answers(Net(), split)["wrong"] == 0


def test_numbers_are_compared_as_they_are() -> None:
    split = classes(16)
    numbers = make_split(split.inputs, split.labels.float())
    right = compared_answers(Net(outputs=1), numbers, "in_double", align=align_numbers)
    assert (right["compared"], right["differing"], right["wrong"]) == (16, 0, 0)
    off = other_backend(lambda values: values * (1 + 1e-3 * (torch.arange(8) == 5)[:, None]))
    wrong = compared_answers(Net(outputs=1), numbers, off, align=align_numbers)
    assert (wrong["wrong"], wrong["wrong_classes"], wrong["samples"]) == (2, 0, [5, 13])


def test_tokens_are_compared_where_the_label_has_one() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(10, 6, 64, generator=generator)
    labels = torch.randint(3, (10, 6), generator=generator)
    labels[:, 4:] = IGNORE

    def change(place: int) -> dict[str, Any]:
        def wrong(logits: Tensor) -> Tensor:
            logits[4, place] = logits[4, place].roll(1)
            return logits

        return compared_answers(
            Net(), make_split({"x": x}, labels), other_backend(wrong), align=align_next_tokens
        )

    answers = change(1)
    # Of the last batch the fifth is a filler.
    assert (answers["compared"], answers["wrong"], answers["samples"]) == (30, 1, [4])
    assert change(5)["wrong"] == 0, "nobody asks what follows padding"


class Routed(nn.Module):
    """Rounding decides which of two experts answers where their scores are nearly equal."""

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        scores = torch.stack([x.sum(1) * 0.1, x.flip(1).cumsum(1)[:, -1] * 0.1], 1)
        sure = torch.where(x[:, :1] > 0.5, scores, scores + torch.tensor([1.0, 0.0]))
        return torch.eye(3)[sure.argmax(1)] * 5 + x[:, :3]


def test_a_sample_that_rounding_sends_elsewhere_is_answered_more_than_once() -> None:
    class Doubly(Routed):
        def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
            return super().forward(x.double()).float()

    answers = compared_answers(Routed(), classes(64), "in_double")
    assert answers["differing"] > 0, "rounding sends none elsewhere: the test asks nothing"
    assert answers["wrong"] == 0 and answers["difference"] <= answers["tolerance"]


def test_a_pass_that_is_rounded_otherwise_leaves_what_is_exact() -> None:
    mask = torch.tensor([0.0, 1.0, 3.0, -torch.inf])
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with PerturbedRounding(0, torch.device("cpu")):
        exact = mask * 1.0
        moved = torch.full((1000,), 0.3) * 1.0
    assert exact.tolist() == mask.tolist()
    steps = (moved / 0.3 - 1).abs() / torch.finfo(torch.float32).eps
    assert 0 < steps.max() < 2 and 0.5 < (steps > 0.1).float().mean() < 0.8
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.full((3,), 0.3) * 1.0, torch.full((3,), 0.3))


def test_a_model_that_cannot_be_rounded_otherwise_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise NotImplementedError("no rule for this operation")

    monkeypatch.setattr(PerturbedRounding, "_moved", refuse)
    answers = compared_answers(Net(), classes(8))
    assert answers == {"error": "NotImplementedError: no rule for this operation"}


@pytest.mark.parametrize(
    "change",
    [lambda logits: torch.cat([logits, logits[:, :1]], 1), lambda logits: logits[:, :2]],
    ids=["a class more", "a class less"],
)
def test_answers_of_another_shape_are_all_wrong(change: Callable[[Tensor], Tensor]) -> None:
    answers = compared_answers(Net(), classes(), other_backend(change))
    assert (answers["compared"], answers["wrong"]) == (22, 22)
