"""What a compiled function returns and gets back is state of the training; all else is data."""

from pathlib import Path

import pytest

from tests.runner.worker.script.scripts import NET, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

WEIGHTS = """
import torch
from torch import nn
import breakeven

weights = {"w": torch.randn(4, 2), "b": torch.zeros(2)}

def loss_of(weights, points):
    logits = points @ weights["w"] + weights["b"]
    return nn.functional.cross_entropy(logits, (points[:, 0] > 0).long())
"""
STEP = f"""{WEIGHTS}
@torch.compile
def made(weights, points, rate):
    slopes, loss = torch.func.grad_and_value(loss_of)(weights, points)
    return {{name: w - rate * slopes[name] for name, w in weights.items()}}, loss

for number in range(6):
    weights, loss = made(weights, torch.randn(8, 4), 0.1)
    breakeven.step(loss)
"""
"""Places: w, b, points."""
SLOPES = f"""{WEIGHTS}
@torch.compile
def slopes_of(points, weights, speed):
    return torch.func.grad_and_value(loss_of)(weights, points)

speed = [torch.zeros(4, 2), torch.zeros(2)]
for number in range(6):
    slopes, loss = slopes_of(torch.randn(8, 4), weights, speed)
    for v, (name, slope) in zip(speed, slopes.items()):
        v.mul_(0.9).add_(slope)
        weights[name].sub_(0.1 * v)
    breakeven.step(loss)
"""
"""The script itself updates in place. Places: points, w, b, and two of its momenta."""
OPTIMIZER = f"""{WEIGHTS}
loss_of = torch.compile(loss_of)
for w in weights.values():
    w.requires_grad_()
optimizer = torch.optim.Adam(weights.values(), 0.1, foreach=True)
for number in range(6):
    loss = loss_of(weights, torch.randn(8, 4))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    breakeven.step(loss.detach())
"""
HIDDEN = (
    NET
    + """
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(4, 3), nn.Linear(3, 2)

    def forward(self, points, hidden):
        hidden = self.cell(points, hidden)
        return self.out(hidden), hidden

model = torch.compile(Recurrent())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
hidden = torch.zeros(8, 3)
for number in range(6):
    points = torch.randn(8, 4)
    answer, hidden = model(points, hidden.detach())
    loss = nn.functional.cross_entropy(answer, (points[:, 0] > 0).long())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    breakeven.step(loss)
"""
)
BUFFER = (
    NET
    + """
model = torch.compile(model)
buffer = torch.empty(8, 4)
for number in range(6):
    buffer.copy_(torch.randn(8, 4))
    breakeven.step(made(buffer))
"""
)
CHOSEN = (
    NET
    + """
model = torch.compile(model)
samples, points = torch.randn(100, 4), torch.randn(8, 4)
for number in range(6):
    answer = model(points)
    loss = nn.functional.cross_entropy(answer, (points[:, 0] > 0).long())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    points = samples[answer.argmax(1) * 7 + number]
    breakeven.step(loss)
"""
)


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (STEP, [0, 1]),
        (SLOPES, [1, 2, 3, 4]),
        (OPTIMIZER, [0, 1]),
        (HIDDEN, [1]),
        (BUFFER, []),
        (CHOSEN, []),
    ],
    ids=[
        "returned weights",
        "returned gradients",
        "an optimizer's",
        "a hidden state",
        "a buffer that is filled anew",
        "samples that an answer selects",
    ],
)
def test_state_is_what_comes_from_results(tmp_path: Path, code: str, state: list[int]) -> None:
    inputs = {event["step"]: event for event in run(tmp_path, code).of_kind("inputs")}
    assert [event.get("state", []) for event in inputs.values()][:3] == [[], state, []]
    compiled = {event["step"]: event for event in run(tmp_path, code, "eager").of_kind("inputs")}
    assert not any("state" in event for event in compiled.values())
    assert compiled[1]["floats"][-1]["sha256"] == inputs[1]["floats"][-1]["sha256"] or state != [0]


@pytest.mark.parametrize("code", [STEP, SLOPES], ids=["returned weights", "returned gradients"])
def test_a_control_without_a_model_is_perturbed_in_the_state_of_its_second_step(
    tmp_path: Path, code: str
) -> None:
    baseline, control = run(tmp_path, code), run(tmp_path, code, "control")
    assert control.losses[0] == baseline.losses[0] and control.losses[1] != baseline.losses[1]
    assert control.losses == pytest.approx(baseline.losses, abs=1e-3)
    assert not [note for note in control.workload["notes"] if "perturbed" in note]


def test_a_control_in_which_nothing_can_be_perturbed_says_so(tmp_path: Path) -> None:
    """The compiled function prepares samples, and another one trains."""
    code = (
        NET
        + """
doubled = breakeven.compile(lambda points: 2 * points)
for number in range(6):
    breakeven.step(made(doubled(torch.randn(8, 4)).detach()))
"""
    ).replace("model(points)", "globals()['model'](points)")
    control = run(tmp_path, code, "control")
    (note,) = [note for note in control.workload["notes"] if "perturbed" in note]
    assert "breakeven.compile(function, model=model)" in note


def test_a_script_whose_operations_are_followed_has_its_own_losses_and_its_counted_operations(
    tmp_path: Path,
) -> None:
    ran = run(tmp_path, STEP)
    # 8 points of 4 numbers times a matrix of 4 x 2, an addition and a multiplication each; the
    # gradient of the matrix costs as much, that of the points is not computed.
    assert ran.workload["flops_per_step"] == 2 * (2 * 8 * 4 * 2)
