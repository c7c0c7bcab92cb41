"""Ingest: every event exactly once, whatever the folders hold."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.states import RunState
from breakeven.storage import queries
from breakeven.storage.index import folders
from breakeven.storage.index.ingest import EVENT_TABLES
from breakeven.storage.index.store import Store
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)
from tests.storage.index.rows import content

ROOT = Path(__file__).parents[3]


def num_rows(store: Store, table: str = "steps") -> int:
    return int(store.query(f"SELECT count(*) AS n FROM {table}")["n"][0])


def test_a_torn_last_line_is_read_after_it_is_completed(data_dir: DataDir) -> None:
    recording = Recording(data_dir.runs, "baseline")
    line = json.dumps({"v": 1, "seq": 0, "kind": "step", "time": 1.0, "step": 0, "loss": 2.5})
    with Store.open(data_dir) as store, recording.run.events_file.open("a") as journal:
        journal.write(line[:30])
        journal.flush()
        assert store.ingest() == 0
        journal.write(line[30:] + "\n")
        journal.flush()
        assert store.ingest() == 1
        assert store.query("SELECT loss FROM steps")["loss"].tolist() == [2.5]


def test_unknown_fields_are_ignored_and_ill_typed_ones_undefined(data_dir: DataDir) -> None:
    recording = Recording(data_dir.runs, "baseline")
    recording.log.append("step", step=0, loss="low", seconds=0.5, mood="good")
    recording.log.flush()
    with Store.open(data_dir) as store:
        assert store.ingest() == 1
        assert store.rows("SELECT loss, seconds FROM steps") == [(None, 0.5)]


@pytest.mark.parametrize("with_care", [False, True])
def test_fields_of_one_name_may_have_two_types(data_dir: DataDir, with_care: bool) -> None:
    """The CPUs of an environment are a list, those beside a block a number."""
    recording = Recording(data_dir.runs, "baseline").start(environment={"cpus": "0-1,4"})
    for cpus in (3, "many", 2**60):
        recording.log.append("device", round=0, first_step=0, wall_seconds=1.0, cpus=cpus)
    recording.log.flush()
    if with_care:
        with recording.run.events_file.open("a") as journal:
            journal.write("no event\n")
    with Store.open(data_dir) as store:
        store.ingest()
        assert store.query("SELECT cpus FROM environments")["cpus"].tolist() == ["0-1,4"]
        counts = store.query("SELECT cpus FROM device_samples ORDER BY seq")["cpus"]
        assert counts.iloc[0] == 3 and counts.iloc[1:].isna().all()


def test_texts_in_any_script_stay_as_they_are(data_dir: DataDir) -> None:
    """Among them characters at which Python, not the journal, ends a line."""
    text = 'caf\u00e9 \u65e5\u672c\u8a9e \U0001f600 \u2028\u2029\x85 \r\n\t \x00 "quoted" null'
    recording = Recording(data_dir.runs, "baseline")
    recording.log.append("error", error="Error", message=text)
    recording.log.flush()
    with Store.open(data_dir) as store:
        assert store.ingest() == 1
        assert store.query("SELECT message FROM errors")["message"].tolist() == [text]


@pytest.mark.parametrize("num_steps", [2, 20])
def test_a_restarted_journal_is_read_from_scratch(data_dir: DataDir, num_steps: int) -> None:
    recording = Recording(data_dir.runs, "baseline").start().block([0.1] * 10, [1.0] * 10)
    other = Recording(data_dir.runs, "control").start().block([0.1] * 10, [3.0] * 10)
    with Store.open(data_dir) as store:
        store.ingest()
        recording.run.begin_anew()
        again = Recording(data_dir.runs, "baseline")
        again.block([0.1] * num_steps, [7.0] * num_steps)
        assert store.ingest() == num_steps + 1
        frame = store.query("SELECT run_id, loss FROM steps ORDER BY step")
        assert frame[frame["run_id"] == again.run_id]["loss"].tolist() == [7.0] * num_steps
        assert len(frame[frame["run_id"] == other.run_id]) == 10


def test_long_lines_are_passed_over(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole in a file takes no disk, and was read for minutes while a page waited."""
    long, hole = (Recording(data_dir.runs, label) for label in ("baseline", "control"))
    with long.run.events_file.open("ab") as journal:
        journal.write(b"x" * 5000 + b"\n")
    with hole.run.events_file.open("ab") as journal:
        journal.truncate(2**40)
        journal.seek(0, os.SEEK_END)
        journal.write(b"\n")
    long.block([0.1] * 3, [1.0] * 3)
    hole.block([0.1] * 3, [1.0] * 3)
    monkeypatch.setattr(folders, "MAX_TICK_BYTES", 2000)
    with Store.open(data_dir) as store:
        assert sum(store.ingest() for _ in range(20)) == 8


