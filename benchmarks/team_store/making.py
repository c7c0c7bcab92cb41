"""Stores with many runs: one experiment, copied by the database under other ids."""

import shutil
import sys
from pathlib import Path

from benchmarks.big_store import experiment_id, make_store
from benchmarks.team_store import NUM_STEPS
from runner.folders.data_dir import DataDir
from storage.index.ingest import run_tick, start_watch
from storage.index.journal_rows import EVENT_TABLES, Cursor
from storage.index.store import CONFIG, SCHEMA_MARK, Store
from storage.team.address import Address
from storage.team.lake import LAKE
from storage.team.store import TeamStore
from storage.team.upkeep import size, upkeep
from tests.helpers.team.postgres import Postgres

AT_ONCE = 20
"""Generated experiments that are written together."""
DATABASE = "reading"


def team_store(folder: Path, num_experiments: int) -> "tuple[Postgres, Address]":
    """A started server with a store of so many experiments, which is kept for the next time."""
    place = folder / "team"
    made = _mark(num_experiments)
    if not _is_made(place, made):
        shutil.rmtree(place, ignore_errors=True)
    (place / "postgres").mkdir(parents=True, exist_ok=True)
    server = Postgres(place / "postgres")
    address = Address("postgres", server.conninfo(DATABASE), str(place / "rows"))
    if not _is_made(place, made):
        try:
            server.client("createdb", DATABASE)
            _fill_team_store(address, _template(folder), num_experiments)
        except BaseException:
            server.stop()
            raise
        (place / "made").write_text(made)
    return server, address


def embedded_store(folder: Path, num_experiments: int) -> DataDir:
    """A data folder whose database holds so many experiments, which is kept for the next time."""
    place = folder / "embedded"
    data_dir = DataDir(place)
    made = _mark(num_experiments)
    if not _is_made(place, made):
        shutil.rmtree(place, ignore_errors=True)
        data_dir.runs.mkdir(parents=True)
        _fill_embedded_store(data_dir, _template(folder), num_experiments)
        (place / "made").write_text(made)
    return data_dir


def _mark(num_experiments: int) -> str:
    """What is noted of a store that is whole: one of another schema would be made anew unasked."""
    return f"{num_experiments} experiments of {NUM_STEPS} steps, schema {SCHEMA_MARK}"


def _is_made(place: Path, made: str) -> bool:
    note = place / "made"
    return note.exists() and note.read_text() == made


def _template(folder: Path) -> DataDir:
    template = DataDir(folder / "template")
    if not (folder / "template-made").exists():
        shutil.rmtree(template.path, ignore_errors=True)
        template.runs.mkdir(parents=True)
        make_store(template, 1, NUM_STEPS)
        (folder / "template-made").touch()
    return template


def _fill_team_store(address: Address, template: DataDir, num_experiments: int) -> None:
    with TeamStore.at(address, template) as store:
        store.ingest_all()
        store.number_of(experiment_id(0))
        store._connection.execute("SET memory_limit = '3GB'")
        with store._lake.connection.cursor() as cursor:
            _generate(cursor, f"{LAKE}.", num_experiments)
        list(upkeep(store._lake))
        held = size(store._lake)
    sys.stderr.write(f"the team's store: {held.files:,} files, {held.bytes / 1e9:.2f} GB\n")


def _fill_embedded_store(data_dir: DataDir, template: DataDir, num_experiments: int) -> None:
    with Store.open(data_dir) as store, store._connection.cursor() as cursor:
        watch = start_watch(cursor, template.runs, None)
        while run_tick(cursor, watch, 4)[1]:
            pass
        cursor.execute("SET memory_limit = '3GB'")
        _generate(cursor, "", num_experiments)
        cursor.execute("CHECKPOINT")
        cursor.execute(f"SET memory_limit = '{CONFIG['memory_limit']}'")


def _generate(cursor: Cursor, where: str, num_experiments: int) -> None:
    """Copies experiment 1, of a database with its events in tables of its own, so often, into the
    store whose tables' names begin with `where`."""
    filled = [table for table in EVENT_TABLES.values()
              if cursor.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()]  # fmt: skip
    cursor.execute("CREATE OR REPLACE TEMP TABLE ids (number INTEGER, id VARCHAR)")
    for table in ("runs", "progress", *filled):
        cursor.execute(f"CREATE OR REPLACE TEMP TABLE one_{table} AS FROM {table}")
    for first in range(2, num_experiments + 1, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, num_experiments + 1))
        cursor.execute("DELETE FROM ids")
        cursor.executemany("INSERT INTO ids VALUES (?, ?)",
                           [(number, experiment_id(number)) for number in numbers])  # fmt: skip
        cursor.begin()
        _copy(cursor, where, filled)
        cursor.commit()
        sys.stderr.write(f"\r{numbers[-1]} ")
    sys.stderr.write("\n")


def _copy(cursor: Cursor, where: str, filled: list[str]) -> None:
    """Adds a copy of experiment 1 for each row of `ids`."""
    run_id = f"replace(run_id, '{experiment_id(0)}', id)"
    for table in filled:
        loss = ", loss * (1 + 1e-4 * number) AS loss" if table == "steps" else ""
        cursor.execute(
            f"INSERT INTO {where}{table} SELECT one.* REPLACE (number::INTEGER AS experiment, "
            f"{run_id} AS run_id{loss}) FROM one_{table} one, ids ORDER BY number"
        )
    cursor.execute(
        f"INSERT INTO {where}runs SELECT one.* REPLACE (number::INTEGER AS experiment, "
        f"{run_id} AS run_id, id AS experiment_id, "
        f"replace(spec, '{experiment_id(0)}', id) AS spec) FROM one_runs one, ids"
    )
    cursor.execute(
        f"INSERT INTO {where}progress SELECT one.* REPLACE ({run_id} AS run_id, "
        f"replace(folder, '{experiment_id(0)}', id) AS folder, 'generated' AS data_folder, "
        f"number + 1000000 AS revision) FROM one_progress one, ids"
    )
    cursor.execute(f"INSERT INTO {where}experiments SELECT id, number FROM ids")
    if where:
        names = ", ".join(f"('{table}')" for table in filled)
        cursor.execute(
            f"INSERT INTO {where}present SELECT number, name FROM ids, (VALUES {names}) t(name)"
        )
