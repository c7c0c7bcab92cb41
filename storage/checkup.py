"""What the doctor (`runner/doctor/database.py`) asks of storage: how the index stands, the
noise floor of the last controls, and which journals hold lines that do not count."""

import argparse
import json
import statistics
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.data_dir import DataDir, run_names
from breakeven.runner.folders.queue import Experiment, experiments
from breakeven.runner.folders.states import RunState
from breakeven.runner.locks import FileLock
from breakeven.runner.texts import printable
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.errors import StoreError
from breakeven.storage.index.folders import count_left_out
from breakeven.storage.index.store import CONFIG, SCHEMA_MARK, Store
from breakeven.storage.statistics.resampling import MIN_PAIRS

LAST = 5
"""Experiments whose controls are asked."""


def print_checkup(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Prints all as one line of JSON."""
    found = {"database": database_state(data_dir), "noise": noise(data_dir),
             "journals": repeated_lines(data_dir)}  # fmt: skip
    print(json.dumps(found))  # noqa: T201
    return 0


def database_state(data_dir: DataDir) -> dict[str, str]:
    """`ok` or `damaged`, and what says so. A database that a dashboard has open is left to it."""
    file = data_dir.database_file
    if not file.exists():
        return {"state": "ok", "evidence": "none yet: the first dashboard builds it"}
    lock = FileLock(data_dir.database_lock)
    try:
        if not lock.try_acquire():
            return {"state": "ok", "evidence": "a dashboard has it open"}
    except OSError as error:
        return {"state": "damaged", "evidence": f"its lock cannot be taken: {error}"}
    with lock:
        return _looked_into(file)


def _looked_into(file: Path) -> dict[str, str]:
    try:
        with duckdb.connect(str(file), read_only=True, config=CONFIG) as connection:
            if connection.execute("SELECT schema FROM meta").fetchall() != [(SCHEMA_MARK,)]:
                evidence = f"{file.name} was made by another version of Breakeven"
                return {"state": "damaged", "evidence": evidence}
            counted = connection.execute("SELECT count(*) FROM runs").fetchone()
    except duckdb.Error as error:
        return {"state": "damaged", "evidence": f"{file.name} cannot be read: {printable(error)}"}
    count = 0 if counted is None else counted[0]
    size = file.stat().st_size / 1e6
    return {"state": "ok", "evidence": f"{file.name} indexes {count:,} runs in {size:,.1f} MB"}


def repeated_lines(data_dir: DataDir) -> dict[str, int]:
    """Run id to the number of its journal's lines that do not count, because they do not come after
    those before them. Reads all journals."""
    found = {}
    for run in data_dir.run_dirs():
        with suppress(RunnerError):  # The finding on run folders tells of it.
            if count := count_left_out(run):
                found[run.run_id] = count
    return found


def noise(data_dir: DataDir) -> dict[str, Any]:
    """The median noise floor of the last experiments that had a control and finished.

    They are read into a database in memory by themselves: it takes no longer with many others, and
    while a dashboard owns the file.
    """
    last = _last_with_controls(data_dir)
    floors = {}
    with tempfile.TemporaryDirectory(prefix="breakeven-checkup-") as folder:
        aside = DataDir(folder)
        aside.runs.mkdir()
        for experiment in last:
            for run in experiment.runs:
                (aside.runs / run.run_id).symlink_to(run.path)
        with Store.in_memory(aside) as store:
            for experiment in last:
                floors[experiment.experiment_id] = _floor(store, experiment)
    known = {name: floor for name, floor in floors.items() if floor is not None}
    if not known:
        rounds = f"it takes a control and at least {MIN_PAIRS} rounds"
        evidence = f"no experiment that finished here tells it: {rounds}"
        return {"floor": None, "count": 0, "experiment": None, "evidence": evidence}
    return {"floor": statistics.median(known.values()), "count": len(known),
            "experiment": max(known), "evidence": ""}  # fmt: skip


def _floor(store: Store, experiment: Experiment) -> float | None:
    try:
        return compare(store, experiment.experiment_id).noise_floor
    except StoreError:
        return None


def _last_with_controls(data_dir: DataDir) -> list[Experiment]:
    """The latest first; specifications of no more than are needed are opened."""
    ids = sorted({name.partition(".")[0] for name in run_names(data_dir.runs)}, reverse=True)
    found: list[Experiment] = []
    for start in range(0, len(ids), LAST):
        for experiment in experiments(data_dir, ids[start : start + LAST]):
            roles = [variant.role for variant in experiment.variants]
            controls = [run for run, role in zip(experiment.runs, roles, strict=True)
                        if role == "control"]  # fmt: skip
            if controls and all(run.state is RunState.FINISHED for run in controls):
                found.append(experiment)
        if len(found) >= LAST or start > 20 * LAST:
            break
    return found[:LAST]