def test_an_index_made_anew_equals_one_that_grew(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=20)
    recordings = [Recording(data_dir.runs, label, spec) for label in ("baseline", "control")]
    (data_dir.runs / "foreign").mkdir()
    with Store.open(data_dir) as store:
        for recording in recordings:
            recording.start()
            store.ingest()
        for number in range(2):
            for recording in recordings:
                recording.block([0.1] * 10, falling_losses(20)[number * 10 :][:10])
                store.ingest()
        recordings[0].claim().end()
        recordings[1].claim().end(RunState.FAILED, "exit status 1")
        store.ingest()
        incremental = content(store)
    with Store.in_memory(data_dir) as reader:
        assert content(reader) == incremental
    assert len(incremental["steps"]) == 40
    assert len(incremental["unreadable"]) == 1


def test_folders_that_cannot_be_read_are_named_and_break_nothing(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs)
    (data_dir.runs / "notes").mkdir()
    nonsense = data_dir.runs / "nonsense"
    nonsense.mkdir()
    (nonsense / "spec.json").write_text('{"experiment_id": 3}')
    damaged = data_dir.run_dir(f"{EXPERIMENT_ID}.control")
    damaged.exit_file.write_text('{"state":"finished","reason":"x","returncode":0,"time":{}}')
    (data_dir.runs / "a file").touch()
    with Store.open(data_dir) as store:
        store.ingest()
        broken = queries.unreadable(store)
        names = [Path(folder).name for folder in broken["folder"]]
        assert names == ["nonsense", "notes"]
        assert "is required" in broken["message"][0]
        assert "no spec.json" in broken["message"][1]
        runs = queries.list_runs(store, EXPERIMENT_ID).set_index("label")
        assert runs["state"].to_dict() == {
            "baseline": "finished",
            "control": "lost",
            "inductor": "finished",
        }
        assert "exit.json cannot be used: time = " in runs.loc["control", "reason"]
        damaged.write_exit(Exit.now(RunState.FINISHED, "repaired", 0))
        shutil.rmtree(data_dir.runs / "notes")
        store.ingest()
        assert [Path(f).name for f in queries.unreadable(store)["folder"]] == ["nonsense"]
        assert num_rows(store) == 120


def test_a_local_copy_replaces_an_example(data_dir: DataDir, tmp_path: Path) -> None:
    examples = tmp_path / "examples"
    record_experiment(examples / "h100", experiment_id="20260101-000000-000000-aaaa")
    record_experiment(data_dir.runs)
    with Store.open(data_dir, examples) as store:
        store.ingest()
        assert queries.list_experiments(store)["origin"].tolist() == ["local", "example"]
        shutil.copytree(examples / "h100", data_dir.runs, dirs_exist_ok=True)
        store.ingest()
        assert queries.list_experiments(store)["origin"].tolist() == ["local", "local"]
        assert num_rows(store) == 240


INGEST_FOREVER = """
import sys
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.index.ingest import EVENT_TABLES
from breakeven.storage.index.store import Store

with Store.open(DataDir(sys.argv[1])) as store:
    while True:
        if store.ingest():
            print("new rows", flush=True)
"""


@pytest.mark.heavy
def test_nothing_is_lost_or_doubled_when_ingest_is_killed(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=10_000)
    recording = Recording(data_dir.runs, "baseline", spec).start()
    num_blocks = 0
    for attempt in range(2):
        killed = subprocess.Popen(
            [sys.executable, "-c", INGEST_FOREVER, str(data_dir.path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        for number in range(10 + attempt):
            recording.block([0.1] * 10, [1.0] * 10)
            num_blocks += 1
            time.sleep(0.003)
            if number == 0:
                killed.stdout.readline()  # from here on it is at work
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        killed.stdout.close()
    with Store.open(data_dir) as store:
        already = num_rows(store)
        store.ingest()
        steps = store.query("SELECT step, seq FROM steps ORDER BY step")
    # The killed processes did commit something, or the loop has tested nothing.
    assert already > 0
    assert steps["step"].tolist() == list(range(10 * num_blocks))
    assert steps["seq"].is_unique


def test_each_table_with_the_order_of_events_belongs_to_a_kind(data_dir: DataDir) -> None:
    with Store.in_memory(data_dir) as store:
        of_events = store.rows("SELECT table_name FROM duckdb_columns() WHERE column_name = 'seq'")
        views = store.rows("SELECT view_name FROM duckdb_views()")
    tables = {name for (name,) in of_events} - {name for (name,) in views}
    assert sorted(EVENT_TABLES.values()) == sorted(tables)
