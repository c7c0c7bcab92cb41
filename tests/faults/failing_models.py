"""Models and backends that fail: each in one way, which the name says."""

from collections.abc import Callable
from typing import Any

import torch
from relu_net import WIDTH, ReluNet
from torch import Tensor, nn
from torch.fx import GraphModule

TOO_MUCH = 1 << 50
"""More bytes than any machine has."""


class Branching(ReluNet):
    """Branches on the numbers of the batch."""

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x if x.sum() > 0 else -x)


class Coarse(ReluNet):
    """Rounds its inputs to TF32's ten bits where TF32 is allowed, as products of a GPU do."""

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x.half().float() if torch.backends.cuda.matmul.allow_tf32 else x)


class Printing(ReluNet):
    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        print("one more batch")  # noqa: T201
        return super().forward(x)


class Counting(ReluNet):
    """Computes with a number that differs in each call."""

    calls = 0

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        self.calls += 1
        return super().forward(x) * float(f"1.{self.calls}")


class Misshaped(ReluNet):
    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x[:, : WIDTH - 1])


class Logarithm(nn.Module):
    """The logarithm of a number that falls below 0 with its third call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * torch.log(torch.tensor(2.5) - self.calls)


class Logarithmic(ReluNet):
    def __init__(self) -> None:
        super().__init__()
        self.scale = Logarithm()

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        return self.scale(super().forward(x))


class Hungry(ReluNet):
    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        torch.empty(TOO_MUCH, dtype=torch.uint8)
        return super().forward(x)


def hungry_compiler(graph: GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
    bytearray(TOO_MUCH)
    return graph.forward


def ignorant_compiler(graph: GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
    raise NotImplementedError("no rule for aten.relu")


def broken_compiler(graph: GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
    raise AssertionError("7 nodes, expected 8")


def without_gradients(graph: GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
    return torch.no_grad()(graph.forward)


def not_a_number(graph: GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
    def run(*inputs: Any) -> list[Any]:
        return [
            output * float("nan") if output.is_floating_point() else output
            for output in graph.forward(*inputs)
        ]

    return run


BACKENDS = (hungry_compiler, ignorant_compiler, broken_compiler, without_gradients, not_a_number)
