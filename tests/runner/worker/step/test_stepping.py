"""Accumulation, clipping and schedules, against what a person would write by hand."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec
from breakeven.runner.specs.training import NO_OPTIMIZER
from breakeven.runner.worker.callbacks import Hooks, TrainingState
from breakeven.runner.worker.compiler.compile_with_backend import Compile
from breakeven.runner.worker.data.splits import Dataset, MicroBatch, make_split
from breakeven.runner.worker.model.loaded_workload import Workload
from breakeven.runner.worker.model.losses import Objective
from breakeven.runner.worker.step.optimizers import LearningRate, make_optimizers
from breakeven.runner.worker.step.stepping import (
    MixedPrecision,
    Step,
    StepMaker,
    StepResult,
    uncompiled_copy,
)

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("fresh_torch")


class Answer:
    """What a transformers model returns, as far as a step looks at it."""

    def __init__(self, loss: torch.Tensor) -> None:
        self.loss = loss


class Line(nn.Module):
    """Mean squared error of a line through the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> Answer:
        return Answer((inputs @ self.slope - labels).square().mean())


def batches(count: int, size: int = 4) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        {
            "inputs": torch.randn(size, 3, generator=generator),
            "labels": torch.randn(size, generator=generator),
        }
        for _ in range(count)
    ]


def plain(function: Any) -> Any:
    return function


def windows(given: list[dict[str, torch.Tensor]]) -> list[MicroBatch]:
    """One window of micro-batches of equal size."""
    return [MicroBatch(batch, torch.tensor(1 / len(given))) for batch in given]


def make_step(
    spec: TrainingSpec,
    model: Line,
    optimizers: list[torch.optim.Optimizer],
    compile: Compile = plain,
    *,
    like_harness: bool = False,
) -> Step:
    split = make_split({"inputs": torch.zeros(2, 3)}, torch.zeros(2))
    data = Dataset(train=split, validation=split, labels=(), vocabulary_size=None)
    workload = Workload(model=model, data=data, metrics=("mse",), align=lambda *pair: pair)
    hooks = Hooks([], TrainingState(model=model, optimizers=optimizers))
    objective, precision = Objective(spec, workload), MixedPrecision(spec, CPU)
    maker = StepMaker(
        model, objective, optimizers, precision, spec, hooks, like_harness=like_harness
    )
    return maker.make("iteration", compile)


def build(
    compile: Compile = plain, *, like_harness: bool = False, **training: Any
) -> tuple[Line, Callable[..., StepResult], torch.optim.Optimizer]:
    """A model, its step as a function of the batches of a window, and its optimizer."""
    spec = TrainingSpec(**{"optimizer": "SGD", "learning_rate": 0.1, **training})
    model = Line()
    optimizers = make_optimizers(spec, model, CPU)
    step = make_step(spec, model, optimizers, compile, like_harness=like_harness)
    return model, lambda given: step(windows(given)), optimizers[0]


def gradient_of_all(given: list[dict[str, torch.Tensor]]) -> torch.Tensor:
    model = Line()
    joined = {name: torch.cat([batch[name] for batch in given]) for name in given[0]}
    model(**joined).loss.backward()
    assert model.slope.grad is not None
    return model.slope.grad


@pytest.mark.parametrize("size_of_window", [3, 2])
def test_a_window_steps_like_one_large_batch_the_last_smaller_one_too(size_of_window: int) -> None:
    given = batches(size_of_window)
    model, step, _ = build(gradient_accumulation=3)
    before = model.slope.detach().clone()
    result = step(given)
    torch.testing.assert_close(model.slope.detach(), before - 0.1 * gradient_of_all(given))
    losses = [Line()(**batch).loss.item() for batch in given]
    assert result.loss.item() == pytest.approx(sum(losses) / size_of_window)


def test_in_the_harness_s_order_gradients_are_cleared_before_a_step_and_inputs_are_copied() -> None:
    given = batches(3)
    usual, usual_step, _ = build()
    model, step, _ = build(like_harness=True)
    seen: list[torch.Tensor] = []
    model.register_forward_pre_hook(lambda *call: seen.append(call[2]["inputs"]), with_kwargs=True)
    for batch in given:
        assert step([batch]).loss.equal(usual_step([batch]).loss)
        assert seen[-1].equal(batch["inputs"]) and seen[-1] is not batch["inputs"]
    assert model.slope.equal(usual.slope)
    assert model.slope.grad is not None and usual.slope.grad is None


