"""A data folder that cannot be written, and run folders that may not be read."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from breakeven.runner.commands.cli import main
from breakeven.runner.doctor.process_checks import check_dashboard
from breakeven.runner.experiments.queue import submit
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.views.shared import resources
from tests.helpers.journals import EXPERIMENT_ID, record_experiment
from tests.helpers.machine import MACHINE, keep
from tests.helpers.pages import close_store
from tests.runner.supervision.supervised import file_system

pytestmark = pytest.mark.heavy

WITHOUT_PRIVILEGE = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
"""Runs a command as root, whom permissions bind like everybody else."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DataDir]:
    """A data folder on a file system of its own, with an experiment that ended and one that waits;
    `freeze` makes it read-only."""
    with file_system(tmp_path / "disk", 300) as folder:
        data_dir = DataDir(folder / "data")
        record_experiment(data_dir.runs)
        keep(data_dir, MACHINE)
        submit(data_dir, ExperimentSpec(name="waits"))
        yield data_dir


def waiting(data_dir: DataDir) -> str:
    (experiment_id,) = {run.run_id.partition(".")[0] for run in data_dir.run_dirs()} - {
        EXPERIMENT_ID
    }
    return experiment_id


def freeze(data_dir: DataDir) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(data_dir.path.parent)], check=True)


def command(*arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, sys.executable, "-m", *arguments],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
    )


def test_commands_on_a_read_only_data_folder_answer_or_say_so_in_a_sentence(
    disk: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    freeze(disk)
    place = ("--data-folder", str(disk.path))
    for arguments in (
        ("queue", "start"),
        ("queue", "cancel", waiting(disk)),
        ("queue", "add", "--name=x"),
    ):
        assert main([*arguments, *place]) == 2
        refused = capsys.readouterr().err
        assert "cannot be written: Read-only file system. Make " in refused
        assert refused.count("\n") == 1
    assert main(["list", "--runs", *place]) == 0 and "waits" in capsys.readouterr().out
    compared = command("breakeven", "show", EXPERIMENT_ID, *place)
    assert "inductor" in compared.stdout and not compared.stderr


def test_the_doctor_tells_of_processes_on_a_disk_that_nothing_is_written_to(disk: DataDir) -> None:
    """Its looks at locks took them, which needs a file that is open for writing."""
    for lock in (disk.supervisor_lock, disk.database_lock):
        lock.touch()
    freeze(disk)
    assert check_dashboard(disk).evidence == "none is open"
    with disk.database_lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert check_dashboard(disk).evidence == "responding"


def test_pages_on_a_read_only_data_folder_say_so_and_no_button_ends_in_a_traceback(
    disk: DataDir, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # The database stays writable: one that is open keeps its file system from being frozen.
    data_dir = DataDir(tmp_path / "data")
    data_dir.path.mkdir()
    data_dir.runs.symlink_to(disk.runs)
    monkeypatch.setenv("BREAKEVEN_DATA", str(data_dir.path))
    monkeypatch.setattr(resources, "EXAMPLES", tmp_path / "examples")
    monkeypatch.setattr(resources, "ensure_supervisor", lambda data_dir: None)
    keep(data_dir, MACHINE)
    app = AppTest.from_file(PROJECT_ROOT / "dashboard.py", default_timeout=120).run()
    app.query_params["experiment"] = waiting(disk)
    app.switch_page("views/experiment.py").run()
    freeze(disk)  # while the page is open
    next(button for button in app.button if button.label == "Stop it").click().run()
    assert not app.exception and "Read-only file system" in app.error[0].value
    close_store(data_dir)
    monkeypatch.setenv("BREAKEVEN_DATA", str(disk.path))
    app.run()
    assert not app.exception and "The data folder cannot be used" in app.error[0].value


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv of util-linux")
def test_a_run_folder_that_may_not_be_read_is_named_and_hides_no_other(data_dir: DataDir) -> None:
    secret, other = "20261121-093010-123456-aaaa", "20261121-093011-123456-bbbb"
    record_experiment(data_dir.runs, experiment_id=secret)
    record_experiment(data_dir.runs, experiment_id=other)
    closed = [run.path for run in data_dir.run_dirs() if run.run_id.startswith(secret)]
    closed.append(data_dir.run_dir(f"{other}.control").exit_file)
    for path in closed:
        path.chmod(0)
    before = WITHOUT_PRIVILEGE if os.getuid() == 0 else ()
    place = ("--data-folder", str(data_dir.path))
    try:
        listed = command("breakeven", "list", "--runs", *place, before=before)
        compared = command("breakeven", "show", other, *place, before=before)
    finally:
        for path in closed:
            path.chmod(0o755)
    assert listed.returncode == 0, listed.stderr
    assert f"    {secret}.baseline: spec.json cannot be read: Permission denied\n" in listed.stdout
    assert f"{other}  test\n" in listed.stdout
    assert "exit.json cannot be read: Permission denied" in listed.stdout
    assert "inductor" in compared.stdout, compared.stderr
