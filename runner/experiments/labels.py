"""Labels of experiments: names, tags, notes, archived or not.

Examples that come with Breakeven keep theirs. The lock here serializes all changes by users: of
labels, trash and queue.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from breakeven.runner.errors import RunnerError, UnknownExperiment
from breakeven.runner.experiments.queue import find_experiment, run_folders, writing
from breakeven.runner.files import FileLock
from breakeven.runner.logs import log_action
from breakeven.runner.project import PACKAGE
from breakeven.runner.protocol.data_dir import DataDir, run_dirs
from breakeven.runner.protocol.records import Change, Labels
from breakeven.runner.protocol.run_dir import RunDir

LOCK_PATIENCE_SECONDS = 10.0
EXAMPLES = PACKAGE / "examples"


def change_labels(data_dir: DataDir, experiment_id: str, change: Change) -> Labels:
    """Changes the labels of an experiment and returns the new ones.

    Raises `UnknownExperiment`, `InvalidSpec` for invalid labels, and `NotWritable`. An unreadable
    file of labels raises an error and is not overwritten.
    """
    refuse_examples(data_dir, experiment_id)
    with locked(data_dir):
        first = find_experiment(data_dir, experiment_id).runs[0]
        before = first.read_labels()
        after = change(before)
        if after != before:
            with writing(first.path):
                first.write_labels(after)
            changed = {
                name: value for name, value in vars(after).items() if value != getattr(before, name)
            }
            log_action(data_dir.logs, "label", experiment_id, **changed)
    return after


def example_folders(experiment_id: str) -> list[RunDir]:
    """The folders of an example that comes with Breakeven; none for other experiments."""
    return [
        run
        for group in run_dirs(EXAMPLES)
        for run in run_dirs(group.path)
        if run.run_id.partition(".")[0] == experiment_id
    ]


def refuse_examples(data_dir: DataDir, experiment_id: str) -> None:
    if not run_folders(data_dir, experiment_id) and example_folders(experiment_id):
        raise UnknownExperiment(
            f"experiment {experiment_id!r} is an example that comes with Breakeven: it cannot be "
            f"labelled, archived or deleted. Copy its folders to {data_dir.runs} to have it as "
            "your own"
        )


@contextmanager
def locked(data_dir: DataDir) -> Iterator[None]:
    """Holds the library lock, which serializes changes of labels, trash, queue and filters."""
    lock = FileLock(data_dir.library_lock)
    with writing(data_dir.path):
        acquired = lock.acquire(LOCK_PATIENCE_SECONDS)
    if not acquired:
        raise RunnerError(f"{data_dir.path} is being changed by another process; try again")
    with lock:
        yield
