"""Where results are kept that were computed from an experiment: a table beside its rows.

`storage.kept.results` says of what, and when one is believed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

Ask: TypeAlias = Callable[..., list[tuple[Any, ...]]]
Write: TypeAlias = Callable[..., None]
"""A statement and its parameters."""


class ResultKey(NamedTuple):
    """Of what something is the result."""

    experiment_id: str
    name: str
    revision: str
    """Of the experiment: its newest write."""
    num_runs: str
    version: str
    """Of the code that computed it."""


class Results:
    """Those that a data folder's own database keeps."""

    is_shared = False
    """Whether others keep theirs in the same place, so that a seal of one's own says nothing."""

    def __init__(self, ask: Ask, write: Write) -> None:
        self._ask, self._write = ask, write

    def find(self, key: ResultKey) -> tuple[str, str] | None:
        """What was kept last, and its seal."""
        rows = self._ask(
            """SELECT content, seal FROM results WHERE experiment_id = ? AND name = ?
            AND revision = ? AND num_runs = ? AND version = ?""",
            key,
        )
        return rows[-1] if rows else None

    def keep(self, key: ResultKey, content: str, mark: str) -> None:
        """In the place of what was kept of the same name; raises `StoreUnusable`."""
        self._write(
            """DELETE FROM results WHERE (experiment_id = ? AND name = ?)
            OR experiment_id NOT IN (SELECT experiment_id FROM runs)""",
            key[:2],
        )
        self._write("INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", [*key, content, mark])

    def all_of(self, name: str, version: str) -> set[tuple[str, int, int]]:
        """Of which experiments, in which of their revisions, there is one."""
        query = (
            "SELECT experiment_id, revision, num_runs FROM results WHERE name = ? AND version = ?"
        )
        return set(self._ask(query, [name, version]))
