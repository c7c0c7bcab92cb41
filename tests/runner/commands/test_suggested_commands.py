"""The commands that the table of an experiment suggests work as printed; only the runs are fake."""

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.commands.cli import main
from breakeven.runner.commands.entry import reads_database
from breakeven.runner.experiments.queue import experiments
from breakeven.runner.protocol.data_dir import DATA_VARIABLE, DataDir
from breakeven.storage.__main__ import main as storage
from tests.helpers.machine import MACHINE, keep
from tests.runner.commands.test_printed_commands import commands_in
from tests.runner.commands.test_tune import supervised_here as supervised_here

pytestmark = pytest.mark.heavy
BACKENDS = ("crash", "noisy", "apart")


@pytest.mark.slow
def test_a_folder_that_only_an_option_named_is_named_in_the_suggestions(
    script: Path, supervised_here: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The quotes of its name are those of a shell."""
    data_dir = DataDir(script.parents[1] / "my data")
    data_dir.make()
    keep(data_dir, replace(MACHINE, backends=(*MACHINE.backends, "crash")))
    folder = shlex.quote(str(data_dir.path))
    options = f"--backends=crash --steps=40 --set=more_controls=0 --data-folder={folder}"
    typed(f"breakeven run {options} {script}", supervised_here)
    commands = commands_in(capfd.readouterr().out)
    assert commands[0].endswith(f".crash --data-folder={folder}") and len(commands) == 3
    for command in commands:
        assert typed(command, supervised_here) != 2


@pytest.fixture
def script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supervised_here: pytest.MonkeyPatch
) -> Path:
    """A script of the person's own, on a machine with these backends, and no folder allowed."""
    file = tmp_path / "case" / "train.py"
    file.parent.mkdir()
    file.write_text("import breakeven\n")
    backends = (*MACHINE.backends, *BACKENDS)
    DataDir(tmp_path / "data").make()
    keep(DataDir(tmp_path / "data"), replace(MACHINE, backends=backends))
    supervised_here.setenv(DATA_VARIABLE, str(tmp_path / "data"))
    supervised_here.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return file


def typed(command: str, patch: pytest.MonkeyPatch) -> int:
    """Exit status of a command in a new terminal, which knows of no allowed folder."""
    patch.setenv(CODE_VARIABLE, "")
    words = shlex.split(command)[1:]
    return storage(words) if reads_database(words) else main(words)


@pytest.mark.slow
def test_each_suggestion_about_a_script_runs_after_the_command_that_named_it(
    script: Path, supervised_here: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    options = f"--backends={','.join(BACKENDS)} --set=more_controls=0 --steps=60 --block-steps=10"
    typed(f"breakeven run {options} {script}", supervised_here)
    suggested = commands_in(capfd.readouterr().out)
    assert {command.split()[1] for command in suggested} >= {"investigate"}, suggested
    for command in suggested:
        status = typed(command, supervised_here)
        shown = capfd.readouterr()
        assert status != 2 and "may not run here" not in shown.err, (command, shown.err)


def test_a_foreign_run_of_the_same_file_with_other_arguments_runs_nothing(
    script: Path, supervised_here: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    options = "--backends=crash --set=more_controls=0 --steps=40"
    typed(f"breakeven run {options} {script}", supervised_here)
    data_dir = DataDir(script.parents[1] / "foreign")
    shutil.copytree(script.parents[1] / "data" / "runs", data_dir.runs)
    keep(data_dir, replace(MACHINE, backends=(*MACHINE.backends, *BACKENDS)))
    supervised_here.setenv(DATA_VARIABLE, str(data_dir.path))
    (experiment,) = experiments(data_dir)
    for run in experiment.runs:
        content = json.loads(run.spec_file.read_text())
        content["experiment"]["script"]["arguments"] = ["--delete", "everything"]
        run.spec_file.write_text(json.dumps(content))
    capfd.readouterr()
    status = typed(f"breakeven investigate {experiment.runs[-1].run_id}", supervised_here)
    said = capfd.readouterr().err
    assert status == 2 and "may not run here" in said
    assert f"add `--allow-code={script.parent}` to the command" in said
    assert len(list(experiments(data_dir))) == 1, "nothing was queued"
