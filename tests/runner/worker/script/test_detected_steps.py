"""Scripts without a line for Breakeven: what is taken as step, loss, batch and model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.experiment import ScriptSpec
from breakeven.runner.worker.script.detected_steps import DetectedStep, StepDetector
from breakeven.runner.worker.script.script_optimizers import ScriptOptimizers
from breakeven.runner.worker.script.trained_models import is_trainer
from tests.runner.worker.script.scripts import Ran, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=2):
        super().__init__()
        self.layer = nn.Linear(4, width)

    def forward(self, points):
        return self.layer(points)

def error_of(model, points):
    return nn.functional.cross_entropy(model(points), (points[:, 0] > 0).long())

losses = []
model = Net()
"""
SAVED = "\ntorch.save(torch.tensor(losses), 'losses.pt')\n"
"""The end of a script that keeps its own losses."""
LOOP = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
for number in range(6):
    loss = error_of(model, torch.randn(8, 4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    losses.append(loss.item())
"""
ACCUMULATING = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(5):
    total = 0
    for part in range(4):
        loss = error_of(model, torch.randn(8, 4)) / 4
        loss.backward()
        total += loss.detach()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(total.item())
"""
SCALED = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for number in range(5):
    loss = error_of(model, torch.randn(8, 4))
    broken = loss * 1e38 if number == 2 else loss  # times 16 it is infinite
    optimizer.zero_grad()
    scaler.scale(broken).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(broken.item())
"""
CLOSURES = """
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
points = torch.randn(8, 4)
for number in range(5):
    def closure():
        optimizer.zero_grad()
        loss = error_of(model, points)
        loss.backward()
        return loss
    losses.append(optimizer.step(closure).item())
"""
BY_HAND = """
for number in range(6):
    model.zero_grad()
    loss = error_of(model, torch.randn(8, 4))
    loss.backward()
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.1)
    losses.append(loss.item())
"""


def kept(ran: Ran) -> list[float]:
    """The losses that the script itself has kept."""
    return torch.load(ran.folder.workplace / "losses.pt").tolist()


@pytest.mark.parametrize(
    ("loop", "ends", "samples"),
    [
        (LOOP, "each step of SGD", 8),
        (ACCUMULATING, "each step of SGD", 32),
        (SCALED, "each step of SGD", 8),
        (CLOSURES, "each step of LBFGS", 8),
        (BY_HAND, "each backward pass", 8),
    ],
    ids=["schedule", "accumulation", "a scaler that skips", "closures", "no optimizer"],
)
def test_a_script_without_a_line_has_the_steps_and_losses_that_it_has_by_hand(
    tmp_path: Path, loop: str, ends: str, samples: int
) -> None:
    ran = run(tmp_path, MODEL + loop + SAVED)
    assert ran.losses == kept(ran)
    assert ran.workload["num_steps"] == len(ran.losses)
    assert ran.workload["samples_per_step"] == samples
    assert ran.workload["num_parameters"] == 4 * 2 + 2
    (note,) = ran.workload["notes"]
    assert f"a step ends with {ends}" in note
    assert "the model to compile is Net (train.py:5);" in note
    assert not ran.of_kind("compile_started")


def test_the_scale_of_gradients_is_recorded_with_the_inputs(tmp_path: Path) -> None:
    inputs = run(tmp_path, MODEL + SCALED).of_kind("inputs")
    scales = {event["step"]: event["settings"].get("0.gradient scale") for event in inputs}
    assert scales == {0: None, 1: [16.0], 2: [16.0], 3: [8.0], 4: [8.0]}


def test_a_backend_compiles_the_model_that_is_found_and_learns_the_same(tmp_path: Path) -> None:
    baseline = run(tmp_path, MODEL + LOOP)
    eager = run(tmp_path, MODEL + LOOP, "eager")
    assert len(eager.of_kind("compile_started")) == 1
    assert eager.losses == baseline.losses
    rates = [event["learning_rate"] for event in baseline.of_kind("step")]
    assert rates == [0.1, 0.1, 0.05, 0.05, 0.025, 0.025]


def test_the_three_lines_change_no_number(tmp_path: Path) -> None:
    lines = LOOP.replace("schedule.step()", "schedule.step(); breakeven.step(loss)")
    marked = "import breakeven" + MODEL + "model = breakeven.compile(model)" + lines
    (tmp_path / "marked").mkdir()
    without = run(tmp_path, MODEL + LOOP)
    with_lines = run(tmp_path / "marked", marked)
    assert len(without.losses) == 6 and with_lines.losses == without.losses
    rates = [
        [event["learning_rate"] for event in ran.of_kind("step")] for ran in (without, with_lines)
    ]
    assert rates[0] == rates[1]


ADVERSARIES = """
class Judge(Net):
    pass

judge = Judge(1)
first, second = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (judge, model))
for number in range(7):
    first.zero_grad()
    real = nn.functional.softplus(-judge(torch.randn(8, 4))).mean()
    real.backward()
    made = torch.cat([model(torch.randn(8, 4)), model(torch.randn(8, 4))], 1)
    nn.functional.softplus(judge(made.detach())).mean().backward()
    first.step()
    second.zero_grad()
    nn.functional.softplus(-judge(made)).mean().backward()
    second.step()
    losses.append(real.item())
