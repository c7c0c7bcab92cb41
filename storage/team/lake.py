"""The connection to a team's store: reconnects after a failure and allows one writer at a time.

A writer holds a lock of the database server, and commits only if no other writer has committed
since the transaction began: without retries, DuckLake accepts the first of two commits. The lock
only saves useless work. Exactly-once depends on the commit alone, also if a lost connection loses
the lock or a writer is killed.
"""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import duckdb

from breakeven.runner.extras import how_to_install
from breakeven.runner.files import FileLock
from breakeven.storage.errors import TeamStoreUnusable
from breakeven.storage.index.ingest import EVENT_TABLES, SCHEMA, Cursor, transaction
from breakeven.storage.index.store import CONFIG, SCHEMA_MARK
from breakeven.storage.team.store_address import Address

OWN, LAKE, DATABASE = "memory", "team", "team_database"
"""Name of this process's own database, which moves rows to disk if memory is full; and the names of
the attached store and of a second connection to its database (for SQLite, a second file)."""
TABLES = Path(__file__).with_name("lake.sql").read_text()
RESULTS = f"{DATABASE}.breakeven_results"
"""Table of the database itself with computed results of one process for all others. In a table of
DuckLake each result would make a snapshot: writers would wait, and every dashboard would refresh
its lists."""
MAKE_RESULTS = f"""CREATE TABLE IF NOT EXISTS {RESULTS} (
    experiment_id VARCHAR, name VARCHAR, revision BIGINT, num_runs BIGINT, version VARCHAR,
    content VARCHAR, PRIMARY KEY (experiment_id, name))"""
LOCK_KEY = 0x627265616B
LOCK_SECONDS = 120
INLINED_ROWS = 200
"""Up to this number, the rows of one write to one table remain in the database until upkeep: a
Parquet file for each step of a watched run would make reading slower and slower."""
PARTITIONED = ("steps", "blocks", "device_samples", "gradient_statistics", "own_values")
"""Tables that grow with every step. Others have a few rows per run: a file per experiment would be
smaller than its metadata."""
OVERTAKEN = (
    "duplicate key value",
    "unique constraint failed",
    "transaction conflict",
    "could not serialize access",
    "database is locked",
)
"""Parts of error messages if another process has committed since a transaction began."""
INDEX = """CREATE INDEX IF NOT EXISTS breakeven_file_statistics
    ON ducklake_file_column_stats (table_id, column_id)"""
"""An index that DuckLake does not create."""
REFUSED = ("authentication failed", "no password supplied", "no pg_hba.conf entry")
LOST = ("connection", "terminating", "server closed", "could not connect", "broken pipe")


class Overtaken(Exception):
    """Another process has written since the transaction began, so nothing was written."""


