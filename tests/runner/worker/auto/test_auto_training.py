"""A training with `breakeven.auto`: whatever the compiler does, its losses and weights are those of
an uncompiled training, until compiled steps are known to be right and faster."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import breakeven
from breakeven.runner.errors import InvalidSpec, WorkloadError
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DATA_VARIABLE, DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.supervision.exit_records import ExitRecords
from breakeven.runner.supervision.orphans import close_orphans
from breakeven.runner.worker.auto import auto_training
from breakeven.runner.worker.auto.auto_training import AutoTraining
from breakeven.runner.worker.auto.costs import Costs
from breakeven.runner.worker.auto.time_limit import TooLong, limited
from breakeven.runner.worker.auto.trial import Trial
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from tests.runner.worker.auto import wrong_backends

pytestmark = [pytest.mark.usefixtures("fresh_torch", "in_own_folder"), pytest.mark.heavy]

STEPS = 60
PAYS = Costs(compile_seconds=1e-9, saved_share=1.0, source="a test")
FAULTS = {
    "wrong_value": "differs by",
    "wrong_dtype": "output 0 is torch.float64 of (8, 4) in place of torch.float32 of (8, 4)",
    "not_a_number": "output 0 is not finite where it is without the compiler",
    "wrong_gradient": "the gradient of",
    "wrong_at_third_call": "differs by",
    "raises_while_compiling": "compiling failed: ",
    "raises_at_run": "compiling failed: RuntimeError: planted",
    "raises_in_backward": "compiling failed: RuntimeError: planted",
    "lacks_memory": "compiling failed: OutOfMemoryError: planted",
    "forgets_buffers": "behind the pass",
    "writes_weights": "behind the pass differs by",
    "keeps_first_weights": "differs by",
    "draws_once_more": "it draws other random numbers",
    "drops_others": "differs by",
    "hangs_while_compiling": "compiling took longer than 1.0 s",
}
"""What is said of each backend."""


@pytest.fixture
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "data"))
    # Blocks of four steps, three pairs, and compiled steps win.
    monkeypatch.setattr(auto_training, "BLOCK_SECONDS", 0.0)
    monkeypatch.setattr(auto_training, "BUDGET", 0.0)
    monkeypatch.setattr(Trial, "ratio", property(lambda trial: 0.5))
    assert wrong_backends.LATE
    yield


class Net(nn.Module):
    """Has buffers, draws random numbers and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32)
        self.dropout = nn.Dropout(0.3)
        self.outer = nn.Linear(32, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.outer(self.dropout(torch.relu(self.norm(self.inner(inputs)))))


class Trained:
    """A training, and what it left."""

    def __init__(
        self,
        backend: str | None,
        *,
        steps: int = STEPS,
        seconds: float | None = None,
        costs: Costs = PAYS,
        sizes: Callable[[int], int] = lambda step: 8,
        between: Callable[[int, nn.Module], None] = lambda step, model: None,
    ) -> None:
        torch.manual_seed(0)
        self.model = model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.auto = backend and AutoTraining(
            model, parse_backend(backend), steps, costs, max_compile_seconds=seconds
        )
        self.losses: list[float] = []
        self.compiled: list[int] = []
        """Steps that were computed by compiled code."""
        for step in range(steps):
            between(step, model)
            inputs = torch.randn(sizes(step), 16)
            labels = torch.randint(0, 4, (sizes(step),))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            if self.auto and self.auto.computes_compiled:
                self.compiled.append(step)
            optimizer.step()
            self.losses.append(loss.item())
        self.state = model.state_dict()

    def equals(self, other: "Trained") -> bool:
        """Whether losses, weights and buffers are the same, bit for bit."""
        return self.losses == other.losses and all(
            torch.equal(tensor, other.state[name]) for name, tensor in self.state.items()
        )


@pytest.mark.parametrize("backend", FAULTS)
def test_a_wrong_backend_costs_no_step_and_changes_no_bit(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = 1.0 if backend.startswith("hangs") else None
    trained = Trained(backend, seconds=limit)
    assert trained.compiled == []
    said = capsys.readouterr().err
    assert "the training goes on uncompiled" in said and FAULTS[backend] in said
    assert trained.equals(Trained(None))
    assert trained.model._compiled_call_impl is None


def test_a_right_backend_trains_compiled_from_the_first_pair_on() -> None:
    trained, plain = Trained("aot_eager"), Trained(None)
    first = trained.compiled[0]
    # Three steps to warm up, three blocks of four, a comparison, a block, a comparison, a block.
    assert first == 3 + 3 * 4 + 1 + 4 + 1 + 4
    assert trained.losses[:first] == plain.losses[:first]
    assert trained.losses == pytest.approx(plain.losses, rel=1e-4)
    assert list(trained.state) == list(plain.state)
    assert trained.compiled[-1] == STEPS - 1 and trained.auto.computes_compiled


def test_a_compiled_step_that_fails_is_computed_again_uncompiled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The backend computes as the model does, so that every loss is equal."""
    trained = Trained("fails_late")
    assert trained.compiled and "a compiled step failed: RuntimeError: planted" in (
        capsys.readouterr().err
    )
    assert trained.equals(Trained(None))


def test_a_training_that_is_too_short_is_never_compiled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    costs = Costs(compile_seconds=60.0, saved_share=0.1, source="a test")
    trained = Trained("raises_while_compiling", costs=costs)
    said = capsys.readouterr().err
    assert "compiling takes about 1 min and pays if more than 10 min of training are left" in said
    assert trained.equals(Trained(None))


def test_new_shapes_are_compiled_beside_the_training_alone() -> None:
    trained = Trained("aot_eager", sizes=lambda step: 8 + step % 5)
    plain = Trained(None, sizes=lambda step: 8 + step % 5)
    assert trained.auto.computes_compiled
    assert trained.losses == pytest.approx(plain.losses, rel=1e-4)


def test_evaluations_are_never_compiled() -> None:
    answers = []

    def evaluate(step: int, model: nn.Module) -> None:
        if step % 10 == 0:
            model.eval()
            answers.append(model(torch.ones(2, 16)))
            model.train()

    def evaluate_plainly(step: int, model: nn.Module) -> None:
        if step % 10 == 0:
            model.eval()
            answers.append(model._call_impl(torch.ones(2, 16)))
            model.train()

    assert Trained("right", between=evaluate).equals(Trained("right", between=evaluate_plainly))
    assert all(map(torch.equal, answers[: len(answers) // 2], answers[len(answers) // 2 :]))


def test_ctrl_c_while_compiling_leaves_the_training_as_it_was() -> None:
    plain = Trained(None)
    stopped: list[int] = []

    def goes_on(step: int, model: nn.Module) -> None:
        if step == 15:  # that compiles: a person presses Ctrl-C, and the program goes on
            random = torch.get_rng_state()
            before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            with pytest.raises(KeyboardInterrupt):
                model(torch.ones(8, 16))
            stopped.append(step)
            assert torch.equal(torch.get_rng_state(), random)
            for name, tensor in model.state_dict().items():
                assert torch.equal(tensor, before[name])

    trained = Trained("stopped_while_compiling", steps=16, between=goes_on)
    assert stopped == [15] and trained.losses == plain.losses[:16]


def test_a_checkpoint_within_the_trial_is_that_of_a_plain_training() -> None:
    def kept(backend: str | None) -> dict[int, Any]:
        states = {}

        def save(step: int, model: nn.Module) -> None:
            if step in (16, 22, 28):
                states[step] = pickle.loads(pickle.dumps(model))

        Trained(backend, between=save)
        return states

    tried, plain = kept("right"), kept(None)
    for step, model in tried.items():
        assert model._compiled_call_impl is None
        assert all(
            torch.equal(tensor, plain[step].state_dict()[name])
            for name, tensor in model.state_dict().items()
        )


def test_hooks_of_the_script_are_never_called_twice(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[int] = []

    def hook(step: int, model: nn.Module) -> None:
        if step == 0:
            model.inner.register_forward_hook(lambda *_: calls.append(step))

    Trained("right", between=hook)
    assert len(calls) == STEPS
    assert "would call the hooks of inner again" in capsys.readouterr().err


def test_an_error_of_breakeven_itself_leaves_the_training_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(kind: str) -> None:
        raise LookupError("planted")

    monkeypatch.setattr(auto_training, "device_class", fails)
    assert Trained("right").equals(Trained(None))
    assert "uncompiled: Breakeven failed: LookupError: planted" in capsys.readouterr().err


def test_at_the_end_it_says_what_the_compiler_saved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    auto = Trained("right").auto
    assert auto is not None
    auto._saved_per_step, auto._first_check_seconds, auto._check_seconds = 1.0, 8.0, 2.0
    auto.close()
    # Behind the last comparison three pairs of blocks of four steps end at step 45 of 60.
    assert "15 of 60 steps were compiled for good; against an uncompiled training this saved " in (
        said := capsys.readouterr().err
    )
    assert "saved about 5.0 s, 10 s of compiling and comparing included" in said


def test_the_run_folders_are_those_of_an_experiment(tmp_path: Path) -> None:
    trained = Trained("right")
    assert trained.auto is not None
    trained.auto.close()
    data_dir = DataDir(tmp_path / "data")
    runs = list(data_dir.run_dirs())
    assert [run.state for run in runs] == [RunState.FINISHED] * 2
    events = [json.loads(line) for line in runs[1].events_file.read_text().splitlines()]
    (decision,) = [event for event in events if event["kind"] == "auto_decision"]
    assert (decision["way"], decision["ratio"], decision["pairs"]) == ("compiled", 0.5, 3)
    with Store.open(data_dir) as store:
        store.ingest_all()
        comparison = compare(store, runs[0].run_id.partition(".")[0])
    assert [result.label for result in comparison.results] == ["baseline", "right"]
    assert comparison.results[1].speed_verdict == "unsure"  # of three rounds


def test_no_supervisor_resumes_a_training_that_died(tmp_path: Path) -> None:
    Trained("right", steps=5)
    data_dir = DataDir(tmp_path / "data")
    close_orphans(data_dir, ExitRecords())
    runs = list(data_dir.run_dirs())
    assert [run.state for run in runs] == [RunState.RUNNING] * 2, "its process lives"
    for run in runs:
        claim = run.read_claim()
        assert claim is not None
        gone = ProcessIdentity(pid=2**22 + 1, started="long ago")
        run.write_claim(replace(claim, process=gone, supervisor=gone))
    close_orphans(data_dir, ExitRecords())
    assert [run.state for run in runs] == [RunState.LOST] * 2 and not runs[0].attempts.exists()


def test_a_model_that_is_compiled_already_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"model = 'OptimizedModule'.*in place of torch.compile"):
        breakeven.auto(torch.compile(Net()))
    with pytest.raises(WorkloadError, match="backend 'inducter' is not registered"):
        breakeven.auto(Net(), backend="inducter")


def test_code_in_another_thread_is_ended_between_two_instructions() -> None:
    from threading import Thread

    ended = []

    def spin() -> None:
        try:
            with limited(0.05):
                while True:
                    pass
        except TooLong:
            ended.append(True)

    thread = Thread(target=spin)
    thread.start()
    thread.join(30)
    assert ended == [True]


SCRIPT = """
import sys
for name in ("numpy", "scipy", "pandas", "duckdb", "pyarrow", "orjson", "rich"):
    sys.modules[name] = None  # as if it were not installed
import torch
import breakeven
model = torch.nn.Linear(4, 1)
assert breakeven.auto(model, steps=30) is model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
"""


def test_a_plain_program_needs_nothing_but_torch(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    variables = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    done = subprocess.run(
        [sys.executable, script], env=variables, capture_output=True, text=True, check=True
    )
    assert "breakeven.auto: the training goes on uncompiled: compiling takes about" in done.stderr
    runs = list(DataDir(tmp_path / "data").run_dirs())
    assert [run.state for run in runs] == [RunState.FINISHED] * 2
    assert [run.read_spec().experiment.plan.steps for run in runs] == [30, 30]
