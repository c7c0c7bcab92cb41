"""What PostgreSQL does by itself, without DuckDB and Parquet, of what writers ask of it."""

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.team.postgres import Postgres

SECONDS = 10
SCRIPT = """BEGIN;
SELECT pg_advisory_xact_lock(1);
INSERT INTO alone SELECT number, repeat('x', {size}) FROM generate_series(1, {rows}) number;
END;
"""
"""One commit of a writer: alone by the store's lock, and as long in the log."""


@dataclass(frozen=True)
class Work:
    """What a database did."""

    commits: int
    rows: int
    log_bytes: int
    """Of its write-ahead log."""

    def since(self, before: "Work") -> "Work":
        return Work(self.commits - before.commits, self.rows - before.rows,
                    self.log_bytes - before.log_bytes)  # fmt: skip


def work_of(server: Postgres, database: str) -> Work:
    """All that a database did up to now, and a server to its log."""
    query = f"""SELECT xact_commit, tup_inserted, pg_current_wal_lsn() - '0/0'
        FROM pg_stat_database WHERE datname = '{database}'"""
    told = server.client("psql", "-d", "postgres", "-Atc", query).strip().split("|")
    return Work(*(int(float(one)) for one in told))


def commits_alone(server: Postgres, clients: int, rows: int, log_bytes: int) -> float:
    """Commits a second of so many clients that write so much each time and wait for each other."""
    server.client("createdb", "alone")
    try:
        made = "CREATE TABLE alone (number bigint, text text)"
        server.client("psql", "-d", "alone", "-c", made)
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            size = max(1, log_bytes // max(1, rows) - 60)  # What the log has beside a row's text.
            script.write(SCRIPT.format(rows=max(1, rows), size=size))
            script.flush()
            Path(script.name).chmod(0o644)
            told = server.client("pgbench", "-n", "-c", str(clients), "-T", str(SECONDS),
                                 "-f", script.name, "alone")  # fmt: skip
    finally:
        server.client("dropdb", "alone")
    found = re.search(r"tps = ([0-9.]+)", told)
    assert found is not None, told
    return float(found[1])
