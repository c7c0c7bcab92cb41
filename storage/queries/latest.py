"""The runs of an experiment at this moment, between two ticks.

A tick writes to the database, and all answers about an experiment are then computed again. Reading
the new lines of its journals takes a small part of that time, on a machine that is being timed.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pandas as pd

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.events import Order, read_complete_lines, read_event, stat_journal
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import RunState
from breakeven.storage.index.store import Store
from breakeven.storage.queries.experiments import TAKEN_IN, runs_as_taken_in
from breakeven.storage.queries.rows import timestamp

MAX_BYTES = 2_000_000
"""Of a journal beyond what was taken in, that are read here: thousands of lines."""
TYPES: dict[str, Any] = {
    "phase": "str",
    "phase_started": "datetime64[ns, UTC]",
    "compile_trigger": "str",
    "compiling_since": "datetime64[ns, UTC]",
    "last_loss": object,
}
"""Of the columns that journals have news of."""


def latest_runs(store: Store, experiment_id: str) -> tuple[pd.DataFrame, bool]:
    """`list_runs` with the phase, the compilation, the steps and the last loss of this moment, and
    whether only a tick can tell what the runs do by now."""
    runs = runs_as_taken_in(store, experiment_id)
    tails_of_store = _journals.setdefault(store, _Tails())
    taken_in = [runs.pop(name) for name in TAKEN_IN]
    tails = [tails_of_store.tail(*run) for run in zip(runs["run_id"], runs["folder"], runs["state"],
             *taken_in, strict=True)]  # fmt: skip
    runs["steps_done"] = runs["steps_done"] + [tail.num_steps for tail in tails]
    for name in ("phase", "phase_started", "last_loss"):
        _replace(runs, name, [tail.reported.get(name) for tail in tails])
    idle = runs["compiling_since"].isna()
    began = [tail.open[0] if free and tail.open else (None, None, None)
             for tail, free in zip(tails, idle, strict=True)]  # fmt: skip
    _replace(runs, "compile_trigger", [trigger for _, trigger, _ in began])
    _replace(runs, "compiling_since", [since for _, _, since in began])
    runs["compiled_seconds"] += [tail.compiled_seconds if free else 0.0
                                 for tail, free in zip(tails, idle, strict=True)]  # fmt: skip
    return runs, any(tail.needs_tick for tail in tails)


def _replace(runs: pd.DataFrame, name: str, reported: Sequence[Any]) -> None:
    """Puts what journals say in the place of what was known, where they say something."""
    if any(value is not None for value in reported):
        values = [
            old if new is None else new for new, old in zip(reported, runs[name], strict=True)
        ]
        runs[name] = pd.Series(values, index=runs.index, dtype=TYPES[name])


@dataclass
class _Tail:
    """What a journal holds from an offset on."""

    offset: int
    inode: int | None
    position: int
    """Up to which it was read."""
    order: Order
    num_steps: int = 0
    reported: dict[str, Any] = field(default_factory=dict)
    open: list[tuple[object, object, pd.Timestamp]] = field(default_factory=list)
    """Compilations that began and did not end: id, trigger, beginning."""
    compiled_seconds: float = 0.0
    """In compilations that began here and ended, each moment once."""
    needs_tick: bool = False

    def read_on(self, run_dir: RunDir) -> None:
        try:
            found = stat_journal(run_dir.events_file)
            if found is None or found.size == self.position:
                return
            is_other = self.inode is not None and found.inode != self.inode
            if is_other or not 0 < found.size - self.position <= MAX_BYTES:
                self.needs_tick = True
                return
            lines, self.position = read_complete_lines(run_dir.events_file, self.position)
        except (RunnerError, OSError):
            self.needs_tick = True
            return
        for event in map(read_event, lines.splitlines()):
            if event is not None and self.order.takes(event):
                self.take(event)

    def take(self, event: dict[str, Any]) -> None:
        """As `list_runs` would, once the event is in the database."""
        kind = event.get("kind")
        if kind == "step" and isinstance(event.get("step"), int):
            self.num_steps += 1
            if event.get("loss") is not None:
                self.reported["last_loss"] = _number(event["loss"])
        elif kind == "phase" and isinstance(event.get("phase"), str):
            self.reported["phase"] = event["phase"]
            self.reported["phase_started"] = _moment(event)
        elif kind == "compile_started":
            self.open.append((event.get("compile_id"), event.get("trigger"), _moment(event)))
        elif kind == "compile_ended":
            ended = event.get("compile_id"), event.get("trigger")
            others = [one for one in self.open if one[:2] != ended]
            # The database has earlier phases, and shows which are still open.
            self.needs_tick |= others == self.open
            if self.open and not others:
                spent = _moment(event) - self.open[0][2]
                self.compiled_seconds += max(0.0, spent.total_seconds())
            self.open = others
        elif kind == "resumed":
            self.needs_tick = True


class _Tails:
    """The tails of a store's running runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tails: dict[str, _Tail] = {}

    def tail(
        self, run_id: str, folder: str, state: str, offset: int, inode: int | None, last_seq: int
    ) -> _Tail:
        inode = None if pd.isna(inode) else inode
        with self._lock:
            tail = self._tails.get(run_id)
            if state != RunState.RUNNING:
                self._tails.pop(run_id, None)
                return _Tail(offset, inode, offset, Order(last_seq))
            if tail is None or (tail.offset, tail.inode) != (offset, inode):
                tail = self._tails[run_id] = _Tail(offset, inode, offset, Order(last_seq))
            tail.read_on(RunDir(Path(folder)))
            return tail


_journals: WeakKeyDictionary[Store, _Tails] = WeakKeyDictionary()


def _moment(event: Mapping[str, Any]) -> pd.Timestamp:
    return timestamp(pd.Series([_number(event.get("time"))]))[0]


def _number(value: Any) -> float | None:
    """Also of the texts that journals have for numbers that are not finite."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
