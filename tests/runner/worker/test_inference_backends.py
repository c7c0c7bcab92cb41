"""A backend for inference alone is named as what it is when a training fails under it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.backends.registry import list_backends, register_backend
from torch.fx import GraphModule

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.variants import parse_backend
from breakeven.runner.worker.compiler.compiling import explained, make_compiler
from tests.helpers.loop import torch_afresh

pytestmark = pytest.mark.heavy


def without_gradients(graph: GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
    return torch.no_grad()(graph.forward)


def in_inference_mode(graph: GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
    return torch.inference_mode()(graph.forward)


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    with torch_afresh():
        for backend in (without_gradients, in_inference_mode):
            if backend.__name__ not in list_backends(exclude_tags=None):
                register_backend(backend, name=backend.__name__)
        yield


def train(backend: str, *, detached: bool = False) -> None:
    """Forward under the backend, then a loss of it and backward without one."""
    variant = parse_backend(backend)
    weight = torch.ones(3, requires_grad=True)
    with explained(variant):
        answer = make_compiler(variant)(lambda factor: factor * 2)(weight)
        ((answer.detach() if detached else answer) ** 2).sum().backward()


@pytest.mark.parametrize("backend", ["without_gradients", "in_inference_mode"])
def test_a_backend_whose_outputs_carry_no_gradients_is_said_to_be_for_inference(
    backend: str,
) -> None:
    with pytest.raises(WorkloadError, match=f"'{backend}' is for inference alone.*no gradients"):
        train(backend)


def test_a_loss_that_the_script_itself_detaches_is_not_blamed_on_the_backend() -> None:
    train("aot_eager")
    with pytest.raises(RuntimeError, match="does not require grad"):
        train("aot_eager", detached=True)


def test_a_backend_that_torch_does_not_know_is_refused_with_those_that_train() -> None:
    with pytest.raises(
        WorkloadError, match=r"'indcutor' is not registered.*mean 'inductor'"
    ) as caught:
        make_compiler(parse_backend("indcutor"))
    assert "aot_eager" in str(caught.value) and "TESTING" not in str(caught.value)