class Lake:
    """A team's store, attached to this process's own database. Thread-safe if each thread uses its
    own cursors."""

    def __init__(self, address: Address, *, check: bool = True) -> None:
        """Raises `TeamStoreUnusable` if an extension is missing, the server does not answer, or,
        with `check`, another version of the project created the tables."""
        self.address, self._check = address, check
        self._folder = tempfile.TemporaryDirectory(prefix="breakeven-team-")
        config = CONFIG | {
            "autoload_known_extensions": False,
            "temp_directory": f"{self._folder.name}/spilled",
        }
        self.connection = duckdb.connect(":memory:", config=config)
        self._connecting = threading.RLock()
        self.is_attached = False
        """Whether the database answered the last query."""
        os.environ.setdefault("PGCONNECT_TIMEOUT", "10")
        try:
            self._load_extensions()
            with self.connected():
                pass
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with suppress(duckdb.Error):
            self.connection.close()
        self._folder.cleanup()

    def cursor(self) -> Cursor:
        """A cursor on the tables of the store."""
        cursor = self.connection.cursor()
        cursor.execute(f"USE {LAKE}")
        return cursor

    @contextmanager
    def reading(self) -> Iterator[Cursor]:
        """A cursor on one snapshot of the store; raises `TeamStoreUnusable`."""
        with self.connected(), self.cursor() as cursor:
            cursor.begin()
            try:
                yield cursor
            finally:
                with suppress(duckdb.Error):
                    cursor.rollback()

    @contextmanager
    def writing(self) -> Iterator[tuple[Cursor, int]]:
        """A transaction that is committed at the end, and the number of its new snapshot.

        Raises `Overtaken`, or `TeamStoreUnusable`, after which the commit may still have succeeded;
        the next query shows whether it did.
        """
        with self.connected(), self._alone(), self.cursor() as cursor, transaction(cursor):
            yield cursor, snapshot(cursor) + 1

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connects the store if needed; an error in the body is explained without a password. After
        a lost connection the next call connects again."""
        with self._connecting:
            if not self.is_attached:
                self._attach()
        with self._explaining_errors():
            yield

    @contextmanager
    def _explaining_errors(self) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            text = str(error)
            if any(phrase in text.lower() for phrase in OVERTAKEN):
                raise Overtaken from None
            if any(phrase in text.lower() for phrase in LOST):
                self.is_attached = False
            reason = self.address.without_secrets(_reason(text))
            complaint = f"{self.address.masked} cannot be used: {reason}. {_remedy(reason)}"
            raise TeamStoreUnusable(complaint) from None

    def always_overtaken(self) -> TeamStoreUnusable:
        """The error for a write that other writers overtook in every attempt."""
        return TeamStoreUnusable(
            f"{self.address.masked}: others have been writing all the time, so nothing could be; "
            "it is tried again"
        )

    def execute(self, statement: str) -> None:
        """Runs an operation with its own transactions, such as upkeep, under the writer's lock."""
        with self.connected(), self._alone(), self.cursor() as cursor:
            cursor.execute(statement)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds the writer's lock."""
        if self.address.catalog == "sqlite":
            lock = FileLock(Path(f"{self.address.place}.lock"))
            if not lock.acquire(LOCK_SECONDS):
                raise TeamStoreUnusable(
                    f"{self.address.masked}: another process has been writing for {LOCK_SECONDS} "
                    f"seconds; look whether one that has {lock.path} open hangs"
                )
            with lock:
                yield
            return
        with self.connection.cursor() as holder:
            holder.begin()
            try:
                # A lost machine or a writer that hangs must not block the others.
                _ask_database(
                    holder,
                    f"SELECT set_config('lock_timeout', '{LOCK_SECONDS}s', true) AS a, "
                    "set_config('tcp_keepalives_idle', '20', true) AS b, "
                    "set_config('idle_in_transaction_session_timeout', '600s', true) AS c",
                )
                _ask_database(holder, f"SELECT 1 FROM pg_advisory_xact_lock({LOCK_KEY})")
                yield
            finally:
                with suppress(duckdb.Error):
                    holder.rollback()

    def speed_up(self) -> None:
        """Adds an index with which PostgreSQL finds the file statistics of one table, which each
        query needs, without reading all; only the owner may. Raises `TeamStoreUnusable`."""
        if self.address.catalog == "postgres":
            with self.connected(), self.connection.cursor() as cursor, suppress(duckdb.Error):
                cursor.execute(f"CALL postgres_execute('{DATABASE}', '{INDEX}')")

    def _load_extensions(self) -> None:
        scanner = {"postgres": "postgres_scanner", "sqlite": "sqlite_scanner"}
        for name in ("ducklake", scanner[self.address.catalog]):
            load_extension(self.connection, name)
        with self._explaining_errors():
            self.connection.execute("SET GLOBAL ducklake_max_retry_count = 0")

    def _attach(self) -> None:
        """Attaches the store, and creates it if it does not exist."""
        place = quoted(self.address.place)
        with self._explaining_errors():
            for name in (LAKE, DATABASE):
                self.connection.execute(f"DETACH DATABASE IF EXISTS {name}")
            file = place if self.address.catalog == "postgres" else f"{place}.results"
            kind = self.address.catalog
            self.connection.execute(f"ATTACH '{file}' AS {DATABASE} (TYPE {kind})")
            with self._alone():
                with suppress(duckdb.Error):  # Read-only users compute results themselves.
                    self.connection.execute(MAKE_RESULTS)
                options = [f"DATA_INLINING_ROW_LIMIT {INLINED_ROWS}"]
                if self.address.data:
                    options.append(f"DATA_PATH '{quoted(self.address.data)}'")
                statement = (
                    f"ATTACH 'ducklake:{self.address.catalog}:{place}' AS {LAKE} "
                    f"({', '.join(options)})"
                )
                try:
                    self.connection.execute(statement)
                except duckdb.Error as error:
                    if "httpfs" not in str(error):
                        raise
                    # Only the store knows that its rows are on object storage.
                    load_extension(self.connection, "httpfs")
                    self.connection.execute(s3_secret())
                    self.connection.execute(statement)
                with self.cursor() as cursor:
                    _make_tables(cursor, check=self._check)
        self.is_attached = True


