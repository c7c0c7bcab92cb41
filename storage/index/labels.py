"""Takes in what people added to experiments: `labels.json` of run folders, when it has changed."""

import os

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.texts import printable
from breakeven.storage.index.folders import MAX_MESSAGE, Look
from breakeven.storage.index.journal_rows import Cursor


def known_labels(cursor: Cursor) -> dict[str, int]:
    """Run id to when the labels that were taken in were written, in nanoseconds."""
    return dict(cursor.execute("SELECT run_id, stamp FROM labels").fetchall())


def look_at_labels(seen: Look, run: RunDir, known: int | None) -> None:
    """Notes what differs from the labels that were taken in, which were written at `known`.

    Labels that cannot be read are told among the unreadable folders, and their run counts all the
    same.
    """
    try:
        # Before the file is read: one that is replaced meanwhile is read again the next time.
        stamp = os.lstat(run.labels_file).st_mtime_ns
    except OSError:
        stamp = None
    if stamp == known:
        return
    try:
        told = None if stamp is None else (stamp, run.read_labels().to_json())
    except RunnerError as error:
        seen.unreadable[run.run_id] = (printable(run.path), printable(error, MAX_MESSAGE))
        told = None
    if told is not None or known is not None:
        seen.labels[run.run_id] = told
