"""What Breakeven makes of the command of a training, as people type it."""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.arguments import typed_commands
from breakeven.runner.arguments.other_pythons import accelerate_launch, located
from breakeven.runner.arguments.typed_commands import ONE_RANK, TypedCommand, read_command
from breakeven.runner.errors import RunnerError

FILES = ("train.py", "sub dir/träin.py", "pkg/__init__.py", "pkg/train.py", "-odd.py")
PROGRAMS = {
    "python": "",
    "python3": "",
    "torchrun": "#!{bin}/python\n",
    "accelerate": "#!{bin}/python\n",
    "my-tool": "#!/usr/bin/env python3\n",
    "spaced": "#!/bin/sh\n'''exec' \"{bin}/python\" \"$0\" \"$@\"\n' '''\n",
    "start": "#!/bin/bash\npython train.py\n",
    "uv": "",
    "poetry": "",
    "deepspeed": "#!{bin}/python\n",
}


@pytest.fixture
def bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment's folder of programs, alone on the path; the working folder is a project."""
    folder = tmp_path / "env" / "bin"
    folder.mkdir(parents=True)
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text.format(bin=folder))
        (folder / name).chmod(0o755)
    for name in FILES:
        file = tmp_path / "project" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(typed_commands, "located", answer_of(tmp_path / "project"))
    return folder


def answer_of(project: Path) -> Any:
    """What a Python would answer, without asking one."""

    def answer(python: str, kind: str, name: str, variables: Mapping[str, str]) -> dict[str, Any]:
        function = "pkg.train:main" if name in ("my-tool", "spaced") else ""
        file = "pkg/__main__.py" if name == "pkg" else "pkg/train.py"
        return {
            "python": python,
            "torch": "no-torch" not in python,
            "file": str(project / file),
            "function": function,
        }

    return answer


def read(line: str, num_gpus: int = 0) -> TypedCommand:
    return read_command(shlex.split(line), num_gpus)


def test_a_file_alone_runs_with_breakevens_own_python(bin: Path) -> None:
    command = read("train.py --epochs 3")
    assert command == TypedCommand(file=Path.cwd() / "train.py", arguments=("--epochs", "3"))


