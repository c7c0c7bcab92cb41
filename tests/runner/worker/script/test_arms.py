"""What arms change in a script: arguments, variables, and the files of a revision or a diff."""

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.errors import WorkloadError
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec, ModelSpec, RunSpec
from breakeven.runner.worker.before_torch import prepare
from tests.runner.worker.script.scripts import NET, Ran, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

TOLD = (
    NET
    + """
import os, sys
import width
with open("told.txt", "w") as file:
    file.write(f"{sys.argv[1:]} {os.environ.get('LIMIT')} {width.WIDTH} {os.path.exists('data')}")
for _ in range(4):
    breakeven.step(made(torch.ones(2, 4)))
"""
).replace("model = Net()", "model = breakeven.compile(Net())")


def made_repository(folder: Path) -> str:
    """A project whose first commit has width 1; the files as they are have width 2. Its data is in
    no commit. Returns the first commit."""
    project = folder / "project"
    project.mkdir()
    (project / "train.py").write_text(TOLD)
    (project / "width.py").write_text("WIDTH = 1\n")
    commands = ("init -q", "add -A", "-c user.name=me -c user.email=me@here commit -qm first")
    for command in commands:
        subprocess.run(["git", "-C", str(project), *command.split()], check=True)
    (project / "width.py").write_text("WIDTH = 2\n")
    (project / "data").write_text("mine\n")
    head = ["git", "-C", str(project), "rev-parse", "HEAD"]
    return subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()


def written(ran: Ran) -> str:
    (file,) = ran.folder.path.rglob("told.txt")
    return file.read_text()


def run_arm(folder: Path, arm: str, **changes: Any) -> Ran:
    """The run of an arm called `new`."""
    sys.modules.pop("width", None)
    return run(folder, TOLD, "new", backends=(), named_arms=(f"new={arm}",), **changes)


def test_an_arm_has_its_own_arguments(tmp_path: Path) -> None:
    made_repository(tmp_path)
    assert written(run_arm(tmp_path, "--fp8")) == "['--fp8'] None 2 True"


def test_an_arm_runs_the_files_of_its_revision_with_the_data_beside_them(tmp_path: Path) -> None:
    commit = made_repository(tmp_path)
    assert written(run_arm(tmp_path, f"@{commit}")) == "[] None 1 True"
    assert (tmp_path / "project" / "width.py").read_text() == "WIDTH = 2\n"


def test_an_arm_runs_the_files_as_they_are_with_a_diff(tmp_path: Path) -> None:
    made_repository(tmp_path)
    diff = tmp_path / "fix.diff"
    diff.write_text("--- a/width.py\n+++ b/width.py\n@@ -1 +1 @@\n-WIDTH = 2\n+WIDTH = 3\n")
    assert written(run_arm(tmp_path, f"@{diff}")) == "[] None 3 True"


def test_a_link_into_the_original_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = made_repository(tmp_path)
    monkeypatch.setattr("breakeven.runner.worker.script.workplaces.LARGEST_COPIED_BYTES", 2)
    assert written(run_arm(tmp_path, f"@{commit}")) == "[] None 1 True"
    assert (tmp_path / "project" / "width.py").read_text() == "WIDTH = 2\n"


def test_a_run_whose_script_imports_the_original_of_a_changed_file_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = made_repository(tmp_path)
    project = tmp_path / "project"
    monkeypatch.setitem(sys.modules, "width", _loaded(project / "width.py"))
    with pytest.raises(WorkloadError, match=r"new: the script imports .*width\.py, which its"):
        run(tmp_path, TOLD, "new", backends=(), named_arms=(f"new=@{commit}",))


def test_a_run_whose_script_imports_a_changed_file_beside_its_folder_fails(tmp_path: Path) -> None:
    commit = made_repository(tmp_path)
    project = tmp_path / "project"
    inner = project / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").touch()  # So only this folder is copied.
    beside = f"import sys\nsys.path.insert(0, {str(project)!r})\n"
    (inner / "train.py").write_text(beside + TOLD)
    sys.modules.pop("width", None)
    script = ModelSpec(source=f"script:{inner / 'train.py'}")
    with pytest.raises(WorkloadError, match=r"new: the script imports .*width\.py, which its"):
        run(tmp_path, TOLD, "new", backends=(), named_arms=(f"new=@{commit}",), model=script)


def _loaded(file: Path) -> Any:
    spec = spec_from_file_location("width", file)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_variables_of_an_arm_replace_what_all_runs_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {"backends": (), "named_arms": ("new=OMP_NUM_THREADS=3",)}
    spec = ExperimentSpec(name="mine", cpu_threads=1, **changes)
    threads = {}
    for arm in spec.arms:
        # What the supervisor gives the process of a run.
        run_spec = RunSpec(experiment_id="x", experiment=spec, arm=arm)
        environment = {**os.environ, **run_spec.script.variables_by_name}
        monkeypatch.setattr(os, "environ", environment)
        prepare(run_spec, RunDir(tmp_path / arm.label))
        threads[arm.label] = os.environ["OMP_NUM_THREADS"]
    assert threads == {"baseline": "1", "control": "1", "new": "3"}