"""


def test_of_two_optimizers_the_last_one_ends_the_step_and_both_models_are_compiled(
    tmp_path: Path,
) -> None:
    baseline = run(tmp_path, MODEL + ADVERSARIES + SAVED)
    assert baseline.losses == kept(baseline) and len(baseline.losses) == 7
    assert baseline.workload["num_parameters"] == (4 * 2 + 2) + (4 * 1 + 1)
    assert all(event["seconds"] > 0 for event in baseline.of_kind("step"))
    others = {(event["step"], event["name"]) for event in baseline.of_kind("value")}
    (note,) = baseline.workload["notes"]
    assert "a step ends with the last of SGD of Judge, SGD of Net;" in note
    assert len(others) == 7 * 2  # the losses of what the judge and the generator got beside
    control = run(tmp_path, MODEL + ADVERSARIES, "control")
    assert control.losses != baseline.losses
    assert control.losses == pytest.approx(baseline.losses, abs=1e-3)
    assert control.workload["weights_sha256"] == baseline.workload["weights_sha256"]
    # The judge trains on two kinds of inputs: with gradients for them, and without.
    assert run(tmp_path, MODEL + ADVERSARIES, "eager").of_kind("compile_started")


NAMELESS = """
class Agent:
    def __init__(self):
        self.actor = nn.Sequential(nn.Linear(4, 2), nn.Tanh())

def loss_of(net):
    return net(torch.randn(8, 4)).square().mean()

agent, critic, other = Agent(), nn.Sequential(nn.Linear(4, 1)), Net()
first = torch.optim.Adam(agent.actor.parameters())
second = torch.optim.Adam([*critic.parameters(), *model.parameters(), *other.parameters()])
for number in range(6):
    for optimizer, nets in ((first, [agent.actor]), (second, [critic, model, other])):
        optimizer.zero_grad()
        sum(loss_of(net) for net in nets).backward()
        optimizer.step()
"""


def test_models_of_one_class_are_told_apart_by_the_names_that_the_script_gives_them(
    tmp_path: Path,
) -> None:
    (note,) = run(tmp_path, MODEL + NAMELESS).workload["notes"]
    assert (
        "a step ends with the last of Adam of Sequential agent.actor, "
        "Adam of Sequential critic and Net model and Net other;" in note
    )
    assert (
        "the models to compile are Sequential agent.actor (called at train.py:24) and "
        "Sequential critic (called at train.py:24) and Net model (train.py:5) and "
        "Net other (train.py:5);" in note
    )


BESIDES = """
teacher = nn.Linear(4, 2)
average = torch.optim.swa_utils.AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(2, 4))
for number in range(6):
    points = torch.randn(8, 4)
    with torch.no_grad():
        wanted = teacher(points)
    loss = nn.functional.mse_loss(model(points), wanted) + teacher(points).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update_parameters(model)
    losses.append(loss.item())
"""


def test_neither_teacher_nor_average_is_compiled(tmp_path: Path) -> None:
    ran = run(tmp_path, MODEL + BESIDES + SAVED, "eager")
    assert ran.losses == kept(ran)
    (note,) = ran.workload["notes"]
    assert "the model to compile is Net (train.py:5);" in note
    assert ran.workload["num_parameters"] == 4 * 2 + 2


TRAINER = """
class Trainer(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def forward(self, num_steps):
        for number in range(num_steps):
            self.train_step(torch.randn(8, 4))

    def train_step(self, points):
        def closure():
            loss = nn.functional.cross_entropy(self.model(points), (points[:, 0] > 0).long())
            loss.backward()
            losses.append(loss.item())
        self.optimizer.zero_grad()
        closure()
        self.optimizer.step()

Trainer(model)(6)
"""


def test_of_a_trainer_that_is_a_module_the_model_within_is_compiled(tmp_path: Path) -> None:
    ran = run(tmp_path, MODEL + TRAINER + SAVED, "eager")
    assert ran.losses == kept(ran)
    assert len(ran.losses) == 6
    (note,) = ran.workload["notes"]
    assert "the model to compile is Net (train.py:5);" in note


OWN_OPTIMIZER = """
class Agent(Net):
    def __init__(self):
        super().__init__()
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)

    def learn(self, points):
        loss = error_of(self, points)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        losses.append(loss.item())

