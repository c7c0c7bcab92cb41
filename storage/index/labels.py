"""Takes in what people added to experiments: `labels.json` of run folders, when it has changed."""

import os
from collections.abc import Mapping

from runner.errors import RunnerError
from runner.folders.run_dir import RunDir
from runner.texts import printable
from storage.index.folders import MAX_MESSAGE, Look
from storage.index.journal_rows import Cursor

ChangedLabels = dict[str, tuple[int, str] | None]
"""Run id to stamp and content of labels that are new; None for those that are gone."""


def known_labels(cursor: Cursor) -> dict[str, int]:
    """Run id to when the labels that were taken in were written, in nanoseconds."""
    return dict(cursor.execute("SELECT run_id, stamp FROM labels").fetchall())


def changed_labels(
    seen: Look, folders: Mapping[str, tuple[RunDir, str]], known: Mapping[str, int]
) -> ChangedLabels:
    """What differs from what was taken in.

    Labels that cannot be read are told among the unreadable folders, and their run counts all the
    same.
    """
    changed: ChangedLabels = {}
    for run_id in seen.progress:
        run = folders[run_id][0]
        try:
            # Before the file is read: one that is replaced meanwhile is read again the next time.
            stamp = os.lstat(run.labels_file).st_mtime_ns
        except OSError:
            stamp = None
        if stamp == known.get(run_id):
            continue
        if stamp is None:
            changed[run_id] = None
            continue
        try:
            changed[run_id] = stamp, run.read_labels().to_json()
        except RunnerError as error:
            seen.unreadable[printable(run.path)] = printable(error, MAX_MESSAGE)
            if run_id in known:
                changed[run_id] = None
    changed |= {run_id: None for run_id in known.keys() - seen.progress.keys()}
    return changed