def test_a_copy_is_trained_without_a_compiler_and_leaves_the_model_as_it_is() -> None:
    """By gradient descent at 0.1 on one batch, what the usual step would make of the model."""
    spec = TrainingSpec(optimizer="SGD", learning_rate=0.1)
    model, usual_step, _ = build()
    before = model.slope.detach().clone()
    seen: list[torch.Tensor] = []

    def objective(output: Answer, labels: torch.Tensor) -> tuple[torch.Tensor, None]:
        seen.append(output.loss.detach())
        return output.loss, None

    step = uncompiled_copy(model, objective, ExperimentSpec(name="x", training=spec), CPU)
    (batch,) = batches(1)
    step(windows([batch]))
    step(windows([batch]))
    assert model.slope.equal(before) and model.slope.grad is None
    expected = [usual_step([batch]).loss, usual_step([batch]).loss]
    assert seen == expected and seen[1] < seen[0]


def test_gradients_are_clipped_by_norm_or_value_and_their_norm_is_recorded() -> None:
    given = batches(1)
    gradient = gradient_of_all(given)
    model, step, _ = build(clip_norm=0.25)
    before = model.slope.detach().clone()
    result = step(given)
    assert result.gradient_norm is not None
    assert result.gradient_norm.item() == pytest.approx(gradient.norm().item())
    assert gradient.norm() > 0.25
    moved = (before - model.slope.detach()) / 0.1
    assert moved.norm().item() == pytest.approx(0.25, rel=1e-4)
    torch.testing.assert_close(moved / moved.norm(), gradient / gradient.norm())
    model, step, _ = build(clip_value=0.05)  # cuts each element
    assert step(given).gradient_norm is None
    torch.testing.assert_close((before - model.slope.detach()) / 0.1, gradient.clamp(-0.05, 0.05))
    _, step, _ = build(record_gradient_norm=True)  # without clipping
    norm = step(given).gradient_norm
    assert norm is not None and norm.item() == pytest.approx(gradient.norm().item())