@pytest.mark.parametrize(
    ("line", "file", "module", "arguments"),
    [
        ("-- python train.py", "train.py", "", ()),
        ("python train.py --epochs 3", "train.py", "", ("--epochs", "3")),
        ("python 'sub dir/träin.py' 'a b' ''", "sub dir/träin.py", "", ("a b", "")),
        ("python -- -odd.py", "-odd.py", "", ()),
        ("python train.py -m pkg.train", "train.py", "", ("-m", "pkg.train")),
        ("python train.py -- --backends x", "train.py", "", ("--", "--backends", "x")),
        ("python -m pkg.train --config c", "pkg/train.py", "pkg.train", ("--config", "c")),
        ("python -mpkg.train", "pkg/train.py", "pkg.train", ()),
        ("python -um pkg -m", "pkg/__main__.py", "pkg", ("-m",)),
        ("my-tool --x 1", "pkg/train.py", "my-tool=pkg.train:main", ("--x", "1")),
        ("{bin}/my-tool", "pkg/train.py", "my-tool=pkg.train:main", ()),
        ("spaced", "pkg/train.py", "spaced=pkg.train:main", ()),
        ("torchrun train.py -r 1", "train.py", "", ("-r", "1")),
        ("torchrun -m pkg.train --nnodes 2", "pkg/train.py", "pkg.train", ("--nnodes", "2")),
        ("uv run train.py --with x", "train.py", "", ("--with", "x")),
        ("uv run --extra gpu -m pkg.train a", "pkg/train.py", "pkg.train", ("a",)),
        ("uv run python -m pkg.train", "pkg/train.py", "pkg.train", ()),
        ("poetry run python train.py", "train.py", "", ()),
        ("poetry run my-tool", "pkg/train.py", "my-tool=pkg.train:main", ()),
    ],
)
def test_what_follows_the_program_is_its_own(
    bin: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    file: str,
    module: str,
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.setattr(typed_commands, "python_of", lambda command: f"{bin}/python")
    command = read(line.format(bin=bin))
    assert (command.file, command.module) == (Path.cwd() / file, module)
    assert command.arguments == arguments
    assert command.python in (f"{bin}/python", f"{bin}/python3") and command.ranks == 1


@pytest.mark.parametrize("named", ["{bin}", "{bin}/bin/python"])
def test_a_command_starts_in_the_environment_that_is_given_with_it(
    bin: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    python = named.format(bin=bin.parent)
    for line in ("train.py", "python train.py", "torchrun train.py"):
        assert read_command(shlex.split(line), 0, python).python == f"{bin}/python", line
    with pytest.raises(RunnerError, match="no-torch/bin/python has no torch"):
        read_command(["train.py"], 0, "no-torch/bin/python")


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_a_file_alone_runs_in_the_active_environment_if_that_has_torch(
    bin: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(bin.parent))
    assert read("train.py").python == f"{bin}/python"
    monkeypatch.setenv(variable, str(Path(sys.executable).parents[1]))
    assert read("train.py").python is None
    without = bin.parents[1] / "no-torch"
    (without / "bin").mkdir(parents=True)
    (without / "bin/python").write_text("")
    monkeypatch.setenv(variable, str(without))
    assert read("train.py").python is None
    monkeypatch.setenv(variable, "/nowhere")
    assert read("train.py").python is None


@pytest.mark.parametrize("name", ["python", "python3", Path(sys.executable).name])
def test_breakevens_own_python_by_any_of_its_names_is_no_other_environment(
    bin: Path, name: str
) -> None:
    own = Path(sys.executable).with_name(name)
    command = read(f"{own} train.py")
    assert command.python is None and command.file.name == "train.py"


@pytest.mark.parametrize(
    ("line", "variables"),
    [
        ("A=1 B='x y=z' C= python train.py", {"A": "1", "B": "x y=z", "C": ""}),
        ("env A=1 torchrun train.py", {**ONE_RANK, "A": "1"}),
        ("MASTER_PORT=77 torchrun train.py", {**ONE_RANK, "MASTER_PORT": "77"}),
        (
            "python -OO -B -W ignore -Werror train.py",
            {
                "PYTHONOPTIMIZE": "2",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONWARNINGS": "ignore,error",
            },
        ),
        ("python -uXdev -X utf8=0 train.py", {"PYTHONDEVMODE": "1", "PYTHONUTF8": "0"}),
        ("python train.py A=1", {}),
    ],
)
def test_assignments_and_options_of_python_become_variables(
    bin: Path, line: str, variables: dict[str, str]
) -> None:
    assert read(line).variables == variables


def test_a_path_of_modules_is_the_same_from_every_folder(bin: Path) -> None:
    path = read("PYTHONPATH=.:/opt/lib python train.py").variables["PYTHONPATH"]
    assert path == f"{Path.cwd()}:/opt/lib"


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ("", 1),
        ("--nproc-per-node 2", 2),
        ("--nproc_per_node=4 --standalone", 4),
        ("--nproc-per-node gpu --master-port 29501", 3),
        ("--nproc-per-node auto --nnodes=1:1 --rdzv_endpoint localhost:0", 3),
    ],
)
def test_torchruns_processes_are_counted_and_its_ports_dropped(
    bin: Path, options: str, ranks: int
) -> None:
    command = read(f"torchrun {options} train.py --lr 1", num_gpus=3)
    assert command.ranks == ranks and command.arguments == ("--lr", "1")
    assert read(f"python -m torch.distributed.run {options} train.py", num_gpus=3).ranks == ranks
    assert command.variables == (ONE_RANK if ranks == 1 else {"OMP_NUM_THREADS": "1"})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "a command is missing"),
        ("A=1", "a command is missing"),
        ("trian.py", "there is no file .*; did you mean 'train.py'"),
        ("python 'sub dir/train.py'", "did you mean 'träin.py'"),
        ("pyhton train.py", "there is no command pyhton; did you mean 'python'"),
        ("train", "there is no command train; did you mean 'train.py'"),
        ("my-tol", "did you mean 'my-tool'"),
        ("python", "names? a Python file"),
        ("python -c 'import x'", "write it into a Python file"),
        ("python -", "no standard input"),
        ("python -i train.py", "no terminal"),
        ("python -I train.py", "leave it out"),
        ("python -X importtime train.py", "leave it out"),
        ("python -m", "needs a value"),
        ("python -m pkg/train.py", "no name of a module"),
        ("python -m torch.distributed.launch train.py", "use torchrun"),
        ("torchrun --nnodes 2 train.py", "several machines"),
        ("torchrun --nproc-per-node gpu train.py", "no GPU"),
        ("torchrun --nproc-per-node two train.py", "must be a number"),
        ("torchrun --nproc-per-nod 2 train.py", "did you mean '--nproc-per-node'"),
        ("torchrun --no-python ./start", "no Python file"),
        ("torchrun --nproc-per-node", "needs a value"),
        ("deepspeed train.py", "torchrun"),
        ("mpirun -n 2 python train.py", "install Breakeven there"),
        ("srun python train.py", "install Breakeven there"),
        ("ssh gpu1 python train.py", "install Breakeven there"),
        ("docker run image python train.py", "install Breakeven there"),
        ("bash train.sh", "give it the python command"),
        ("./train.sh", "give it the python command"),
        ("start", "no Python program"),
        ("nohup python train.py", "leave it out"),
        ("uv run --with x train.py", "gone afterwards"),
        ("env -i python train.py", "leave this option out"),
        ("HF_TOKEN=abc python train.py", "BREAKEVEN_PASS=HF_TOKEN"),
        ("{other}/python train.py", "has no torch"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason_or_the_nearest_name(
    bin: Path, tmp_path: Path, line: str, why: str
) -> None:
    other = tmp_path / "no-torch"
    other.mkdir()
    (other / "python").write_text("")
    (other / "python").chmod(0o755)
    with pytest.raises(RunnerError, match=why):
        read(line.format(other=other))


def test_accelerate_says_what_it_would_start(bin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(python: str, words: Sequence[str], variables: Mapping[str, str]) -> dict[str, Any]:
        assert [*words] == ["--num_processes", "2", "-m", "pkg.train", "--lr", "1"]
        return {
            "refused": [],
            "program": ["-m", "pkg.train", "--lr", "1"],
            "ranks": 2,
            "variables": {"ACCELERATE_MIXED_PRECISION": "bf16", "OMP_NUM_THREADS": "1"},
        }

    monkeypatch.setattr(typed_commands, "accelerate_launch", answer)
    command = read("OMP_NUM_THREADS=3 accelerate launch --num_processes 2 -m pkg.train --lr 1")
    assert (command.module, command.arguments, command.ranks) == ("pkg.train", ("--lr", "1"), 2)
    assert command.variables == {"ACCELERATE_MIXED_PRECISION": "bf16", "OMP_NUM_THREADS": "3"}
    with pytest.raises(RunnerError, match="did you mean 'train"):
        read("accelerate launch trian.py")


def test_a_configuration_that_accelerate_cannot_start_here_is_refused(
    bin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {"refused": ["DeepSpeed"], "program": ["train.py"], "ranks": 1, "variables": {}}
    monkeypatch.setattr(typed_commands, "accelerate_launch", lambda *_: refused)
    with pytest.raises(RunnerError, match="DeepSpeed"):
        read("accelerate launch train.py")


def test_a_script_with_dependencies_of_its_own_is_referred_to_uv(bin: Path) -> None:
    Path("train.py").write_text("# /// script\n# dependencies = []\n# ///\n")
    with pytest.raises(RunnerError, match="uv sync --script"):
        read("uv run train.py")


@pytest.mark.heavy
def test_a_python_says_where_modules_and_commands_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("outer/__init__.py", "outer/__main__.py", "outer/train.py", "a/b/train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("raise ValueError('nothing here is executed')")
    monkeypatch.chdir(tmp_path)
    for name, file in {"outer.train": "train.py", "outer": "__main__.py"}.items():
        answer = located(sys.executable, "module", name, {})
        assert answer["file"] == str(tmp_path / "outer" / file) and answer["torch"]
    # Folders need no __init__.py.
    assert located(sys.executable, "module", "a.b.train", {})["file"] == f"{tmp_path}/a/b/train.py"
    for name, nearest in {
        "a.b.trian": "train",
        "outr.train": "outer",
        "outer.trian": "train",
    }.items():
        with pytest.raises(RunnerError, match=f"did you mean '{nearest}'"):
            located(sys.executable, "module", name, {})
    answer = located(sys.executable, "command", "torchrun", {})
    assert answer["function"] == "torch.distributed.run:main"
    assert answer["file"].endswith("torch/distributed/run.py")
    assert located(sys.executable, "command", "outer", {})["function"] == ""


@pytest.mark.slow
@pytest.mark.heavy
def test_accelerates_configuration_file_counts_as_without_breakeven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    place = tmp_path / "accelerate" / "default_config.yaml"
    place.parent.mkdir()
    content = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "NO",
        "mixed_precision": "bf16",
        "num_processes": 1,
        "num_machines": 1,
        "use_cpu": True,
    }
    place.write_text(json.dumps(content))  # JSON is YAML, too.
    answer = accelerate_launch(sys.executable, ["train.py", "--lr", "1"], {})
    assert answer["program"] == ["train.py", "--lr", "1"] and answer["ranks"] == 1
    assert answer["variables"]["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert answer["variables"]["ACCELERATE_USE_CPU"] == "True"
    assert not [name for name in answer["variables"] if "DYNAMO" in name or "PORT" in name]
    assert os.environ.get("ACCELERATE_MIXED_PRECISION") is None
