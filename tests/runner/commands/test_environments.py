"""Experiments in several environments, with real Pythons. `test_bisect.py` plants faults there."""

import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from breakeven.runner.checks.environments import check_allowed, why_unfit
from breakeven.runner.commands.cli import main
from breakeven.runner.errors import CodeNotAllowed, InvalidSpec, RunnerError
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.machine.uv_environments import OWN, resolved, uv_environments
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec, SpeedSpec
from breakeven.runner.supervision.supervisor import supervise
from tests.helpers.machine import MACHINE, keep
from tests.runner.supervision.supervised import impatience as impatience

OWN_PACKAGES = sysconfig.get_path("purelib") + "\n"
LAYER = """
import time
from torch import nn

class Layer(nn.Linear):
    def forward(self, x):
        {work}
        return super().forward(x) * {factor}
"""
SCRIPT = """
import breakeven, torch
from layer import Layer

torch.manual_seed(0)
model = torch.nn.Sequential(Layer(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
model = breakeven.compile(model)
optimizer = torch.optim.SGD(model.parameters(), 0.05)
samples = torch.randn(32, 64)
classes = samples[:, :4].argmax(-1)
for step in range(120):
    loss = torch.nn.functional.cross_entropy(model(samples), classes)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    breakeven.step(loss)
"""


