"""A loss that is not finite: the layer is named in which that begins."""

from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn

from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.runner.worker.device.device_kinds import open_device
from breakeven.runner.worker.investigation.lockstep import Lockstep, Watch
from breakeven.runner.worker.investigation.trial_outcomes import PASSES
from breakeven.runner.worker.model.loaded_workload import load_workload
from tests.helpers.loop import FAULTS

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]


class Layer(nn.Module):
    """Applies a function to its input, times a weight."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.function(self.weight * x)


class Net(nn.Module):
    """Two layers, with code of its own between them."""

    def __init__(
        self,
        first: Callable[[Tensor], Tensor] = torch.sin,
        between: Callable[[Tensor], Tensor] = torch.cos,
    ) -> None:
        super().__init__()
        self.first, self.between, self.second = Layer(first), between, Layer(torch.sin)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.full((2,), -torch.inf)
        return self.second(self.between(self.first(x)), mask)


def watched(model: nn.Module, x: Tensor, loss: Callable[[Tensor], Tensor] = torch.sum) -> Any:
    with Watch(model) as watch:
        loss(model(x)).backward()
    return watch.place, watch.phase


def rooted(x: Tensor) -> Tensor:
    """The root of 0 is 0, and its gradient is not finite."""
    return torch.sqrt(x - x)


@pytest.mark.parametrize(
    ("model", "place", "phase"),
    [
        (Net(), None, None),
        (Net(first=lambda x: torch.log(-x)), "layer first (Layer)", "forward pass"),
        (
            Net(between=lambda x: torch.log(x - 9)),
            "code of model Net before layer second (Layer)",
            "forward pass",
        ),
        (Net(first=rooted), "layer first (Layer)", "backward pass"),
        (Net(between=rooted), "code of model Net after layer first (Layer)", "backward pass"),
        (
            nn.Sequential(nn.Linear(1, 1), Net(first=lambda x: x * torch.inf)),
            "layer 1.first (Layer)",
            "forward pass",
        ),
    ],
)
def test_the_layer_or_the_code_around_it_is_named(
    model: nn.Module, place: str | None, phase: str | None
) -> None:
    assert watched(model, torch.ones(2, 1)) == (place, phase)


def test_data_weights_and_the_loss_function_are_told_from_layers() -> None:
    nan = torch.tensor([torch.nan])
    assert watched(Net(), nan) == ("the model's inputs, which are data", None)
    assert watched(Net(), torch.ones(1), lambda x: rooted(x).sum())[0] == "the loss function"
    net = Net()
    net.second.weight.data.fill_(torch.inf)
    assert watched(net, torch.ones(1)) == ("weight second.weight before the step", None)


def test_no_hook_outlives_its_step() -> None:
    class Given(nn.Module):
        """Gives a parameter of its own to a layer, as models with learned queries do."""

        def __init__(self) -> None:
            super().__init__()
            self.queries, self.layer = nn.Parameter(torch.ones(2)), Layer(torch.sin)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.queries) * x

    model = Given()
    for _ in range(2):
        assert watched(model, torch.ones(2)) == (None, None)
    with Watch(model) as watch:
        model(torch.ones(2))
    model.queries.sum().mul(torch.nan).backward()
    assert watch.place is None


def test_tensors_of_a_micro_batch_live_no_longer_than_without_the_watch() -> None:
    results = []
    model = nn.Sequential(Layer(torch.sin), Layer(torch.cos))
    model[0].register_forward_hook(lambda module, args, output: results.append(ref(output)))
    with Watch(model):
        for _ in range(2):
            model(torch.ones(2)).sum().backward()
        assert [reference() for reference in results] == [None, None]


def trained(model: str, steps: int, **training: Any) -> Any:
    """The outcome of a real training without a compiler."""
    spec = ExperimentSpec(
        name="not finite",
        task="custom",
        backends=("eager",),
        model=ModelSpec(source=f"{FAULTS / model}"),
        data=DataSpec(
            source=f"{FAULTS / 'relu_net.py'}:samples", num_train_samples=320, num_eval_samples=10
        ),
        training=TrainingSpec(
            losses=("CrossEntropyLoss",), batch_size=16, max_steps=20, epochs=2, **training
        ),
    )
    return Lockstep(spec, load_workload(spec), open_device("cpu"), 1e-4).baseline(steps)


def test_a_logarithm_of_a_negative_number_is_found_in_its_layer() -> None:
    outcome = trained("failing_models.py:Logarithmic", 4, learning_rate=1e-3)
    assert (outcome.kind, outcome.step, outcome.error) == ("raises", 2, "the loss is not finite")
    assert (outcome.tensor, outcome.quantity) == ("layer scale (Logarithm)", "forward pass")
    assert outcome.detail == "the loss is not finite, first in layer scale (Logarithm)"


def test_a_learning_rate_that_makes_a_layer_overflow_is_found_in_this_layer() -> None:
    assert trained("relu_net.py:ReluNet", 6, learning_rate=1e-3) == PASSES
    outcome = trained("relu_net.py:ReluNet", 6, learning_rate=1e4, optimizer="SGD")
    # What the first block returns has 22 digits by then. The norm squares that, and numbers of
    # single precision end at 3e38.
    assert (outcome.step, outcome.quantity) == (2, "forward pass")
    assert outcome.tensor == "layer blocks.1.norm (LayerNorm)"
