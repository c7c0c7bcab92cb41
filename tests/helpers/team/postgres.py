"""A real PostgreSQL server for a test, which may stop and start it."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

USER, PASSWORD = "breakeven", "a secret"
_numbers = count()


def programs() -> Path:
    """The folder of PostgreSQL's programs; skips the test if there is none."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    initdbs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not initdbs:
        pytest.skip("PostgreSQL's programs are not installed (Debian: apt install postgresql)")
    return initdbs[-1].parent


def free_port() -> int:
    """A free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Postgres:
    """A server on its own port that asks for passwords. A folder with a server gets it again, on
    another port."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._programs = folder, programs()
        # The server refuses to run as root.
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user:
            os.chown(folder, pwd.getpwnam(self._user).pw_uid, -1)
        self.port = free_port()
        if not (folder / "data" / "PG_VERSION").exists():
            self._initialise()
        self.start()

    def _initialise(self) -> None:
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run(
            "initdb",
            "-D",
            str(self._folder / "data"),
            "-U",
            USER,
            "-A",
            "scram-sha-256",
            f"--pwfile={secret}",
            "--no-sync",
        )

    def start(self) -> None:
        options = f"-p {self.port} -k {self._folder} -h 127.0.0.1"
        self._run(
            "pg_ctl",
            "-D",
            str(self._folder / "data"),
            "-w",
            "-o",
            options,
            "-l",
            str(self._folder / "log"),
            "start",
        )

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-w", "-m", mode, "stop")

    def new_database(self) -> str:
        """The address of an empty database for libpq."""
        name = f"store{next(_numbers)}"
        self.client("createdb", name)
        return self.conninfo(name)

    def conninfo(self, name: str, password: str = PASSWORD) -> str:
        place = f"host=127.0.0.1 port={self.port} dbname={name} user={USER}"
        return f"{place} password='{password}'"

    def client(self, program: str, *arguments: str) -> str:
        """Runs one of PostgreSQL's own programs against the server; returns what it prints."""
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        return subprocess.run(
            [self._programs / program, *where, *arguments],
            env={**os.environ, "PGPASSWORD": PASSWORD},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, *arguments],
            user=self._user,
            cwd=self._folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@contextmanager
def postgres_server() -> Iterator[Postgres]:
    programs()
    # Not in pytest's own folders, whose parents let no other user in.
    with tempfile.TemporaryDirectory(prefix="breakeven-pg-", ignore_cleanup_errors=True) as folder:
        server = Postgres(Path(folder))
        try:
            yield server
        finally:
            with suppress(subprocess.CalledProcessError):  # A test stopped it.
                server.stop("immediate")