agent = Agent()
for number in range(6):
    agent.learn(torch.randn(8, 4))
"""


def test_a_model_that_has_its_optimizer_is_compiled_itself(tmp_path: Path) -> None:
    ran = run(tmp_path, MODEL + OWN_OPTIMIZER + SAVED, "eager")
    assert ran.losses == kept(ran)
    (note,) = ran.workload["notes"]
    assert "the model to compile is Agent (train.py:" in note


class ReadsBothWays(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ahead, self.backward = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.ahead(points) + self.backward(points)


def test_a_part_that_is_called_backward_makes_no_trainer() -> None:
    assert not is_trainer(ReadsBothWays())


DISTILLING = """
def train(net, steps, target_of):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.train()
    for number in range(steps):
        points = torch.randn(8, 4)
        loss = nn.functional.cross_entropy(net(points), target_of(points))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

def answers_of(teacher):
    def answers(points):
        teacher.eval()
        with torch.no_grad():
            return teacher(points).argmax(1)
    return answers

class Student(Net):
    pass

train(model, 10, lambda points: (points[:, 0] > 0).long())
train(Student(), 10, answers_of(model))
"""


def test_a_model_whose_optimizer_is_made_after_the_first_block_is_compiled_too(
    tmp_path: Path,
) -> None:
    baseline = run(tmp_path, MODEL + DISTILLING + SAVED)
    assert baseline.losses == kept(baseline) and len(baseline.losses) == 20
    (note,) = baseline.workload["notes"]
    assert "the models to compile are Net (train.py:5) and Student (train.py:37);" in note
    assert nn.Module.__call__.__name__ == "_wrapped_call_impl"
    eager = run(tmp_path, MODEL + DISTILLING, "eager")
    assert eager.losses == baseline.losses
    compiled_at = [event["step"] for event in eager.of_kind("compile_started")]
    assert compiled_at[0] == 0 and 10 in compiled_at
    control = run(tmp_path, MODEL + DISTILLING, "control")
    assert control.workload["weights_sha256"] == baseline.workload["weights_sha256"]


def test_a_teacher_that_was_trained_before_is_part_of_the_students_steps(tmp_path: Path) -> None:
    ran = run(tmp_path, MODEL + DISTILLING)
    phases = [event["phase"] for event in ran.of_kind("phase")]
    assert phases.count("evaluating") == 1  # right after its own training


class Marks:
    """Measures nothing; keeps the detected steps."""

    def __init__(self) -> None:
        self.steps: list[DetectedStep] = []

    def detects_steps(self) -> bool:
        return True

    def optimizer_begins(self) -> None:
        pass

    def part_made(self) -> None:
        pass

    def steps_detected(self, steps: list[DetectedStep]) -> None:
        self.steps += steps


def test_steps_that_are_recognised_later_have_the_time_at_which_they_ended() -> None:
    marks, optimizers = Marks(), ScriptOptimizers()
    detector = StepDetector(marks, optimizers, copies_losses=False)
    with detector.listening():
        for _ in range(2):
            weight = nn.Parameter(torch.zeros(1))
            optimizer = torch.optim.SGD([weight], lr=0.1)
            optimizers.add(optimizer)
            for _ in range(3):
                weight.square().sum().backward()
                optimizer.step()
    # The first three end at once. That the second optimizer took over is known at its third step.
    assert [(step.num_marks, step.is_marked) for step in marks.steps] == [
        *[(0, False)] * 3,
        *[(1, True)] * 2,
        (0, False),
    ]


WRAPPED = """
class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = model

    def forward(self, points):
        return self.net(points)

