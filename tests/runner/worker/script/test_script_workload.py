"""What runs of a script are compared by: hashes of what they computed with, and the operations of a
step, against what is counted by hand."""

import random
from collections import UserDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from breakeven.runner.worker.device.device_kinds import CpuDevice
from breakeven.runner.worker.script import script_workload
from tests.runner.worker.script.scripts import NET, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]
PICTURES = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
STEPS = """
model = breakeven.compile(model)
for number in range(6):
    breakeven.step(made(torch.randn(8, 4)), samples=8)
"""


def inputs_sha256(arguments: object) -> str | None:
    inputs = script_workload.hash_inputs(arguments)
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


def test_floats_stand_apart_from_what_no_model_computes() -> None:
    tokens = torch.arange(6)
    first, second = (script_workload.hash_inputs(((tokens, n * PICTURES), {})) for n in (1, 2))
    assert first is not None and second is not None
    assert first.sha256 == second.sha256 and first.floats != second.floats
    assert first.whole_sha256 != second.whole_sha256


@pytest.mark.parametrize("layout", list(script_workload.SPARSE), ids=str)
def test_sparse_inputs_are_hashed_by_places_and_values(layout: torch.layout) -> None:
    """The adjacency matrix of a graph network."""
    blocks = (2, 2) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    edges = torch.zeros(4, 4)
    edges[0, 2] = 1.0

    def hashed(matrix: torch.Tensor) -> script_workload.Inputs:
        sparse = matrix.to_sparse(layout=layout, blocksize=blocks)
        inputs = script_workload.hash_inputs(((sparse,), {}))
        assert inputs is not None
        return inputs

    assert hashed(edges).whole_sha256 == hashed(edges.clone()).whole_sha256
    assert hashed(edges.T).sha256 != hashed(edges).sha256
    assert hashed(edges).floats != hashed(2 * edges).floats


@pytest.mark.parametrize(
    ("change", "is_close"),
    [
        (lambda x: x * (1 + 1e-6), True),
        (lambda x: x.bfloat16().float(), True),
        (lambda x: x.flip(-1), False),
        (lambda x: x.roll(1, 0), False),
        (
            lambda x: x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1)),
            False,
        ),
    ],
)
def test_rough_numbers_tell_rounding_from_another_picture(change: Any, is_close: bool) -> None:
    rough = []
    for pictures in (PICTURES - 0.5, change(PICTURES - 0.5)):
        inputs = script_workload.hash_inputs(pictures)
        assert inputs is not None
        rough.append(inputs.floats[0]["rough"])
    apart = max(abs(a - b) / rough[0][0] for a, b in zip(*rough, strict=True))
    assert (apart < 0.01) is is_close


def test_each_generator_that_was_drawn_from_stands_elsewhere() -> None:
    device = CpuDevice(torch.device("cpu"))
    before = script_workload.random_states(device)
    assert script_workload.random_states(device) == before
    assert set(before) == {"python", "torch", "numpy"}
    random.random()
    after = script_workload.random_states(device)
    assert {name for name in before if before[name] != after[name]} == {"python"}
    torch.rand(1)
    last = script_workload.random_states(device)
    assert {name for name in before if after[name] != last[name]} == {"torch"}


def test_the_models_of_a_function_are_those_it_refers_to() -> None:
    closed_over, bound = nn.Linear(2, 2), nn.Linear(2, 2)

    def step(points: torch.Tensor) -> torch.Tensor:
        return closed_over(points)

    assert script_workload.find_models(step) == [closed_over]
    assert script_workload.find_models(bound.forward) == [bound]
    assert script_workload.find_models(torch.sin) == []


def counted(compute: Any) -> script_workload.StepFlops:
    counter = script_workload.StepFlops()
    counter.begin()
    compute()
    counter.end()
    return counter


def test_products_are_counted_once_forwards_and_twice_backwards_those_in_one_kernel_too() -> None:
    layer, points = nn.Linear(6, 5), torch.randn(4, 6, requires_grad=True)
    # An addition and a multiplication for each of 4 x 5 results and each of 6 inputs.
    product = 2 * 4 * 5 * 6
    assert counted(lambda: layer(points)).flops == product
    # Backwards one for the weights' gradients and one for the points'.
    assert counted(lambda: layer(points).sum().backward()).flops == 3 * product
    # Points that nobody wants gradients of cost none.
    assert counted(lambda: layer(points.detach()).sum().backward()).flops == 2 * product
    query = torch.randn(2, 3, 7, 8, requires_grad=True)
    key = torch.randn(2, 3, 5, 8, requires_grad=True)
    # Scores and weighted sums: 2 x 3 heads, 7 queries, 5 keys, 8 wide.
    forwards = 2 * (2 * 2 * 3 * 7 * 5 * 8)
    attend = nn.functional.scaled_dot_product_attention
    assert counted(lambda: attend(query, key, key).sum().backward()).flops == 3 * forwards


def test_what_nobody_counts_is_not_known_and_named() -> None:
    count = counted(lambda: nn.LSTM(4, 8)(torch.randn(5, 2, 4)))
    assert count.flops is None and count.uncounted == {"mkldnn_rnn_layer"}
    assert counted(lambda: torch.fft.rfft(torch.randn(8))).flops is None
    light = nn.Sequential(nn.LayerNorm(4), nn.GELU(), nn.Dropout(0.1))
    assert counted(lambda: light(torch.randn(5, 4)).sum().backward()).flops == 0


def test_a_step_is_counted_once_without_a_compiler_and_without_the_evaluation_in_it(
    tmp_path: Path,
) -> None:
    code = f"{NET}{STEPS}    model.eval(); model(torch.randn(100, 4)); model.train()\n"
    # Of a layer from 4 to 2, with 8 points whose gradients nobody wants.
    assert run(tmp_path, code).workload["flops_per_step"] == 2 * (2 * 8 * 4 * 2)
    assert "flops_per_step" not in run(tmp_path, code, "eager").workload


def test_of_batches_of_any_size_the_mean_one_counts(tmp_path: Path) -> None:
    """Of 6 steps with 8 points, and 10 more in the second, which is looked at: 58 / 6 a step."""
    code = NET + STEPS.replace("randn(8, 4)", "randn(8 + 10 * (number == 1), 4)").replace(
        "samples=8", "samples=8 + 10 * (number == 1)"
    )
    measured = run(tmp_path, code).workload
    assert measured["samples_per_step"] == 10
    assert measured["flops_per_step"] == pytest.approx(2 * (2 * 10 * 4 * 2))


def test_a_script_that_compiles_by_itself_goes_on_and_is_not_counted(tmp_path: Path) -> None:
    """As libraries do, in files of their own."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "own.py").write_text(
        "import torch\nscaled = torch._dynamo.optimize('eager')(lambda points: points * 2)\n"
    )
    steps = STEPS.replace("torch.randn(8, 4)", "scaled(torch.randn(8, 4))")
    ran = run(tmp_path, f"{NET}from own import scaled\n{steps}")
    assert len(ran.losses) == 6 and "flops_per_step" not in ran.workload
    assert ran.workload["uncounted"] == ["what the script compiles by itself"]