class TwoLayers(nn.Module):
    """Two parameters with names to pick them by."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)


def test_parameters_picked_by_name_have_an_optimizer_of_their_own() -> None:
    model = TwoLayers()
    spec = TrainingSpec(
        optimizer="AdamW",
        optimizer_options={"weight_decay": 0.5},
        learning_rate=0.1,
        parameter_groups=("head.*:optimizer=SGD+lr=0.01+momentum=0.9",),
    )
    rest, head = make_optimizers(spec, model, CPU)
    assert isinstance(rest, torch.optim.AdamW) and isinstance(head, torch.optim.SGD)
    assert rest.param_groups[0]["params"] == [model.body.weight]
    assert head.param_groups[0]["params"] == [model.head.weight]
    assert (rest.defaults["lr"], rest.defaults["weight_decay"]) == (0.1, 0.5)
    assert (head.defaults["lr"], head.defaults["momentum"]) == (0.01, 0.9)
    assert head.defaults["weight_decay"] == 0
    (any_of_torchs,) = make_optimizers(TrainingSpec(optimizer="NAdam"), model, CPU)
    assert type(any_of_torchs) is torch.optim.NAdam


def test_a_schedule_changes_all_rates_in_proportion() -> None:
    spec = TrainingSpec(
        optimizer="SGD", learning_rate=1.0, scheduler="linear", parameter_groups=("head.*:lr=0.1",)
    )
    optimizers = make_optimizers(spec, TwoLayers(), CPU)
    rate = LearningRate(spec, 4, optimizers)
    rate.step_done()
    rates_now = [float(optimizer.param_groups[0]["lr"]) for optimizer in optimizers]
    assert rates_now == pytest.approx([0.75, 0.075])


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"optimizer": "Adamm"}, "'Adamm': torch.optim has no such optimizer"),
        ({"optimizer": "lr_scheduler"}, "'lr_scheduler': torch.optim has no such optimizer"),
        (
            {"optimizer": "SGD", "optimizer_options": {"beta": 1}},
            r"optimizer_options = \{'beta': 1\} do not fit.*SGD",
        ),
        (
            {"parameter_groups": ("head.*:lr=0.1", "head.weight:lr=0.2")},
            r"'head.weight:lr=0.2' matches no parameter.*body",
        ),
        (
            {"scheduler": "step", "scheduler_options": {"stride": 2}},
            r"scheduler_options = \{'stride': 2\} do not fit",
        ),
    ],
)
def test_an_optimizer_or_a_schedule_that_cannot_be_made_is_refused_with_its_options(
    training: dict[str, Any], message: str
) -> None:
    spec = TrainingSpec(**training)
    with pytest.raises(WorkloadError, match=message):
        LearningRate(spec, 4, make_optimizers(spec, TwoLayers(), CPU))


def rates(num_steps: int, **training: Any) -> list[float]:
    spec = TrainingSpec(**{"learning_rate": 1.0, "optimizer": "SGD", **training})
    (optimizer,) = optimizers = make_optimizers(spec, Line(), CPU)
    rate = LearningRate(spec, num_steps, optimizers)
    seen = []
    for _ in range(num_steps):
        seen.append(rate.current)
        assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(rate.current)
        rate.step_done()
    return seen


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, [1, 1, 1, 1]),
        ({"warmup_steps": 2}, [0, 0.5, 1, 1]),
        ({"scheduler": "linear"}, [1, 0.75, 0.5, 0.25]),
        ({"scheduler": "linear", "warmup_steps": 2}, [0, 0.5, 1, 0.5]),
        # (1 + cos(pi t / 4)) / 2 at t = 0, 1, 2, 3
        ({"scheduler": "cosine"}, [1, 0.853553, 0.5, 0.146447]),
        # Two cosines of two steps each: (1 + cos(pi t / 2)) / 2 at t = 0, 1, 0, 1
        (
            {"scheduler": "cosine_with_restarts", "scheduler_options": {"num_cycles": 2}},
            [1, 0.5, 1, 0.5],
        ),
        ({"scheduler": "step", "scheduler_options": {"step_size": 2}}, [1, 1, 0.1, 0.1]),
        (
            {"scheduler": "multistep", "scheduler_options": {"milestones": (1, 3), "gamma": 0.5}},
            [1, 0.5, 0.5, 0.25],
        ),
    ],
)
def test_schedules_give_the_rates_of_their_formulas(
    training: dict[str, Any], expected: list[float]
) -> None:
    assert rates(4, **training) == pytest.approx(expected, abs=1e-6)


def test_a_plateau_lowers_the_rate_when_the_held_out_loss_stops_falling() -> None:
    options = {"patience": 0, "factor": 0.5}
    spec = TrainingSpec(learning_rate=1.0, scheduler="plateau", scheduler_options=options)
    rate = LearningRate(spec, 10, make_optimizers(spec, Line(), CPU))
    for loss, expected in ((2.0, 1.0), (1.0, 1.0), (1.5, 0.5), (1.5, 0.25)):
        rate.evaluated(loss)
        assert rate.current == expected


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_another_learning_rate_does_not_recompile(optimizer: str) -> None:
    counter = CompileCounter()
    spec = TrainingSpec(optimizer=optimizer, learning_rate=0.1, scheduler="cosine", warmup_steps=2)
    model = Line()
    made = make_optimizers(spec, model, CPU)
    rate = LearningRate(spec, 20, made)
    step = make_step(spec, model, made, partial(torch.compile, backend=counter))
    frames, seen = [], set()
    for batch in batches(12):
        step(windows([batch]))
        seen.add(round(rate.current, 6))
        rate.step_done()
        frames.append(counter.frame_count)
    assert len(seen) > 8
    # The optimizer's state comes into being in the first step and may cost one compilation more.
    assert frames[2] == frames[-1]


@pytest.mark.parametrize("compiled", [True, False])
def test_a_warm_up_from_zero_leaves_weights_without_gradient_alone(compiled: bool) -> None:
    spec = TrainingSpec(learning_rate=0.1, scheduler="cosine", warmup_steps=2)
    model = Line()
    optimizers = make_optimizers(spec, model, CPU)
    rate = LearningRate(spec, 20, optimizers)
    compile = partial(torch.compile, backend="eager") if compiled else plain
    step = make_step(spec, model, optimizers, compile)
    (batch,) = batches(1)
    batch["inputs"][:, 1] = 0  # so the second weight has no gradient
    before = model.slope.detach().clone()
    for expected_moves in (False, True):
        step(windows([batch]))
        rate.step_done()
        moved = model.slope.detach() - before
        assert bool((moved[[0, 2]].abs() > 1e-3).all()) is expected_moves
        assert moved[1] == 0


def test_a_smaller_last_window_does_not_recompile() -> None:
    counter = CompileCounter()
    _, step, _ = build(partial(torch.compile, backend=counter), gradient_accumulation=3)
    for _ in range(2):
        step(batches(3))
    before = counter.frame_count
    step(batches(2))
    assert counter.frame_count == before


def test_without_an_optimizer_a_compiled_step_leaves_the_weights_and_clears_the_gradients() -> None:
    counter = CompileCounter()
    model, step, _ = build(partial(torch.compile, backend=counter), optimizer=NO_OPTIMIZER)
    before = model.slope.detach().clone()
    losses = {step([batch]).loss.item() for batch in 2 * batches(3)}
    assert model.slope.equal(before) and model.slope.grad is None
    assert len(losses) == 3 and counter.frame_count > 0
