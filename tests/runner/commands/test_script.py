"""`breakeven run`: what it makes of a command."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.arguments.options import (
    command_line,
    devices_for,
    environment_of,
    read_script,
)
from breakeven.runner.commands.cli import parser
from breakeven.runner.commands.searches import steps_of
from breakeven.runner.errors import InvalidSpec, RunnerError
from breakeven.runner.machine.capabilities import Device
from breakeven.runner.specs.candidates import search_spec, untried
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import ScriptSpec
from tests.helpers.machine import MACHINE


def read(*words: str, command: str = "run") -> ExperimentSpec:
    return read_script(parser().parse_args([command, *words]), MACHINE)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "project" / "train.py"
    file.parent.mkdir()
    file.write_text("import breakeven\n")
    return file


def test_what_follows_the_script_is_the_scripts(script: Path) -> None:
    ours = ("--backends", "eager,inductor", "--steps", "50")
    spec = read(*ours, str(script), "--steps", "7", "--", "-v")
    assert spec.script.arguments == ("--steps", "7", "--", "-v") and spec.script.steps == 50
    assert spec.backends == ("eager", "inductor") and spec.name == "project/train.py"
    assert spec.model.script == str(script) and spec.subject == "train.py --steps 7 -- -v"


@pytest.mark.parametrize("command", ["run", "tune"])
@pytest.mark.parametrize("arguments", [(), ("--",), ("--", "--steps=7"), ("--help",), ("a", "--")])
def test_the_command_that_reproduces_a_script_passes_its_arguments_on(
    script: Path, command: str, arguments: tuple[str, ...]
) -> None:
    spec = replace(read(str(script)), script=ScriptSpec(arguments=arguments))
    words = shlex.split(command_line(spec, between=" "))
    assert words[:2] == ["breakeven", "run"]
    assert read(*words[2:], command=command) == spec


def test_a_script_names_its_controls_and_how_many_more_it_may_take(script: Path) -> None:
    spec = read("--controls=2", "--set=more_controls=1", str(script))
    assert (spec.controls, spec.more_controls) == (2, 1)


def test_a_script_starts_in_the_folder_in_which_the_command_is_typed(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = read("project/train.py").script.folder
    assert folder == read(str(script)).script.folder == str(tmp_path)
    assert (
        read("--set=script.folder=project", "project/train.py").script.folder
        == f"{tmp_path}/project"
    )
    monkeypatch.chdir(script.parent)
    assert read("train.py").script.folder == ""
    # The home folder holds more than a project: the script starts in its own folder.
    monkeypatch.setenv("HOME", str(tmp_path / "home/me"))
    for broad in ("home", "home/me"):
        (tmp_path / broad).mkdir()
        monkeypatch.chdir(tmp_path / broad)
        assert read(str(script)).script.folder == ""


def test_paths_stay_as_typed_where_the_copy_of_the_folder_has_them(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "project"
    monkeypatch.chdir(here)
    for name in ("own.csv", ".cache/left-out.csv", "../outside.csv"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text("")
    words = ("--data=own.csv", "out", "3", "../outside.csv", ".cache/left-out.csv")
    kept, (outside, left_out) = (
        words[:3],
        (f"{tmp_path}/outside.csv", f"{here}/.cache/left-out.csv"),
    )
    arguments = read("train.py", *words).script.arguments
    assert arguments == (*kept, outside, left_out)
    # A script that starts in another folder finds what lies here by full paths.
    (tmp_path / "other").mkdir()
    arguments = read(
        f"--set=script.folder={tmp_path}/other", "train.py", "own.csv"
    ).script.arguments
    assert arguments == (f"{here}/own.csv",)
    with pytest.raises(RunnerError, match="there is no file"):
        read(str(tmp_path / "missing.py"))


@pytest.mark.heavy
def test_a_command_names_module_variables_threads_and_device(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.parent)
    command = ("CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS=3", "A=b c", sys.executable)
    spec = read("--backends=eager", *command, "-m", "train", "--lr", "1")
    assert (spec.script.module, spec.script.arguments) == ("train", ("--lr", "1"))
    assert (spec.script.variables, spec.cpu_threads) == (("A=b c",), 3)
    assert (spec.devices, spec.name, spec.subject) == (("cpu",), "train", "train --lr 1")
    words = shlex.split(command_line(spec, between=" "))[2:]
    monkeypatch.chdir("/")
    assert replace(read(*words), name=spec.name) == spec


def test_ranks_have_a_device_for_each_of_them() -> None:
    gpus = tuple(Device(id=f"cuda:{n}", name="GPU", memory_bytes=1) for n in range(3))
    machine = replace(MACHINE, devices=(*MACHINE.devices, *gpus))
    assert devices_for(2, None, machine) == ("cuda:0", "cuda:1")
    assert devices_for(2, "2,0,1", machine) == ("cuda:2", "cuda:0")
    assert devices_for(2, None, MACHINE) == devices_for(2, "-1", machine) == ("cpu", "cpu")
    for ranks, visible in ((4, None), (2, "1"), (1, "GPU-5c1")):
        with pytest.raises(InvalidSpec, match="must"):
            devices_for(ranks, visible, machine)


def test_before_torch_was_asked_for_the_gpus_ranks_may_have_as_many_as_they_need() -> None:
    gpu = Device(id="cuda:0", name="cuda:0", memory_bytes=None)
    guessed = replace(MACHINE, torch_version="", devices=(*MACHINE.devices, gpu))
    assert devices_for(2, None, guessed) == ("cuda:0", "cuda:1")


def test_an_environment_is_called_like_its_project() -> None:
    assert environment_of("/home/me/nano gpt/.venv/bin/python") == (
        "nano-gpt=/home/me/nano gpt/.venv/bin/python"
    )
    assert environment_of("/opt/torch-2.9/bin/python3") == "torch-2.9=/opt/torch-2.9/bin/python3"
    assert environment_of("/bin/python") == "python=/bin/python"


def test_a_search_takes_a_script_with_the_candidates_that_apply_to_scripts(script: Path) -> None:
    work = read("--plan=500", "--block-steps=2", str(script), "--steps", "7", command="tune")
    spec = search_spec(work, steps=500)
    assert spec.model.script == str(script) and spec.script.arguments == ("--steps", "7")
    # Two implementations of the optimizer and four numbers of loader processes, without a compiler
    # (but for the baseline) and under inductor with two modes and two wrappers.
    assert len(spec.backends) == (2 * 4 - 1) + 2 * 2 * (2 * 4)
    assert {candidate.scope for candidate in spec.candidates} == {"iteration"}
    assert {candidate.optimizer for candidate in spec.candidates} == {None, "fused"}
    assert "scope, because the script decides what is compiled" in untried(spec)


@pytest.mark.parametrize(
    "option", ["--batch-size=8", "--set=training.batch_size=8", "--ladder", "--spec=a.json"]
)
def test_what_a_script_decides_itself_is_refused(script: Path, option: str) -> None:
    with pytest.raises(InvalidSpec, match="script"):
        read(option, str(script), command="tune")


def test_the_length_of_a_script_is_given_in_steps(script: Path) -> None:
    def planned(*words: str) -> int:
        options = parser().parse_args(["tune", *words, str(script)])
        return steps_of(read_script(options, MACHINE), options.plan)

    assert planned("--plan=500") == planned("--set=script.steps=500") == 500
    for words in ((), ("--plan=2 epochs",)):
        with pytest.raises(InvalidSpec, match="steps"):
            planned(*words)
