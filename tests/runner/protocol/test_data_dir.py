from pathlib import Path

from breakeven.runner.experiments.queue import submit
from breakeven.runner.files import FileLock
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec


def test_a_new_data_folder_is_its_accounts_alone_and_an_old_one_stays_as_it_is(
    tmp_path: Path,
) -> None:
    """Others of the machine would read logs and data there, and hold its locks."""
    spec = ExperimentSpec(name="trial", backends=(), controls=0)
    submitted, locked, shared = (DataDir(tmp_path / name) for name in ("queue", "lock", "shared"))
    submit(submitted, spec)
    assert FileLock(locked.supervisor_lock).try_acquire()
    assert all(folder.path.stat().st_mode & 0o777 == 0o700 for folder in (submitted, locked))
    shared.path.mkdir()
    shared.path.chmod(0o755)
    submit(shared, spec)
    assert shared.path.stat().st_mode & 0o777 == 0o755
