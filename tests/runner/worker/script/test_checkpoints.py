"""Which checkpoints of a script a later attempt may resume from."""

from pathlib import Path

import pytest

from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.script.checkpoints import SavedCheckpoint, ScriptCheckpoints

pytestmark = pytest.mark.heavy


def test_a_folder_that_a_library_overwrites_counts_no_more_and_others_still_do(
    tmp_path: Path,
) -> None:
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    checkpoints = ScriptCheckpoints(run, EventLog(run.events_file))
    for step, name in ((10, "first"), (20, "last")):
        folder = run.path / name
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(b"whole")
        saved = SavedCheckpoint(step=step, by="library", path=folder, random={})
        checkpoints.written(saved, seconds=0.1)
    # Nobody sees from outside that a file in the folder changes in its place.
    last = run.path / "last"
    checkpoints.forget(last)
    (last / "weights").write_bytes(b"half")
    found = checkpoints.latest()
    assert found is not None and (found.step, found.path.name) == (10, "first")