def environment(folder: Path, *, work: str = "time.sleep(0.004)", factor: float = 1.0) -> Path:
    """A Python with the torch of this one and its own version of the package `layer`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (packages / "torch.pth").write_text(OWN_PACKAGES)
    (packages / "layer.py").write_text(LAYER.format(work=work, factor=factor))
    return folder / "bin" / "python"


@pytest.mark.heavy
def test_what_an_environment_lacks_is_said_before_anything_runs(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", empty], check=True)
    python = str(empty / "bin" / "python")
    assert why_unfit(python, ()) == (
        "cannot import torch: ModuleNotFoundError: No module named 'torch'"
    )
    assert why_unfit(sys.executable, ("transformers", "no_such_package")) == (
        "lacks no_such_package, which this experiment needs; install it there"
    )
    assert why_unfit("/bin/true", ()) == "is no Python: it did not answer a question in Python"
    assert why_unfit("/no/python", ()) == "cannot be started: No such file or directory"


def test_only_pythons_of_the_data_folder_or_an_allowed_folder_may_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir = DataDir(tmp_path / "data")
    check_allowed(sys.executable, data_dir)
    check_allowed(str(data_dir.environments / "mine/bin/python"), data_dir)
    other = tmp_path / "other" / "bin" / "python"
    for python in (other, data_dir.environments / ".." / "python"):
        with pytest.raises(CodeNotAllowed):
            check_allowed(str(python), data_dir)
    monkeypatch.setenv("BREAKEVEN_CODE", str(other.parent))
    check_allowed(str(other), data_dir)


@pytest.mark.heavy
def test_a_run_whose_python_is_not_allowed_is_not_started(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path / "data")
    data_dir.make()
    keep(data_dir, MACHINE)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    python.chmod(0o755)
    spec = ExperimentSpec(name="x", environments=(f"foreign={python}",), backends=())
    experiment = find_experiment(data_dir, submit(data_dir, spec))
    supervise(data_dir)
    standings = [run.status for run in experiment.runs]
    baseline, control = (status.state for status in standings)
    assert (baseline, control) == (RunState.FAILED, RunState.CANCELLED), "one tries for both"
    assert "may not run here" in (standings[0].reason or "")
    assert not (tmp_path / "started").exists()


def test_environments_are_named_by_path_by_folder_and_by_name(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path / "data")
    kept = data_dir.environments / "kept"
    for folder in (kept, tmp_path / "venv"):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").touch()
    (kept / "requirements.txt").write_text("torch==2.11.0\n")
    venv = tmp_path / "venv"
    assert resolved(data_dir, [f"a={venv}", f"b={venv}/bin/python", "kept,own"]) == [
        f"a={venv}/bin/python",
        f"b={venv}/bin/python",
        f"kept={kept}/bin/python",
        f"{OWN}={sys.executable}",
    ]
    with pytest.raises(InvalidSpec, match=r"is no environment of .*kept"):
        resolved(data_dir, ["kpet"])
    with pytest.raises(InvalidSpec, match="neither a Python, nor a file of requirements"):
        resolved(data_dir, ["a=no/such/file"])
    with pytest.raises(RunnerError, match=r"made from other requirements \(torch==2.11.0\)"):
        resolved(data_dir, ["kept=torch==2.12.0"])


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, from which alone uv installs."""
    if shutil.which("uv", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("uv is not installed")
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    return folder


def wheel(index: Path, name: str, version: str, files: dict[str, str], needs: str = "") -> None:
    about = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with zipfile.ZipFile(index / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{about}/METADATA", metadata + (needs and f"Requires-Dist: {needs}\n"))
        archive.writestr(
            f"{about}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{about}/RECORD", "")


@pytest.fixture
def small_package(index: Path) -> str:
    """A package that uv installs without the network."""
    wheel(index, "tiny_torch", "1.0", {"torch/__init__.py": "__version__ = '2.5.0'"})
    return "tiny-torch==1.0"


@pytest.mark.heavy
def test_environments_are_made_kept_listed_and_removed(
    tmp_path: Path, small_package: str, capfd: pytest.CaptureFixture[str]
) -> None:
    data_dir = DataDir(tmp_path / "data")
    (text,) = resolved(data_dir, [f"tiny={small_package}"])
    python = text.removeprefix("tiny=")
    assert "tiny-torch" in capfd.readouterr().err  # uv says what it installs
    assert why_unfit(python, ()) == "has torch 2.5.0; runs need 2.6 or newer"
    assert resolved(data_dir, [f"tiny={small_package}"]) == [text]  # kept
    assert capfd.readouterr().err == ""
    folder = f"--data-folder={data_dir.path}"
    assert main(["data", "clean", "--environments", folder]) == 0
    assert re.fullmatch(r"tiny: [\d.]+ MB  tiny-torch==1.0\n", capfd.readouterr().out)

    experiment = submit(data_dir, ExperimentSpec(name="x", environments=(text,)))
    assert main(["data", "clean", "--environments", "tiny", folder]) == 2
    assert f"{experiment}.baseline has not ended and needs it" in capfd.readouterr().err
    shutil.rmtree(data_dir.runs)
    assert main(["data", "clean", "--environments", "tiny", folder]) == 0
    assert uv_environments(data_dir) == [] and not Path(python).exists()


@pytest.mark.heavy
def test_an_environment_that_cannot_be_made_leaves_nothing(
    tmp_path: Path, small_package: str, capfd: pytest.CaptureFixture[str]
) -> None:
    data_dir = DataDir(tmp_path / "data")
    requirements = tmp_path / "requirements-nightly.txt"
    requirements.write_text("no-such-package==7\n")
    with pytest.raises(RunnerError, match="uv could not make the environment"):
        resolved(data_dir, [f"nightly={requirements}"])
    assert "no-such-package" in capfd.readouterr().err  # uv says why
    assert list(data_dir.environments.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"environments": ("a=/x/python", "a=/y/python")}, "must not use a name twice"),
        ({"environments": ("a=python",)}, "must name the Python by its full path"),
        ({"environments": ("no path",)}, "must read NAME=PATH"),
        ({"environments": ("a=/x/python",), "scenario": "cache"}, "'train' and 'speed' alone"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        ExperimentSpec.from_dict({"name": "x", **changes})


def test_every_environment_gets_all_runs_of_every_repeat() -> None:
    spec = ExperimentSpec(
        name="x",
        scenario="speed",
        environments=("a=/x/python", "b=/y/python"),
        speed=SpeedSpec(repeats=2),
    )
    assert [arm.label for arm in spec.arms] == [
        f"{run}@{name}-{repeat}"
        for repeat in (1, 2)
        for name in ("a", "b")
        for run in ("baseline", "control", "inductor")
    ]
    assert (
        spec.environment_by_label["inductor@b"] == spec.environment_by_label["inductor@b-2"] == "b"
    )
    assert {spec.environment_python(arm) for arm in spec.arms} == {
        "/x/python",
        "/y/python",
    }
