"""A script on several ranks makes one run: one journal, and the losses that torchrun gives; when a
rank fails, hangs or makes fewer steps, the run ends and names it."""

import json
import os
import re
import runpy
import signal
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.errors import WorkloadError
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.exit_status import WorkerExit
from breakeven.runner.protocol.meetings import free_port
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import RunSpec, ScriptSpec
from breakeven.runner.supervision.supervisor import supervise
from breakeven.runner.worker.model.transformers_models import perturb
from breakeven.runner.worker.ranks.elastic import RankListener
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.words.parity import parity_words
from tests.helpers.comparisons import compared, row_of, warnings_of
from tests.helpers.loop import of_kind
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until
from tests.runner.supervision.supervised import impatience as impatience
from tests.runner.worker.forked import _work, start, work_on
from tests.runner.worker.ranks.test_endings import processes
from tests.runner.worker.script.scripts import experiment
from tests.runner.worker.script.scripts import run as run_here

pytestmark = pytest.mark.heavy
SCRIPT = """
import os, signal, sys, time
import torch
import torch.distributed as dist
from torch import nn
import breakeven

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, points):
        return self.layer(points)

how, steps = sys.argv[1], 24 if sys.argv[1] == "faults" else 10
run = os.path.dirname(os.getcwd()).rpartition(".")[2]
fault, _, where = how.partition(" of ")
fault = fault if where in ("", run) else ""
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
if how == "fsdp":
    from torch.distributed.fsdp import fully_shard
    model = Net()
    fully_shard(model)
else:
    model = nn.parallel.DistributedDataParallel(Net())
model = breakeven.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
numbers = torch.Generator().manual_seed(rank)
losses = []
print(f"rank {rank} begins", flush=True)
for step in range(steps - ("fewer" in how and rank == 1)):
    if step == 3 and rank == 1 and fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 3 and rank == 1 and fault == "hangs":
        time.sleep(1000)
    if step == 3 and rank == 1 and fault == "raises":
        raise ValueError("its loss is not a number")
    points = torch.randn(6, 4, generator=numbers)
    is_wrong = how == "faults" and rank == 1
    if is_wrong and step >= 6 and run == "aot_eager":
        points[0] += 1
    with model.no_sync() if "alone" in how else torch.enable_grad():
        loss = nn.functional.cross_entropy(model(points), (points[:, 0] > 0).long())
        loss.backward()
    if step == 0 and how == "fsdp":
        print("weights", [parameter.full_tensor().tolist() for parameter in model.parameters()])
    if is_wrong and step == 6 and run == "eager":  # after the ranks have averaged their gradients
        model.module.layer.bias.grad *= 3
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    breakeven.step(loss, samples=6)
print(f"rank {rank} has {losses}")
dist.destroy_process_group()
"""


PIPELINE = """
import torch
import torch.distributed as dist
import breakeven

dist.init_process_group("gloo")
model = breakeven.compile(torch.nn.Linear(2, 2))
given = torch.ones(1, 2)
if dist.get_rank() == 1:
    dist.recv(given, 0)
result = model(given)
if dist.get_rank() == 0:
    dist.send(result.detach(), 1)
breakeven.step(result.sum())
"""
SPAWNS = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import breakeven

def train(rank, size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "1"
    dist.init_process_group("gloo", rank=rank, world_size=size)
    model = breakeven.compile(torch.nn.Linear(2, 1))
    for step in range(2):
        loss = model(torch.ones(1, 2)).sum() * 0 + rank
        dist.all_reduce(loss.detach().clone())
        breakeven.step(loss)

if __name__ == "__main__":
    mp.spawn(train, args=(2,), nprocs=2)
"""


def run_spec(folder: Path, how: str, label: str = "baseline", **changes: Any) -> RunSpec:
    project = folder / "project"
    project.mkdir(parents=True, exist_ok=True)
    code = {"spawns": SPAWNS, "pipeline": PIPELINE}.get(how, SCRIPT)
    (project / "train.py").write_text(code)
    script = ScriptSpec(arguments=(how,), ranks=2, **changes)
    names = ("eager", "aot_eager") if how == "faults" else ("eager",)
    spec = experiment(project / "train.py", devices=("cpu", "cpu"), script=script, backends=names)
    (arm,) = (arm for arm in spec.arms if arm.label == label)
    return RunSpec(experiment_id="x", experiment=spec, arm=arm)


def place(folder: Path, spec: RunSpec) -> RunDir:
    run = RunDir(folder / spec.run_id)
    run.write_spec(spec)
    return run


def train(folder: Path, how: str, label: str = "baseline") -> tuple[RunDir, RankListener]:
    """Both ranks, as torchrun's agent would start them."""
    run = place(folder, run_spec(folder, how, label))
    listener = RankListener([], 2)
    start_ranks(run.output_file, be_rank, str(run.path), listener.address)
    listener.close()
    return run, listener


def start_ranks(output: Path, work: Callable[..., Any], *arguments: str) -> list[ForkServerProcess]:
    """Both ranks, once they have ended."""
    shared = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        CODE_VARIABLE: str(output.parents[1]),
    }
    ranks = [
        start(output, work, *arguments, RANK=name, LOCAL_RANK=name, **shared) for name in ("0", "1")
    ]
    for rank in ranks:
        rank.join(PATIENCE_SECONDS)
    return ranks


