"""`breakeven` as a person types it, with real trainings on the CPU. Supervisor and database work in
the process of the test; `tests/test_package.py` starts all processes that there are."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.commands import start
from breakeven.runner.commands.cli import main
from breakeven.runner.files import FileLock
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.storage.comparison.comparison import Comparison, compare
from breakeven.storage.index.store import Store
from tests.helpers.loop import FAULTS  # imports the torch that runs share
from tests.helpers.machine import MACHINE, PLANTED, keep
from tests.runner.supervision.supervised import commands_here

pytestmark = pytest.mark.heavy

NET = (
    "--task=custom",
    f"--model={FAULTS / 'relu_net.py'}:ReluNet",
    f"--data={FAULTS / 'relu_net.py'}:samples",
    f"--allow-code={FAULTS}",
    "--loss=CrossEntropyLoss",
    "--train-samples=640",
    "--eval-samples=200",
    "--epochs=2",
    "--batch-size=16",
    "--learning-rate=0.3",
    "--block-steps=10",
    "--cpu-threads=1",
    "--optimizer=SGD",
    "--profile-steps=0",
)
WITH_PLANTED = replace(MACHINE, debug_backends=(*MACHINE.debug_backends, *PLANTED))
HOOKS = """
class Count:
    def batch_end(self, state):
        state.record('steps so far', float(state.step))
"""


@dataclass(frozen=True)
class Outcome:
    status: int
    output: str
    data_dir: DataDir

    @property
    def comparison(self) -> Comparison:
        store = Store.in_memory(self.data_dir)
        try:
            (experiment_id,) = store.query("SELECT DISTINCT experiment_id FROM runs").iloc[:, 0]
            return compare(store, experiment_id)
        finally:
            store.close()


def command_line(folder: Path, *arguments: str) -> Outcome:
    said = io.StringIO()
    with commands_here() as patch, redirect_stdout(said), redirect_stderr(said):
        patch.setenv("PYTHONPATH", str(FAULTS))
        status = main([*arguments, f"--data-folder={folder}"])
    return Outcome(status, said.getvalue(), DataDir(folder))


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One real comparison with a callback, on a known machine: a backend with zeroed gradients."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "code").mkdir()
    (folder / "code" / "hooks.py").write_text(HOOKS)
    (folder / "data").mkdir()
    keep(DataDir(folder / "data"), WITH_PLANTED)
    return command_line(
        folder / "data",
        "compare",
        "--backends=zeroed_gradients",
        f"--callback={folder / 'code' / 'hooks.py'}:Count",
        f"--allow-code={folder / 'code'}",
        "--fail-if=compile>0.001",
        *NET,
    )


def test_a_real_comparison_trains_every_run_and_finds_dead_gradients_within_20_steps(
    outcome: Outcome,
) -> None:
    """Its table names every run, and the gate refuses a limit that was passed. The whole step
    compiles once, callbacks record, and compile caches are gone."""
    results = {result.label: result for result in outcome.comparison.results}
    assert {result.state for result in results.values()} == {RunState.FINISHED}, outcome.output
    for label in ("baseline", "control"):
        # 4 labels: a loss of ln 4 = 1.386 and an accuracy of about 0.25 are chance.
        assert results[label].measured.final_loss < 1.2, label
        assert results[label].measured.accuracy > 0.5, label
    dead = results["zeroed_gradients"].parity
    assert dead is not None and dead.verdict == "broken"
    assert dead.first_step_outside is not None and dead.first_step_outside <= 20

    table = outcome.output.partition("speedup")[2]
    for label in ("baseline", "control", "zeroed_gradients"):
        assert f"\n{label} " in table
    assert outcome.status == 5, outcome.output
    (line,) = (line for line in outcome.output.splitlines() if line.startswith("FAIL "))
    assert line.startswith("FAIL zeroed_gradients: compile>0.001: compile latency ")
    assert line.endswith(" s, limit 0.001 s")

    (run,) = outcome.data_dir.runs.glob("*.zeroed_gradients")
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    steps = [event["step"] for event in events if event["kind"] == "step" and event["compiled"]]
    assert steps == [0]
    assert len([event for event in events if event["kind"] == "value"]) == 80
    assert not list(outcome.data_dir.runs.glob("*/compile-cache"))


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A data folder that knows this machine."""
    keep(DataDir(tmp_path), MACHINE)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "argument", "message"),
    [
        ("queue add", "--backends=indcutor", "backends = 'indcutor'"),
        ("queue add", "--optimizer=Adamm", "training.optimizer = 'Adamm'"),
        ("queue add", "--device=cuda:7", "devices = 'cuda:7'"),
        ("queue add", "--data=nowhere/x.csv", "data.source = 'nowhere/x.csv': no such file"),
        ("queue add", "--batch-size=5000", "training.batch_size = 5000"),
        ("compare", "--fail-if=slower-than:old>2%", "an environment; the experiment has none"),
        ("compare", f"--callback={FAULTS / 'relu_net.py'}:Hook", f"BREAKEVEN_CODE={FAULTS}"),
    ],
)
def test_bad_input_is_refused_with_the_value_at_fault_before_anything_starts(
    fresh: Path, capsys: pytest.CaptureFixture[str], command: str, argument: str, message: str
) -> None:
    assert main([*command.split(), argument, f"--data-folder={fresh}"]) == 2
    assert message in capsys.readouterr().err
    assert not list(DataDir(fresh).runs.glob("*"))


def test_own_code_that_is_not_there_is_refused(
    fresh: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CODE_VARIABLE, "")  # which the option adds to
    missing = fresh / "missing.py"
    command = ["compare", f"--callback={missing}:Count", f"--allow-code={fresh}"]
    assert main([*command, f"--data-folder={fresh}"]) == 2
    assert f"there is no file {missing}" in capsys.readouterr().err


def test_folders_cannot_be_allowed_to_a_supervisor_that_is_at_work(
    fresh: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "LINGER_SECONDS", -2.0)  # It waits 2 s longer than that.
    with FileLock(DataDir(fresh).supervisor_lock) as lock:
        assert lock.try_acquire()
        command = ["queue", "start", f"--allow-code={fresh}", f"--data-folder={fresh}"]
        assert main(command) == 2
    assert "with the allowed folders of its start" in capsys.readouterr().err


@pytest.mark.slow
def test_what_only_torch_can_refuse_ends_the_experiment_before_it_trains_with_the_same_sentence(
    tmp_path: Path,
) -> None:
    refused = command_line(tmp_path, "compare", "--backends=zzzz", *NET, "--controls=0")
    said = "\nbackends = 'zzzz': is not there; this machine has "
    assert refused.status == 2 and said in refused.output, refused.output
    with Store.in_memory(refused.data_dir) as store:
        assert store.query("SELECT count(*) FROM steps").iloc[0, 0] == 0
