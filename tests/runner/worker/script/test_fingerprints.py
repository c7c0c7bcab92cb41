"""What runs of a script are compared by: hashes of what they computed with."""

import random
from collections import UserDict

import pytest
import torch
from torch import nn

from breakeven.runner.worker.device.devices import CpuDevice
from breakeven.runner.worker.script.workload import inputs_of, models_of, random_states

pytestmark = pytest.mark.heavy


def inputs_sha256(arguments: object) -> str | None:
    inputs = inputs_of(arguments)
    return None if inputs is None else inputs.whole_sha256


def test_inputs_are_the_same_if_values_shapes_and_types_are() -> None:
    points = torch.arange(6.0)
    known = inputs_sha256(((points,), {"scale": 2}))
    assert known == inputs_sha256(((points.clone(),), {"scale": 2}))
    others = [points + 1e-6, points.reshape(2, 3), points.double(), points.flip(0)]
    hashes = {inputs_sha256(((other,), {"scale": 2})) for other in others}
    assert len(hashes) == 4 and known not in hashes
    assert inputs_sha256(((points,), {"scale": 3})) != known


def test_tensors_are_found_in_what_libraries_wrap_batches_in() -> None:
    tokens = torch.tensor([1, 2])
    known = inputs_sha256({"tokens": tokens})
    assert inputs_sha256([UserDict({"tokens": tokens})]) == known
    assert inputs_sha256([[{"tokens": tokens}]]) == known
    assert inputs_sha256((nn.Linear(2, 2), "no tensor", 3)) is None


def test_each_generator_that_was_drawn_from_stands_elsewhere() -> None:
    device = CpuDevice(torch.device("cpu"))
    before = random_states(device)
    assert random_states(device) == before and set(before) == {"python", "torch", "numpy"}
    random.random()
    after = random_states(device)
    assert {name for name in before if before[name] != after[name]} == {"python"}
    torch.rand(1)
    last = random_states(device)
    assert {name for name in before if after[name] != last[name]} == {"torch"}


def test_the_models_of_a_function_are_those_it_refers_to() -> None:
    mine, bound = nn.Linear(2, 2), nn.Linear(2, 2)

    def step(points: torch.Tensor) -> torch.Tensor:
        return mine(points)

    assert models_of(step) == [mine]
    assert models_of(bound.forward) == [bound]
    assert models_of(torch.sin) == []