def be_rank(folder: str, address: str) -> int:
    """What `python -m breakeven.runner.worker.ranks.rank` does."""
    from breakeven.runner.worker.ranks import rank

    os.setsid()  # A rank that loses its run ends its whole session.
    sys.argv = ["rank", folder, address]
    return rank.main()


def be_script(file: str) -> None:
    """What torchrun starts, without a compiler."""
    torch._dynamo.config.disable = True
    sys.argv = [file, "usual"]
    runpy.run_path(file, run_name="__main__")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[list[float]]:
    """The losses of each rank with the variables that torchrun sets, without Breakeven."""
    folder = tmp_path_factory.mktemp("alone")
    script = folder / "train.py"
    script.write_text(SCRIPT)
    ranks = start_ranks(folder / "printed", be_script, str(script))
    assert [rank.exitcode for rank in ranks] == [0, 0], (folder / "printed").read_text()
    said = sorted(re.findall(r"rank \d has .*", (folder / "printed").read_text()))
    return [json.loads(line.partition(" has ")[2]) for line in said]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    run, listener = train(tmp_path_factory.mktemp("trained"), "usual")
    assert not listener.failures, run.log_tail()
    return run


def test_the_losses_are_those_of_torchrun_and_of_all_ranks(
    alone: list[list[float]], trained: RunDir
) -> None:
    events, _ = read_events(trained.events_file)
    means = [sum(losses) / 2 for losses in zip(*alone, strict=True)]
    assert [event["loss"] for event in of_kind(events, "step")] == means
    assert len(means) == 10 and alone[0] != alone[1]


def test_the_journal_has_each_rank_of_each_block_and_the_samples_of_both(trained: RunDir) -> None:
    events, _ = read_events(trained.events_file)
    blocks = of_kind(events, "block")
    assert [block["num_steps"] for block in blocks] == [4, 4, 2]
    assert [block["samples"] for block in blocks] == [48, 48, 24]
    rows = [(row["first_step"], row["rank"]) for row in of_kind(events, "rank_block")]
    assert rows == [(0, 0), (0, 1), (4, 0), (4, 1), (8, 0), (8, 1)]
    inputs = of_kind(events, "inputs")[0]
    assert len(inputs["floats"]) == 2 and inputs["floats"][0] != inputs["floats"][1]


@pytest.mark.slow
def test_a_fault_of_one_rank_is_named_with_rank_and_step(data_dir: DataDir) -> None:
    """One run has a wrong gradient on rank 1 in step 6, another one other data from there on."""
    for label in ("baseline", "control", "eager", "aot_eager"):
        run, listener = train(data_dir.runs, "faults", label)
        assert not listener.failures, run.log_tail()
        run.write_exit(Exit.now(RunState.FINISHED, "all steps done", 0))
    comparison = compared(data_dir, "x")
    wrong, unlike = (parity_words_of(comparison, label) for label in ("eager", "aot_eager"))
    assert wrong.startswith("the loss of rank 1 leaves the band at step 7 and is up to ")
    assert unlike.startswith(
        "the runs saw different data on rank 1 from a step between step 4 and step 8 on"
    )
    assert [text for text in warnings_of(comparison) if "weights" in text] == [
        "eager: rank 1 left the weights of the others between step 4 and step 7, and the "
        "baseline's stay equal, bit for bit. Ranks with copies of one model must make equal "
        "updates: a gradient was not averaged, or one rank's optimizer computed otherwise."
    ]


def parity_words_of(comparison: Comparison, label: str) -> str:
    parity = row_of(comparison, label).parity
    assert parity is not None
    return str(parity_words(parity))


def test_ranks_that_share_weights_are_perturbed_as_a_model_of_one_is(tmp_path: Path) -> None:
    run, listener = train(tmp_path, "fsdp", "control")
    assert not listener.failures, run.log_tail()
    torch.manual_seed(0)
    layer = nn.Linear(4, 2)
    spec = run.read_spec()
    seed = spec.experiment.training.seed + spec.arm.perturbation_seed
    perturb(layer, spec.arm.perturbation, seed)
    weights = [parameter.tolist() for parameter in layer.parameters()]
    said = [line for line in run.log_tail().splitlines() if line.startswith("weights ")]
    assert [json.loads(line.removeprefix("weights ")) for line in said] == [weights, weights]


