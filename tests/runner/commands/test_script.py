"""`breakeven script`: what it makes of a command."""

import os
from pathlib import Path

import pytest

from breakeven.runner.commands.cli import parser, split_at_dashes
from breakeven.runner.commands.options import read_script
from breakeven.runner.errors import RunnerError
from breakeven.runner.specs.experiment import ExperimentSpec
from tests.helpers.machine import MACHINE


def read(*words: str) -> ExperimentSpec:
    ours, theirs = split_at_dashes(["script", *words])
    options = parser().parse_args(ours)
    options.script_arguments = theirs
    return read_script(options, MACHINE)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "project" / "train.py"
    file.parent.mkdir()
    file.write_text("import breakeven\n")
    return file


def test_what_stands_behind_the_dashes_is_the_scripts(script: Path) -> None:
    spec = read(str(script), "--backends", "eager,inductor", "--steps", "50",
                "--", "--steps", "7", "--", "-v")  # fmt: skip
    assert spec.script.arguments == ("--steps", "7", "--", "-v") and spec.script.steps == 50
    assert spec.backends == ("eager", "inductor") and spec.name == "train.py"
    assert spec.model.script == str(script) and spec.subject == "train.py --steps 7 -- -v"


def test_paths_from_here_are_made_whole_unless_the_scripts_folder_has_them(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.csv", "both.csv", "project/both.csv"):
        (tmp_path / name).write_text("")
    words = ("--data=mine.csv", "mine.csv", "both.csv", "out", "3")
    arguments = read(os.path.relpath(script), "--", *words).script.arguments
    assert arguments == (
        f"--data={tmp_path}/mine.csv",
        f"{tmp_path}/mine.csv",
        "both.csv",
        "out",
        "3",
    )


def test_a_script_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="there is no file"):
        read(str(tmp_path / "missing.py"))
