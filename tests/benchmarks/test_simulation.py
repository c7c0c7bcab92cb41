"""A few histories of the supervisor's protocol in a simulated system, of those that `python -m
benchmarks.simulation` plays."""

import ast
import os
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.simulation.history import play
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.turns import TurnPost
from breakeven.runner.supervision.exit_records import ExitRecords

pytestmark = pytest.mark.heavy

NUM_HISTORIES = 30
REAL = {
    "exit_records.py": {"os"},  # a position in a file
    "fork_server.py": {"os", "threading", "time"},  # histories have no forks
    "run_process.py": {"subprocess"},  # the type of a process
}
"""Calls of the supervisor to the real system in a history, by module: files are real."""
SIMULATED = {
    "supervisor.py": {"threading", "queue", "time"},
    "scheduler.py": {"selectors", "threading", "time"},
    "turns.py": {"os", "threading", "queue"},  # the run's end is not played
    "run_process.py": {"os", "signal", "time"},
    "exit_records.py": {"threading"},
    "search.py": {"threading", "time"},
    "heartbeat.py": {"os", "time"},
}
SYSTEM = {
    "os",
    "time",
    "threading",
    "queue",
    "selectors",
    "signal",
    "subprocess",
    "socket",
    "shutil",
    "urllib",
    "fcntl",
    "select",
    "multiprocessing",
    "asyncio",
}
"""Modules through which code reaches its system."""


@pytest.fixture(autouse=True)
def no_power_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """No history has one, and waiting for the disk takes longer than everything else."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


def test_no_history_breaks_a_promise(tmp_path: Path) -> None:
    histories = [play(tmp_path, f"test/{number}") for number in range(NUM_HISTORIES)]
    assert [(history.seed, history.violation) for history in histories if history.violation] == []
    events = sum((history.events for history in histories), Counter[str]())
    for name in ("supervisor killed", "command killed", "run killed", "stall", "full disk", "stop"):
        assert events[name], f"{name} happened in none"


def test_a_seed_plays_the_same_history_again(tmp_path: Path) -> None:
    first, again = play(tmp_path, "test/1"), play(tmp_path, "test/1")
    assert (first.trace, first.calls, first.story) == (again.trace, again.calls, again.story)
    assert play(tmp_path, "test/2").trace != first.trace


def first_violation(tmp_path: Path, most: int) -> str:
    for number in range(most):
        violation = play(tmp_path, f"test/{number}").violation
        if violation:
            return violation
    return ""


def test_a_turn_that_comes_back_twice_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def believes_all(self: TurnPost, line: bytes) -> str | None:
        word = line.partition(b'"say": "')[2].partition(b'"')[0].decode()
        return word or None

    monkeypatch.setattr(TurnPost, "_word", believes_all)
    assert " works while " in first_violation(tmp_path, 200)


@pytest.mark.slow
def test_a_record_that_a_full_disk_swallows_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExitRecords, "write_owed", lambda self: self._owed.clear())
    assert first_violation(tmp_path, 300)


def test_a_run_that_is_never_killed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("breakeven.runner.supervision.run_process.GRACE_SECONDS", 1e9)
    assert first_violation(tmp_path, 200)


def met(file: Path) -> set[str]:
    """Modules of the system that a source imports."""
    imported = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.partition(".")[0])
    return imported & SYSTEM


def test_whatever_the_supervisor_asks_its_system_for_is_simulated_or_named_here() -> None:
    """With a new module of the system in the supervisor's sources, histories would be wrong."""
    shared = [PROJECT_ROOT / f"runner/protocol/{name}.py" for name in ("turns", "heartbeat")]
    for file in [*(PROJECT_ROOT / "runner/supervision").glob("*.py"), *shared]:
        known = REAL.get(file.name, set()) | SIMULATED.get(file.name, set())
        assert met(file) <= known, file
