"""The worker under released versions of torch, each in an environment of its own.

    ENVIRONMENTS=FOLDER make test-slow WHAT=tests/runner/worker/test_released_torch.py

`FOLDER` has an environment for each version. Without the variable, uv makes them from its package
index, which takes gigabytes for builds with CUDA; `UV_TORCH_BACKEND=cpu` chooses those without.
"""

import os
import subprocess
from pathlib import Path

import pytest

import breakeven.runner.supervision.supervisor
from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.checks.environments import why_unfit
from breakeven.runner.commands.cli import main
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.machine.uv_environments import resolved
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs import experiment as specs
from breakeven.runner.supervision.supervisor import supervise
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

FOLDER = os.environ.get("ENVIRONMENTS", "")
RELEASED = ("2.6.0", "2.9.1", "2.11.0", "2.14.1")
NET = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 4)
        )

    def forward(self, x, labels=None):
        return self.layers(x)

def samples():
    x = torch.randn(1280, 16)
    part = {"x": x, "labels": x[:, :4].argmax(-1)}
    return {"train": part, "validation": part}
"""
VERSIONS = "import sys, torch; print(torch.__version__.partition('+')[0], sys.version.split()[0])"
SCRIPT = """
import breakeven, torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
model = breakeven.compile(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
samples = torch.randn(64, 16)
classes = samples[:, :4].argmax(-1)
for step in range(60):
    loss = torch.nn.functional.cross_entropy(model(samples), classes)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    breakeven.step(loss)
"""


def given() -> list[Path]:
    pythons = sorted(Path(FOLDER).glob("*/bin/python")) if FOLDER else []
    return [python for python in pythons if next(python.parents[1].rglob("torch/version.py"), None)]


@pytest.fixture(params=given() or RELEASED, ids=lambda param: str(param).split("/")[-3:][0])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if isinstance(request.param, Path):
        return request.param
    kept = DataDir(tmp_path_factory.getbasetemp() / "environments")
    (text,) = resolved(kept, [f"torch{request.param}=torch=={request.param} numpy"])
    return Path(text.partition("=")[2])


@pytest.fixture(autouse=True)
def permission(monkeypatch: pytest.MonkeyPatch, python: Path, tmp_path: Path) -> None:
    monkeypatch.setattr(breakeven.runner.supervision.supervisor, "LINGER_SECONDS", 0.0)
    monkeypatch.setenv(CODE_VARIABLE, f"{tmp_path}{os.pathsep}{python.parent}")


def versions_of(python: Path) -> tuple[str, str]:
    """The versions of torch and of Python."""
    printed = subprocess.run(
        [python, "-W", "ignore", "-c", VERSIONS], capture_output=True, text=True
    )
    torch, own = printed.stdout.split()
    return torch, own


def require_trained(data_dir: DataDir, experiment_id: str, python: Path) -> None:
    """Every run finished, under the versions of its environment; losses match; a graph was
    compiled."""
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, experiment_id)
        recorded = store.query("SELECT versions->>'torch' AS torch, python FROM environments")
    states = {run.label: (run.state, comparison.why_ended(run.label)) for run in comparison.results}
    assert states == {
        f"{label}@released": ("finished", None)
        for label in ("baseline", "control", "eager", "inductor")
    }
    torch, own = versions_of(python)
    assert {version.partition("+")[0] for version in recorded["torch"]} == {torch}
    assert set(recorded["python"]) == {own}
    for label in ("eager@released", "inductor@released"):
        result = comparison.result_of(label)
        assert result.parity is not None and result.parity.verdict == "holds", label
        assert result.measured.compile_seconds is not None, label


def test_it_is_accepted_as_an_environment(python: Path) -> None:
    assert why_unfit(str(python), ()) is None


def test_a_model_of_ones_own_trains(python: Path, tmp_path: Path) -> None:
    net = tmp_path / "net.py"
    net.write_text(NET)
    spec = specs.ExperimentSpec(
        name="released",
        backends=("eager", "inductor"),
        environments=(f"released={python}",),
        task="custom",
        model=specs.ModelSpec(source=f"{net}:Net"),
        data=specs.DataSpec(source=f"{net}:samples", num_train_samples=960, num_eval_samples=10),
        training=specs.TrainingSpec(
            batch_size=16, max_steps=60, learning_rate=0.05, losses=("CrossEntropyLoss",)
        ),
        evaluation=specs.EvaluationSpec(when="never"),
        block_steps=5,
        cpu_threads=1,
        profile_steps=0,
    )
    data_dir = DataDir(tmp_path / "data")
    experiment_id = submit(data_dir, spec)
    supervise(data_dir)
    assert find_experiment(data_dir, experiment_id).is_over
    require_trained(data_dir, experiment_id, python)


def test_a_script_trains(python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    data_dir = DataDir(tmp_path / "data")
    status = main(
        [
            "run",
            f"--environment=released={python}",
            "--cpu-threads=1",
            "--backends=eager,inductor",
            f"--data-folder={data_dir.path}",
            str(script),
        ]
    )
    printed = capfd.readouterr().out
    assert status == 0, printed
    require_trained(data_dir, printed.split()[1], python)