@pytest.mark.slow
def test_a_rank_with_fewer_steps_ends_the_run_and_is_named(tmp_path: Path) -> None:
    _, listener = train(tmp_path, "fewer")
    (message, *_) = (str(failure.fields["message"]) for failure in listener.failures)
    assert "rank 1 ended its script after 9 steps, and rank 0 waits for it" in message


def test_ranks_that_do_not_need_each_other_must_make_as_many_steps(tmp_path: Path) -> None:
    _, listener = train(tmp_path, "fewer alone")
    (message, *_) = (str(failure.fields["message"]) for failure in listener.failures)
    assert "rank 1 made 1 steps in a block in which rank 0 made 2" in message


def test_processes_that_a_script_starts_itself_are_its_ranks(tmp_path: Path) -> None:
    """Also if they name a port at which nobody can meet."""
    run, listener = train(tmp_path, "spawns")
    assert not listener.failures, run.log_tail()
    events, _ = read_events(run.events_file)
    assert [event["loss"] for event in of_kind(events, "step")] == [0.5, 0.5]


def test_a_script_of_one_rank_that_starts_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"--set script\.ranks=2"):
        run_here(tmp_path, SPAWNS)


@pytest.mark.slow
def test_a_rank_that_is_killed_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    run = place(tmp_path, run_spec(tmp_path, "killed"))
    assert work_on(run, **{CODE_VARIABLE: str(tmp_path)}) == WorkerExit.RANK_LOST
    (error,) = of_kind(read_events(run.events_file)[0], "error")
    assert "rank 1: ended by signal SIGKILL" in error["message"]
    assert "[rank 1] rank 1 begins" in run.log_tail()  # What it printed is not lost.
    assert not processes(str(run.path))


@pytest.mark.slow
def test_ranks_that_do_not_begin_a_step_together_are_refused(tmp_path: Path) -> None:
    """As those of a pipeline: rank 1 gets what rank 0 computed before it calls its own part."""
    run = place(tmp_path, run_spec(tmp_path, "pipeline"))
    assert work_on(run, **{CODE_VARIABLE: str(tmp_path)}) == WorkerExit.FAILED
    (error,) = of_kind(read_events(run.events_file)[0], "error")
    assert error["message"].startswith("rank 1 waits for another rank before its first step, and ")
    assert not processes(str(run.path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("killed", "rank 1: ended by signal SIGKILL"),
        ("raises", "rank 1: its loss is not a number"),
        ("hangs", "rank 1: no step for 30 s"),
    ],
)
def test_a_rank_that_fails_ends_its_run_alone(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str
) -> None:
    monkeypatch.setenv(CODE_VARIABLE, str(data_dir.path))
    # A busy machine may need many seconds for a step of the runs that go on.
    patience = {"patience_seconds": 30.0} if fault == "hangs" else {}
    spec = run_spec(data_dir.path, f"{fault} of eager", **patience).experiment
    key = submit(data_dir, spec)
    supervise(data_dir)
    ends = {
        run.run_id.partition(".")[2]: run.read_exit() for run in find_experiment(data_dir, key).runs
    }
    assert {label: end and end.state for label, end in ends.items()} == {
        "baseline": RunState.FINISHED,
        "control": RunState.FINISHED,
        "eager": RunState.FAILED,
    }
    assert ends["eager"] is not None and reason in (ends["eager"].reason or "")
    assert not processes(str(data_dir.runs))


@pytest.mark.slow
def test_a_rank_that_hangs_is_named_and_not_the_one_that_waits_for_it(tmp_path: Path) -> None:
    run = place(tmp_path, run_spec(tmp_path, "hangs", patience_seconds=8.0))
    assert work_on(run, **{CODE_VARIABLE: str(tmp_path)}) == WorkerExit.FAILED
    (error,) = of_kind(read_events(run.events_file)[0], "error")
    assert error["message"].startswith("rank 1: no step for 8 s")
    assert not processes(str(run.path))


@pytest.mark.slow
def test_a_stop_ends_all_ranks(tmp_path: Path) -> None:
    run = place(tmp_path, run_spec(tmp_path, "hangs"))
    process = start(run.output_file, _work, str(run.path), **{CODE_VARIABLE: str(tmp_path)})
    wait_until(lambda: run.log_tail().count("begins") == 2)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGTERM)
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == WorkerExit.CANCELLED
    assert not processes(str(run.path))