outer = Wrapper()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(6):
    loss = error_of(outer, torch.randn(8, 4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("compiles", "name"), [("", "Wrapper"), ("Net", "Net"), ("train.py:Net", "Net")]
)
def test_the_outermost_model_is_compiled_or_the_one_that_is_named(
    tmp_path: Path, compiles: str, name: str
) -> None:
    script = ScriptSpec(compiles=compiles)
    ran = run(tmp_path, MODEL + WRAPPED, "eager", script=script)
    assert len(ran.losses) == 6
    (note,) = ran.workload["notes"]
    assert f"the model to compile is {name} (" in note


PARALLEL = """
import os
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group(
    "gloo", init_method=f"file://{os.path.abspath('meeting')}", rank=0, world_size=1
)
parallel = DistributedDataParallel(nn.Sequential(model, nn.Tanh()))
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
for number in range(6):
    loss = error_of(parallel, torch.randn(8, 4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.distributed.destroy_process_group()
"""


def test_the_module_within_data_parallelism_is_compiled(tmp_path: Path) -> None:
    ran = run(tmp_path, MODEL + PARALLEL, "aot_eager", backends=("aot_eager",))
    assert len(ran.losses) == 6
    (note,) = ran.workload["notes"]
    assert "the model to compile is Sequential parallel (called at train.py:14)" in note
    assert sum(event["graph_ops"] or 0 for event in ran.of_kind("compile_metrics")) > 0


TENSORS = """
weights = torch.zeros(4, 2, requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=0.1)
for number in range(6):
    (torch.randn(8, 4) @ weights).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (MODEL + "model(torch.randn(8, 4))", "ended without a step"),
        (MODEL + TENSORS, "nothing was called before that a backend can compile"),
    ],
)
def test_a_script_that_cannot_be_read_gets_a_sentence(
    tmp_path: Path, code: str, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        run(tmp_path, code)


FAILING = """
class Fails(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        if number >= 10:
            raise RuntimeError("out of memory")
        return super().step(closure)

spare = nn.Parameter(torch.zeros(1))
failing = Fails([spare], lr=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(20):
    loss = error_of(model, torch.randn(8, 4)) + 0 * spare
    optimizer.zero_grad()
    loss.backward()
    try:
        failing.step()
    except RuntimeError:
        pass
    optimizer.step()
    losses.append(loss.item())
"""


def test_an_optimizer_that_fails_from_a_step_on_does_not_hide_the_steps_of_another(
    tmp_path: Path,
) -> None:
    ran = run(tmp_path, MODEL + FAILING + SAVED)
    assert ran.losses == kept(ran) and len(ran.losses) == 20


GAME = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(6):
    (sum(error_of(model, torch.randn(1, 4)) for move in range(9)) / 9).backward()
    optimizer.step()
"""


ACTING = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(6):
    model(torch.randn(1, 4)).argmax()
    error_of(model, torch.randn(8, 4)).backward()
    optimizer.step()
"""
STATE_BY_STATE = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(6):
    model(torch.randn(4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "loop", [GAME, ACTING, STATE_BY_STATE], ids=["many moves", "acting and learning", "no batch"]
)
def test_the_samples_of_a_step_are_unknown_where_its_calls_say_different_things(
    tmp_path: Path, loop: str
) -> None:
    ran = run(tmp_path, MODEL + loop)
    assert len(ran.losses) == 6 and ran.workload["samples_per_step"] is None
    (note,) = ran.workload["notes"]
    assert "guessed" not in note


COUNTING = """
import sys
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
counts = []

def count(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.endswith("/script/detected_steps.py"):
        counts[-1] += 1

for number in range(12):
    points = torch.randn(8, 4)
    counts.append(0)
    sys.setprofile(count)
    error_of(model, points).backward()
    optimizer.step()
    sys.setprofile(None)
torch.save(torch.tensor(counts), "losses.pt")
"""


def test_a_step_within_a_block_only_notes_what_happened(tmp_path: Path) -> None:
    ran = run(tmp_path, MODEL + COUNTING)
    assert len(ran.losses) == 12
    # Of the model, the backward pass, begin and end of the optimizer's step, and what these call.
    assert min(kept(ran)) <= 12


def test_whoever_listens_takes_all_listeners_away(tmp_path: Path) -> None:
    def listened_to() -> tuple[Any, ...]:
        scaler = torch.amp.GradScaler
        return torch.autograd.backward, scaler.scale, scaler.step, nn.Module.__call__

    before = listened_to()
    run(tmp_path, MODEL + LOOP)
    assert listened_to() == before


def test_a_variable_of_the_shell_that_the_script_names_and_does_not_get_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BREAKEVEN_WITHHELD", "EDITOR,NUM_SAMPLES,_")
    code = "import os\nos.environ.get('NUM_SAMPLES') or '_'\n" + MODEL + LOOP
    (note,) = (
        note for note in run(tmp_path, code).workload["notes"] if "environment variables" in note
    )
    assert "do not get: NUM_SAMPLES." in note and "run NUM_SAMPLES=... train.py" in note
