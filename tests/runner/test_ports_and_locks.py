"""Errors of a port or lock that another process holds are recognised, and no others."""

import fcntl
import socket
import sqlite3
from pathlib import Path

import pytest

from breakeven.runner.ports_and_locks import held_by_another


def test_a_port_in_use_is_recognised() -> None:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        first.listen()
        with pytest.raises(OSError) as raised:
            second.bind(first.getsockname())
    assert held_by_another(f"OSError: {raised.value}") == "port"


def test_a_locked_file_and_a_locked_database_are_recognised(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as first, (tmp_path / "file").open("w") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError) as raised:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert held_by_another(f"BlockingIOError: {raised.value}") == "lock"
    sqlite3.connect(tmp_path / "base").execute("CREATE TABLE t (x)")
    holder = sqlite3.connect(tmp_path / "base")
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError) as locked:
        sqlite3.connect(tmp_path / "base", timeout=0).execute("INSERT INTO t VALUES (1)")
    assert held_by_another(f"OperationalError: {locked.value}") == "lock"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "DistNetworkError: The server socket has failed to listen on any local network "
            "address. "
            "port: 29511, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in "
            "use",
            "port",
        ),
        ("ERROR: TensorBoard could not bind to port 6006, it was already in use", "port"),
        (
            "UnityWorkerInUseException: Couldn't start socket communication because worker "
            "number 0 "
            "is still in use.",
            "port",
        ),
        ("ZMQError: Address already in use (addr='tcp://*:5555')", "port"),
        (
            'IOException: IO Error: Could not set lock on file "/data/x.duckdb": Conflicting lock '
            "is held in /usr/bin/python3.11 (PID 7).",
            "lock",
        ),
        ("Timeout: The file lock '/data/x.lock' could not be acquired.", "lock"),
        (
            "BlockingIOError: [Errno 11] Unable to synchronously open file (unable to lock file, "
            "errno = 11, error message = 'Resource temporarily unavailable')",
            "lock",
        ),
        ("FileExistsError: [Errno 17] File exists: '/tmp/sim.lock'", "lock"),
        ("RuntimeError: another instance of the simulator is already running", "lock"),
        ("FileExistsError: [Errno 17] File exists: 'checkpoints'", None),
        ("ConnectionRefusedError: [Errno 111] Connection refused", None),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)", None),
        ("ValueError: the padlock class is locked out of the label set", None),
        ("RuntimeError: the weights of this block are in use by another optimizer", None),
    ],
)
def test_the_words_of_ports_simulators_databases_and_locks(text: str, kind: str | None) -> None:
    assert held_by_another(text) == kind
