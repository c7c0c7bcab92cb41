"""The runs of an experiment as they stand this moment, between two ticks.

A tick writes to the database, and everything that was asked of an experiment is then asked anew. To
read what its journals gained takes a small part of that, on a machine that is being timed.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import orjson
import pandas as pd

from runner.errors import RunnerError
from runner.folders.events import read_complete_lines, stat_journal
from runner.folders.run_dir import RunDir
from runner.folders.states import RunState
from storage.index.store import Store
from storage.queries.experiments import runs_as_taken_in
from storage.queries.rows import timestamp

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
    memory = _memories.setdefault(store, _Memory())
    offsets, inodes = runs.pop("journal_offset"), runs.pop("journal_inode")
    tails = [memory.tail(*run) for run in zip(runs["run_id"], runs["folder"], runs["state"],
             offsets, inodes, strict=True)]  # fmt: skip
    runs["steps_done"] = runs["steps_done"] + [tail.num_steps for tail in tails]
    for name in ("phase", "phase_started", "last_loss"):
        _replace(runs, name, [tail.said.get(name) for tail in tails])
    idle = runs["compiling_since"].isna()
    began = [tail.open[0] if free and tail.open else (None, None, None)
             for tail, free in zip(tails, idle, strict=True)]  # fmt: skip
    _replace(runs, "compile_trigger", [trigger for _, trigger, _ in began])
    _replace(runs, "compiling_since", [since for _, _, since in began])
    return runs, any(tail.needs_tick for tail in tails)


def _replace(runs: pd.DataFrame, name: str, said: Sequence[Any]) -> None:
    """Puts what journals say in the place of what was known, where they say something."""
    if any(value is not None for value in said):
        values = [old if new is None else new for new, old in zip(said, runs[name], strict=True)]
        runs[name] = pd.Series(values, index=runs.index, dtype=TYPES[name])


@dataclass
class _Tail:
    """What a journal holds from an offset on."""

    offset: int
    inode: int | None
    position: int
    """Up to which it was read."""
    num_steps: int = 0
    said: dict[str, Any] = field(default_factory=dict)
    open: list[tuple[object, object, pd.Timestamp]] = field(default_factory=list)
    """Compilations that began and did not end: id, trigger, beginning."""
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
        for event in _events(lines):
            self.take(event)

    def take(self, event: dict[str, Any]) -> None:
        """As `list_runs` would, once the event is in the database."""
        kind = event.get("kind")
        if kind == "step" and isinstance(event.get("step"), int):
            self.num_steps += 1
            if event.get("loss") is not None:
                self.said["last_loss"] = _number(event["loss"])
        elif kind == "phase" and isinstance(event.get("phase"), str):
            self.said["phase"] = event["phase"]
            self.said["phase_started"] = _moment(event)
        elif kind == "compile_started":
            self.open.append((event.get("compile_id"), event.get("trigger"), _moment(event)))
        elif kind == "compile_ended":
            ended = event.get("compile_id"), event.get("trigger")
            others = [one for one in self.open if one[:2] != ended]
            # What began earlier is in the database, and what it leaves open is told there.
            self.needs_tick |= others == self.open
            self.open = others
        elif kind == "resumed":
            self.needs_tick = True


class _Memory:
    """The tails of a store's running runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tails: dict[str, _Tail] = {}

    def tail(self, run_id: str, folder: str, state: str, offset: int, inode: int | None) -> _Tail:
        inode = None if pd.isna(inode) else inode
        with self._lock:
            tail = self._tails.get(run_id)
            if state != RunState.RUNNING:
                self._tails.pop(run_id, None)
                return _Tail(offset, inode, offset)
            if tail is None or (tail.offset, tail.inode) != (offset, inode):
                tail = self._tails[run_id] = _Tail(offset, inode, offset)
            tail.read_on(RunDir(Path(folder)))
            return tail


_memories: WeakKeyDictionary[Store, _Memory] = WeakKeyDictionary()


def _events(lines: bytes) -> Iterator[dict[str, Any]]:
    for line in lines.splitlines():
        try:
            event = orjson.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def _moment(event: Mapping[str, Any]) -> pd.Timestamp:
    return timestamp(pd.Series([_number(event.get("time"))]))[0]


def _number(value: Any) -> float | None:
    """Also of the texts that journals have for numbers that are not finite."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