def load_extension(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Loads an extension; raises `TeamStoreUnusable` with the package to install."""
    package = f"duckdb_extension_{name}"
    spec = find_spec(package)
    missing = (
        f"A team's store needs DuckDB's extension {name} {duckdb.__version__}: "
        f"{how_to_install('team')}"
    )
    if spec is None or spec.origin is None:
        raise TeamStoreUnusable(f"{missing} (the package {package} is not installed)")
    versions = Path(spec.origin).parent / "extensions"
    file = versions / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not file.is_file():
        installed = ", ".join(sorted(folder.name for folder in versions.glob("v*"))) or "none"
        raise TeamStoreUnusable(f"{missing} (of {package}, only {installed} is installed)")
    try:
        connection.execute(f"LOAD '{quoted(file)}'")
    except duckdb.Error as error:
        raise TeamStoreUnusable(f"{missing} ({file} cannot be loaded: {error})") from None


def quoted(text: object) -> str:
    """Escapes a text for use within single quotes of a statement."""
    return str(text).replace("'", "''")


def _reason(error: str) -> str:
    """An error text without the failed statement, which can be as long as its rows."""
    return error.rpartition('": ')[2] if "Failed to execute query" in error else error


def _remedy(error: str) -> str:
    text = error.lower()
    if any(phrase in text for phrase in REFUSED):
        return (
            "Name the user in store.address, and the password in PGPASSWORD or ~/.pgpass of who "
            "runs this"
        )
    if "data path" in text or "data_path" in text:
        return "Leave store.data empty: the store knows where its rows lie"
    if "does not exist" in text and "database" in text:
        return "Create the database first: createdb NAME (docs/operating.md)"
    if any(phrase in text for phrase in LOST):
        return (
            "Look whether the database runs and can be reached from here (pg_isready -h HOST); run "
            "folders stay as they are and are taken in once it is back"
        )
    return "docs/operating.md says how it is set up"


def snapshot(cursor: Cursor) -> int:
    """The number of the snapshot that a cursor reads."""
    row = cursor.execute(f"SELECT id FROM ducklake_current_snapshot('{LAKE}')").fetchone()
    assert row is not None
    return int(row[0])


def s3_secret() -> str:
    """A statement with the settings of object storage for DuckDB, from the environment variables of
    Amazon's own tools."""
    fields = {
        "KEY_ID": os.environ.get("AWS_ACCESS_KEY_ID"),
        "SECRET": os.environ.get("AWS_SECRET_ACCESS_KEY"),
        "SESSION_TOKEN": os.environ.get("AWS_SESSION_TOKEN"),
        "REGION": os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
    }
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    scheme, _, host = endpoint.rpartition("://")
    if host:
        fields |= {"ENDPOINT": host.rstrip("/"), "URL_STYLE": "path"}
    settings = [f"{name} '{quoted(value)}'" for name, value in fields.items() if value]
    if scheme == "http":
        settings.append("USE_SSL false")
    return f"CREATE OR REPLACE SECRET team_data ({', '.join(['TYPE s3', *settings])})"


def _ask_database(holder: Cursor, question: str) -> None:
    holder.execute(f"FROM postgres_query('{DATABASE}', '{quoted(question)}')").fetchall()


def _make_tables(cursor: Cursor, *, check: bool) -> None:
    made = cursor.execute(
        f"SELECT count(*) FROM duckdb_tables() WHERE database_name = '{LAKE}'"
    ).fetchone()
    if made and made[0]:
        (mark,) = cursor.execute("SELECT schema FROM meta").fetchone() or ("none",)
        if check and mark != SCHEMA_MARK:
            raise TeamStoreUnusable(
                "the team's store was made by another version of Breakeven, with other tables. "
                "Bring every machine to the same version, then say `breakeven team reset "
                "--yes` on one: each machine takes its run folders in again by itself"
            )
        return
    with transaction(cursor):
        create(cursor)


def create(cursor: Cursor) -> None:
    """Creates empty tables."""
    cursor.execute(SCHEMA + TABLES)
    for table in PARTITIONED:
        cursor.execute(f"ALTER TABLE {table} SET PARTITIONED BY (experiment)")
    cursor.execute("INSERT INTO meta VALUES (?)", [SCHEMA_MARK])


ALL_TABLES = (
    "meta",
    "experiments",
    "runs",
    "progress",
    "labels",
    "results",
    "unreadable",
    "data_folders",
    "present",
    *EVENT_TABLES.values(),
)
"""All tables of a team's store."""
