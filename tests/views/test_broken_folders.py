"""Every page with broken run folders, and with journals that no run would write."""

import json
import os
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.index.ingest import EVENT_TABLES, event_columns
from breakeven.storage.index.store import Store
from tests.helpers.breakages import HOSTILE_NAMES, break_file
from tests.helpers.journals import experiment_spec, record_experiment
from tests.helpers.pages import compare_all, opened, text

pytestmark = pytest.mark.heavy
GOOD, BAD = "20261121-093010-123456-aaaa", "20261121-093111-123456-bbbb"
EXTREME_RUN = f"{BAD}.inductor"
EXTREMES: dict[str, tuple[Any, ...]] = {
    "BIGINT": (2**53, -(2**53), 2**63 - 1, 10**30, 1.5, "x"),
    "DOUBLE": (1e308, -1e308, "NaN", "Infinity", 10**400, 0, "x"),
    "BOOLEAN": (True, "x", 3),
    "VARCHAR": ("a\u0000b", "\ud800", "x" * 200_000, "[a](http://x)<b>$", "", "\n\n# x", 5, {}),
    "JSON": ({"a": {"b": []}}, [[1]], {}, [], 5, "x", {"torch": None}),
    "MAP(VARCHAR, DOUBLE)": ({"a": 1e308, "": "NaN"}, {}, [], "x"),
}


def record_two(folder: DataDir) -> None:
    for experiment_id in (GOOD, BAD):
        record_experiment(folder.runs, experiment_spec(num_steps=40), experiment_id)


def hostile_rows(data_dir: DataDir) -> list[dict[str, Any]]:
    """For each field of each kind of event, a row with each extreme value in it, and normal values
    otherwise."""
    tables = event_columns()
    rows = []
    # A resumption invalidates the rows above it.
    for kind, table in sorted(EVENT_TABLES.items(), key=lambda entry: entry[0] != "resumed"):
        columns = {name: kind_of for name, (kind_of, _) in tables[table].items()}
        plain = {
            name: {"BIGINT": 3, "DOUBLE": 0.5, "BOOLEAN": True, "VARCHAR": "a"}.get(type_)
            for name, type_ in columns.items()
        }
        del columns["seq"]  # after a row that is too large, the index would leave out the others
        for name, type_ in columns.items():
            for value in EXTREMES.get(type_, ("x", 5, [], {}, [{}], [None])):
                rows.append({"v": 1, "kind": kind, **plain, "seq": 10_000 + len(rows), name: value})
    return rows


@pytest.fixture(scope="module")
def extremes(kept_folder: DataDir) -> DataDir:
    """An experiment as it was recorded, and one with a journal of extremes, some of which the index
    accepts; both are compared."""
    record_two(kept_folder)
    with kept_folder.run_dir(EXTREME_RUN).events_file.open("a") as journal:
        journal.writelines(json.dumps(row) + "\n" for row in hostile_rows(kept_folder))
    with Store.in_memory(kept_folder) as store:
        for table in EVENT_TABLES.values():
            rows = store.query(f"SELECT count(*) AS n FROM {table} WHERE run_id = ?", [EXTREME_RUN])
            # The counters of the caches cannot hold any extreme.
            assert rows["n"].iloc[0] > 0 or table == "compile_caches", table
    compare_all(kept_folder)
    return kept_folder


@pytest.mark.parametrize(
    ("page", "query"),
    [
        *(("experiments", {"view": view}) for view in ("Table", "Matrix", "Trends", "Suites")),
        *(
            ("experiment", {"experiment": BAD, "tab": tab})
            for tab in ("Verdict", "Why", "Learning", "Runs", "Settings")
        ),
        ("experiment", {"experiment": GOOD}),
        *(
            ("experiment", {"experiment": BAD, "tab": "Runs", "run": EXTREME_RUN, "part": part})
            for part in (
                "Scores",
                "Gradients",
                "Compiling",
                "Device",
                "Checkpoints",
                "Settings",
                "Environment",
                "Log",
            )
        ),
        ("machine", {"tab": "Devices"}),
    ],
)
def test_a_journal_of_extremes_breaks_no_page(extremes: DataDir, page: str, query: dict[str, str]):
    assert "Traceback" not in text(opened(page, **query))


def test_pages_name_the_folders_that_cannot_be_read_and_show_the_others(folder: DataDir) -> None:
    record_two(folder)
    for name in HOSTILE_NAMES:
        (folder.runs / os.fsdecode(name)).mkdir()
    (folder.runs / "loop").symlink_to("loop")
    outside = folder.path.parent / "outside"
    outside.write_text("secret")
    break_file(folder.runs / f"{BAD}.baseline", "spec.json", "100,000 brackets", outside)
    break_file(folder.runs / f"{BAD}.control", "exit.json", "cut off", outside)
    break_file(folder.runs / f"{BAD}.inductor", "output.log", "a link outside", outside)
    for app in (opened("experiments"), opened(experiment=GOOD), opened("machine", view="Table")):
        shown = text(app)
        assert f"{BAD}.baseline: " in shown and "nested too deeply" in shown
        assert "loop: " in shown and "a\\nb.baseline: " in shown
    bad = text(opened(experiment=BAD, tab="Runs", run=f"{BAD}.control", part="Log"))
    assert "secret" not in bad and "exit.json cannot be read" in bad
