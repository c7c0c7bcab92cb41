"""Floating-point operations of a script's step, against what is counted by hand."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from breakeven.runner.worker.script.workload import StepFlops
from tests.runner.worker.script.scripts import NET, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

STEPS = """
model = breakeven.compile(model)
for number in range(6):
    breakeven.step(made(torch.randn(8, 4)), samples=8)
"""


def counted(compute: Any) -> StepFlops:
    counter = StepFlops()
    counter.begin()
    compute()
    counter.end()
    return counter


def test_a_linear_layer_multiplies_once_forwards_and_twice_backwards() -> None:
    layer, points = nn.Linear(6, 5), torch.randn(4, 6, requires_grad=True)
    # An addition and a multiplication for each of 4 x 5 results and each of 6 inputs.
    product = 2 * 4 * 5 * 6
    assert counted(lambda: layer(points)).flops == product
    # Backwards one for the weights' gradients and one for the points'.
    assert counted(lambda: layer(points).sum().backward()).flops == 3 * product
    # Points that nobody wants gradients of cost none.
    assert counted(lambda: layer(points.detach()).sum().backward()).flops == 2 * product


def test_attention_in_one_kernel_counts_as_the_products_that_it_stands_for() -> None:
    query = torch.randn(2, 3, 7, 8, requires_grad=True)
    key = torch.randn(2, 3, 5, 8, requires_grad=True)
    # Scores and weighted sums: 2 x 3 heads, 7 queries, 5 keys, 8 wide.
    forwards = 2 * (2 * 2 * 3 * 7 * 5 * 8)
    attend = nn.functional.scaled_dot_product_attention
    assert counted(lambda: attend(query, key, key).sum().backward()).flops == 3 * forwards


def test_what_nobody_counts_is_not_known_and_named() -> None:
    found = counted(lambda: nn.LSTM(4, 8)(torch.randn(5, 2, 4)))
    assert found.flops is None and found.uncounted == {"mkldnn_rnn_layer"}
    assert counted(lambda: torch.fft.rfft(torch.randn(8))).flops is None
    light = nn.Sequential(nn.LayerNorm(4), nn.GELU(), nn.Dropout(0.1))
    assert counted(lambda: light(torch.randn(5, 4)).sum().backward()).flops == 0


def test_nothing_that_is_computed_changes() -> None:
    layer, points = nn.TransformerEncoderLayer(8, 2, 16), torch.randn(3, 2, 8)
    found: list[torch.Tensor] = []

    def compute() -> None:
        torch.manual_seed(0)
        found.append(layer(points))

    compute()
    counted(compute)
    assert torch.equal(*found)


def test_a_step_of_a_script_is_counted_once_and_without_a_compiler(tmp_path: Path) -> None:
    # Of a layer from 4 to 2, with 8 points whose gradients nobody wants.
    assert run(tmp_path, NET + STEPS).workload["flops_per_step"] == 2 * (2 * 8 * 4 * 2)
    assert "flops_per_step" not in run(tmp_path, NET + STEPS, "eager").workload


def test_of_batches_of_any_size_the_mean_one_counts(tmp_path: Path) -> None:
    """Of 6 steps with 8 points, and 10 more in the second, which is looked at: 58 / 6 a step."""
    code = NET + STEPS.replace("randn(8, 4)", "randn(8 + 10 * (number == 1), 4)").replace(
        "samples=8", "samples=8 + 10 * (number == 1)"
    )
    workload = run(tmp_path, code).workload
    assert workload["samples_per_step"] == 10
    assert workload["flops_per_step"] == pytest.approx(2 * (2 * 10 * 4 * 2))


def test_a_script_that_compiles_by_itself_goes_on_and_is_not_counted(tmp_path: Path) -> None:
    """As libraries do, in files of their own."""
    own = "import torch\nscaled = torch._dynamo.optimize('eager')(lambda points: points * 2)\n"
    code = (
        NET
        + "from own import scaled\n"
        + STEPS.replace("torch.randn(8, 4)", "scaled(torch.randn(8, 4))")
    )
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "own.py").write_text(own)
    ran = run(tmp_path, code)
    assert len(ran.losses) == 6 and "flops_per_step" not in ran.workload
    assert ran.workload["uncounted"] == ["what the script compiles by itself"]


def test_an_evaluation_in_the_step_is_no_part_of_it(tmp_path: Path) -> None:
    evaluation = "model.eval(); model(torch.randn(100, 4)); model.train()\n"
    code = NET + STEPS + f"    {evaluation}"
    assert run(tmp_path, code).workload["flops_per_step"] == 2 * (2 * 8 * 4 * 2)
