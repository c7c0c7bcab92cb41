"""`breakeven run`: what it makes of a command."""

import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.arguments.options import command_line, read_script
from breakeven.runner.commands.cli import parser
from breakeven.runner.commands.searches import steps_of
from breakeven.runner.errors import InvalidSpec, RunnerError
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


def test_paths_from_here_are_made_whole_unless_the_scripts_folder_has_them(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.csv", "both.csv", "project/both.csv"):
        (tmp_path / name).write_text("")
    words = ("--data=mine.csv", "mine.csv", "both.csv", "out", "3")
    arguments = read(os.path.relpath(script), *words).script.arguments
    from_here = f"{tmp_path}/mine.csv"
    assert arguments == (f"--data={from_here}", from_here, "both.csv", "out", "3")
    with pytest.raises(RunnerError, match="there is no file"):
        read(str(tmp_path / "missing.py"))


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
