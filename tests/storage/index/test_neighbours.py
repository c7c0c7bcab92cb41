"""A query about one experiment reads that experiment's rows, however many others there are."""

import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage import queries, result_caches
from breakeven.storage.index.ingest import EVENT_TABLES, event_columns
from breakeven.storage.index.store import Store
from breakeven.storage.queries import rows
from tests.helpers.journals import EXPERIMENT_ID, Recording, record_experiment

OF_EXPERIMENT = [
    name
    for name, function in vars(queries).items()
    if inspect.isfunction(function)
    and list(inspect.signature(function).parameters)[:2] == ["store", "experiment_id"]
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    data_dir = DataDir(tmp_path_factory.mktemp("neighbours"))
    for experiment_id in (EXPERIMENT_ID, "20261122-000000-000000-aaaa"):
        record_experiment(data_dir.runs, experiment_id=experiment_id)
        one_of_each(Recording(data_dir.runs, "baseline", experiment_id=experiment_id))
    with Store.in_memory(data_dir) as store:
        yield store


def one_of_each(recording: Recording) -> None:
    """One event of every kind: of an empty table a plan tells nothing."""
    values = {"BIGINT": 0, "DOUBLE": 1.0, "VARCHAR": "x", "BOOLEAN": True}
    columns = event_columns()
    for kind, table in EVENT_TABLES.items():
        needed = {
            name: values.get(type, {})
            for name, (type, must) in columns[table].items()
            if must and name not in ("seq", "time")
        }
        recording.log.append(kind, **needed)
    recording.log.close()


@pytest.fixture(scope="module")
def plans_by_name(store: Store) -> dict[str, list[str]]:
    return {name: plans(store, name) for name in OF_EXPERIMENT}


def plans(store: Store, name: str) -> list[str]:
    """The plans of all queries that a function asks."""
    statements: list[tuple[str, Any]] = []
    result_caches.forget()
    ask = store._connection

    class Listening:
        def cursor(self) -> Any:
            return self

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def execute(self, sql: str, parameters: Any = ()) -> Any:
            statements.append((sql, parameters))
            return ask.cursor().execute(sql, parameters)

    store._connection = Listening()  # type: ignore[assignment]
    try:
        ask_for = getattr(queries, name)
        more = [
            parameter
            for parameter in list(inspect.signature(ask_for).parameters.values())[2:]
            if parameter.default is parameter.empty
        ]
        ask_for(store, EXPERIMENT_ID, *[1] * len(more))
    finally:
        store._connection = ask
    assert statements
    return [
        ask.cursor().execute(f"EXPLAIN (FORMAT JSON) {sql}", given).fetchall()[0][1]
        for sql, given in statements
    ]


def scans(plan: str) -> Iterator[tuple[str, str]]:
    """Tables of events that a plan reads, and by what their rows are picked."""
    nodes = json.loads(plan)
    while nodes:
        node = nodes.pop()
        nodes += node["children"]
        table = str(node["extra_info"].get("Table", "")).rpartition(".")[2]
        if table in EVENT_TABLES.values():
            yield table, str(node["extra_info"].get("Filters", ""))


@pytest.mark.parametrize("name", OF_EXPERIMENT)
def test_each_table_is_read_by_the_number_of_the_experiment(
    plans_by_name: dict[str, list[str]], name: str
) -> None:
    for plan in plans_by_name[name]:
        for table, picked in scans(plan):
            assert "experiment=" in picked, f"{name} reads all rows of {table}"


def test_a_query_that_reads_all_is_found(
    store: Store, plans_by_name: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    every_plan = [plan for plans_of_query in plans_by_name.values() for plan in plans_of_query]
    read = {table for plan in every_plan for table, _ in scans(plan)}
    assert len(read) > 18
    monkeypatch.setattr(queries.series, "IN_EXPERIMENT", "abs(experiment) = $1")
    filters = [picked for plan in plans(store, "losses") for _, picked in scans(plan)]
    assert not any("experiment=" in picked for picked in filters)
    assert rows.IN_EXPERIMENT == "experiment = $1"
