"""What a script finds at its start is what Python would give it without Breakeven."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from breakeven.runner.errors import WorkloadError
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ScriptSpec
from breakeven.runner.worker.script.workplaces import Workplace
from tests.helpers.machine import MACHINE, keep
from tests.runner.worker.script.scripts import NET, run

pytestmark = pytest.mark.heavy
SAYS = """
import json, os, sys

def main():
    at_start = [__name__, __package__, os.getcwd(), sys.path[0], *sys.argv, open("data.csv").read()]
    open("start.json", "w").write(json.dumps(at_start))
    compiled = breakeven.compile(made)
    for _ in range(4):
        breakeven.step(compiled(torch.randn(8, 4)))
"""
MAIN = f"{SAYS}\nif __name__ == '__main__':\n    main()\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "data.csv").write_text("1,2")
    return folder


def test_a_module_starts_in_the_copy_of_the_folder_as_python_m_would(
    tmp_path: Path, project: Path
) -> None:
    script = ScriptSpec(module="train", folder=str(project), arguments=("--lr", "1"))
    ran = run(tmp_path, NET + MAIN, script=script)
    place = str(ran.folder.workplace)
    start = [f"{place}/train.py", "--lr", "1", "1,2"]
    assert said(ran.folder.workplace) == ["__main__", "", place, place, *start]
    assert len(ran.losses) == 4 and not (project / "start.json").exists()


def test_a_command_of_a_package_calls_its_function(tmp_path: Path, project: Path) -> None:
    script = ScriptSpec(module="my-tool=train:main", folder=str(project))
    sys.modules.pop("train", None)
    sys.path.insert(0, str(project))  # as if it was installed
    ran = run(tmp_path, NET + SAYS, script=script)
    place, programs = str(ran.folder.workplace), str(Path(sys.executable).parent)
    start = ["train", "", place, programs, f"{programs}/my-tool", "1,2"]
    assert said(ran.folder.workplace) == start and len(ran.losses) == 4
    sys.path.remove(str(project))


def test_a_script_below_the_start_folder_reads_and_imports_as_it_would(
    tmp_path: Path, project: Path
) -> None:
    (tmp_path / "data.csv").write_text("outer")
    (tmp_path / "setup.py").write_text("")
    (project / "beside.py").write_text("NUMBER = 7")
    code = NET + MAIN.replace("import json", "import beside, json")
    ran = run(tmp_path, code, script=ScriptSpec(folder=str(project)))
    place = ran.folder.workplace / "project"
    assert said(place)[2:4] == [str(place), str(place)]
    # The project's top is there, too, so that `../data.csv` exists.
    assert not (ran.folder.workplace / "data.csv").exists()  # tidied


def test_a_module_that_is_not_the_file_named_is_refused(tmp_path: Path, project: Path) -> None:
    script = ScriptSpec(module="json", folder=str(project))
    with pytest.raises(WorkloadError, match="an import of json takes"):
        run(tmp_path, NET + MAIN, script=script)


def said(place: Path) -> list[str]:
    answer: list[str] = json.loads((place / "start.json").read_text())
    return answer


def test_around_the_start_folder_files_are_copied_and_folders_linked(tmp_path: Path) -> None:
    top, place = tmp_path / "top", tmp_path / "place"
    for name in ("setup.py", "a.txt", "data/x.txt", "here/train.py", "here/deep/y.txt", ".git/z"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    workplace = Workplace(top / "here/train.py", top / "here", top / "here")
    assert workplace.make(place) == ["data"] and workplace.start_in(place) == place / "here"
    assert workplace.copy_of(workplace.script, place) == place / "here/train.py"
    assert (place / "data").is_symlink() and not (place / ".git").exists()
    assert not (place / "here").is_symlink() and not (place / "here/deep").is_symlink()
    (place / "a.txt").write_text("changed")
    assert (top / "a.txt").read_text() == "a.txt"
    workplace.tidy(place)
    assert [path.name for path in place.iterdir()] == ["a.txt"] and (top / "data/x.txt").exists()


def test_an_unrelated_start_folder_is_not_copied_with_its_folders(tmp_path: Path) -> None:
    for name in ("here/big/x.txt", "here/data.csv", "other/train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    script, place = tmp_path / "other/train.py", tmp_path / "place"
    workplace = Workplace(script, script.parent, tmp_path / "here")
    assert workplace.make(place) == ["big"] and workplace.start_in(place) == place
    assert workplace.copy_of(script, place) == script
    assert not (place / "data.csv").is_symlink()


def test_a_typed_command_runs_in_its_python_with_its_variables(
    tmp_path: Path, project: Path
) -> None:
    """The whole way: another Python, a package by `-m`, a variable, a file of the folder."""
    env = tmp_path / "env"
    (env / "bin").mkdir(parents=True)
    (env / "bin/python").symlink_to(Path(sys.executable).resolve())
    (env / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    packages = env / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    packages.mkdir(parents=True)
    (packages / "all.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (project / "pkg").mkdir()
    code = NET + MAIN.replace("*sys.argv", "sys.prefix, os.environ['SAID'], *sys.argv[1:]")
    (project / "pkg/train.py").write_text(code)
    # The machine is known, so that torch is not asked once more.
    DataDir(tmp_path / "data").make()
    keep(DataDir(tmp_path / "data"), MACHINE)
    ours = ["--backends=eager", "--controls=0", "--profile-steps=0", "--set=more_controls=0"]
    typed = ["SAID=as typed", f"{env}/bin/python", "-m", "pkg.train", "--steps", "3"]
    done = subprocess.run(
        [sys.executable, "-m", "breakeven", "run", f"--data-folder={tmp_path}/data", *ours, *typed],
        cwd=project,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    (start,) = (tmp_path / "data/runs").glob("*baseline*/work/start.json")
    place = str(start.parent)
    begin = ["__main__", "pkg", place, place, str(env), "as typed", "--steps", "3", "1,2"]
    assert said(start.parent) == begin, done.stderr
