"""The catalog: a row for everything there is, numbers computed once and kept, labels; experiments
whose folders say that they come from another time."""

import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from breakeven.runner.experiments import freeing_space, trash
from breakeven.runner.experiments.labels import change_labels
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.storage import queries, result_caches
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.storage.library import catalog as disk
from breakeven.storage.library import summary
from breakeven.storage.library.catalog import backend_rows, catalog, compute_missing
from breakeven.storage.library.summary import BackendSummary, Summary
from breakeven.storage.library.trends import trends
from breakeven.storage.result_caches import hash_of
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)

OTHER = "20261121-093016-123456-7f3b"
LONG = 100.0


@pytest.fixture
def recorded(data_dir: DataDir) -> DataDir:
    record_experiment(data_dir.runs)
    return data_dir


def row(store: Store, experiment_id: str = EXPERIMENT_ID) -> dict[str, object]:
    frame = catalog(store).set_index("experiment_id", drop=False)
    return dict(frame.loc[experiment_id])


def test_a_row_says_what_the_comparison_says(recorded: DataDir) -> None:
    """Four rounds of 10 steps at 0.2 s and 0.1 s, 3 s of compiling: 30 steps until it pays."""
    with Store.in_memory(recorded) as store:
        assert compute_missing(store, LONG) == 0
        shown = row(store)
        backend = next(
            result for result in compare(store, EXPERIMENT_ID).results if result.role == "backend"
        )
    assert shown["speedup"] == backend.value("speedup") == pytest.approx(2.0)
    assert shown["compile_seconds"] == pytest.approx(3.0)
    # So few rounds have no interval: it may be chance.
    assert backend.break_even is not None and backend.break_even.steps_if_real == pytest.approx(30)
    assert (shown["break_even_steps"], shown["break_even_verdict"]) == (None, "unsure")
    assert (shown["best"], shown["parity"]) == ("inductor", backend.value("parity"))
    assert shown["answer"] == "not decided for 40 steps", "the length that it is for"
    assert (shown["name"], shown["model"], shown["data"]) == ("test", "bert-tiny", "reviews")
    assert (shown["torch"], shown["device"], shown["batch"]) == ("2.13.0", "Test CPU", 8)
    assert (shown["state"], shown["origin"], shown["known"]) == ("finished", "local", True)
    # One mean per step: 40 steps from 2 down to 1.
    assert shown["losses"] == pytest.approx(falling_losses(40))


def test_what_is_not_computed_yet_says_so_and_the_newest_comes_first(recorded: DataDir) -> None:
    record_experiment(recorded.runs, experiment_id=OTHER)
    with Store.in_memory(recorded) as store:
        assert list(catalog(store)["known"]) == [False, False]
        assert compute_missing(store, 0.0) == 1
        assert list(catalog(store)["experiment_id"]) == [OTHER, EXPERIMENT_ID]
        assert list(catalog(store)["known"]) == [True, False]
        assert compute_missing(store, 0.0, only=[EXPERIMENT_ID]) == 0
        assert list(catalog(store)["known"]) == [True, True]


def test_numbers_are_computed_once(recorded: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(recorded) as store:
        store.ingest_all()
        compute_missing(store, LONG)
        before = row(store)
    result_caches.forget()
    monkeypatch.setitem(summary.SUMMARIZERS, "runs", lambda *_: pytest.fail("computed again"))
    with Store.open(recorded) as store:
        store.ingest_all()
        assert row(store)["speedup"] == before["speedup"]
        assert row(store)["known"]


def test_any_change_of_what_computes_changes_the_version(tmp_path: Path) -> None:
    for file in ("storage/statistics/a.py", "storage/index/schema.sql", "runner/specs/b.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("1")
    versions = [hash_of(tmp_path)]
    for file in ("storage/statistics/a.py", "storage/index/schema.sql", "runner/specs/b.py"):
        (tmp_path / file).write_text("2")
        versions.append(hash_of(tmp_path))
    (tmp_path / "storage/statistics/a.py").rename(tmp_path / "storage/statistics/c.py")
    versions.append(hash_of(tmp_path))
    assert len(set(versions)) == 5


def test_an_experiment_is_computed_when_it_is_over(data_dir: DataDir) -> None:
    waiting = submit(data_dir, experiment_spec())
    record_experiment(data_dir.runs)
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label, experiment_id=OTHER).claim().start()
        run.end(RunState.FAILED, "out of luck")
    with Store.in_memory(data_dir) as store:
        assert compute_missing(store, LONG) == 0
        assert row(store, waiting)["speedup"] is None
        assert row(store, waiting)["duration"] is None
        assert row(store)["speedup"] is not None
        failed = row(store, OTHER)
        assert (failed["state"], failed["speedup"], failed["problem"]) == ("failed", None, None)
        assert not pd.isna(failed["duration"])
        first = find_experiment(data_dir, EXPERIMENT_ID).runs[0]
        os.utime(first.exit_file, ns=(1, 1))
        first.exit_file.write_text(first.exit_file.read_text().replace("all steps", "some steps"))
        store.ingest()
        assert not row(store)["known"]


def test_a_failed_comparison_is_shown(recorded: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    record_experiment(recorded.runs, experiment_id=OTHER)

    read_runs = summary.SUMMARIZERS["runs"]

    def fails(store: Store, experiment_id: str) -> Summary:
        if experiment_id == OTHER:
            raise ZeroDivisionError("a stranger's journal")
        return read_runs(store, experiment_id)

    monkeypatch.setitem(summary.SUMMARIZERS, "runs", fails)
    with Store.in_memory(recorded) as store:
        assert compute_missing(store, LONG) == 0
        assert row(store, OTHER)["problem"] == "ZeroDivisionError: a stranger's journal"
        assert row(store)["speedup"] == pytest.approx(2.0)


def test_a_broken_backend_is_not_the_best_however_fast() -> None:
    slow = BackendSummary(label="slow", state="finished", speedup=1.1, parity="holds")
    broken = BackendSummary(
        label="broken", state="finished", speedup=9.0, parity="broken", is_wrong=True
    )
    untimed = BackendSummary(label="untimed", state="failed")
    summary = Summary(backends=(untimed, broken, slow))
    assert summary.best == slow and summary.parity == "broken"
    assert Summary(backends=(broken,)).best == broken
    assert Summary().best is None and Summary().parity is None


def test_sizes_are_read_while_others_are_measured(data_dir: DataDir) -> None:
    wanted = [(str(number), ()) for number in range(5000)]
    before = sys.getswitchinterval()
    with Store.in_memory(data_dir) as store, ThreadPoolExecutor() as pool:
        sys.setswitchinterval(1e-6)
        try:
            measuring = pool.submit(disk.measure_sizes, store, wanted, LONG)
            while not measuring.done():
                assert len(disk.known_sizes(store)) <= len(wanted)
        finally:
            sys.setswitchinterval(before)
        assert measuring.result() == 0 and len(disk.known_sizes(store)) == len(wanted)


def test_checkpoints_and_artifacts_have_sizes_of_their_own(recorded: DataDir) -> None:
    first = find_experiment(recorded, EXPERIMENT_ID).runs[0]
    first.checkpoints.mkdir(parents=True)
    (first.checkpoints / "step-1.pt").write_bytes(b"x" * 5000)
    (first.artifacts / "predictions.npz").write_bytes(b"x" * 300)
    total = sum(file.stat().st_size for file in recorded.runs.rglob("*") if file.is_file())
    with Store.in_memory(recorded) as store:
        assert row(store)["total_bytes"] is None
        compute_missing(store, LONG)
        names = ("total_bytes", "checkpoint_bytes", "artifact_bytes")
        assert [row(store)[name] for name in names] == [total, 5000, 300]
        freeing_space.free(recorded, EXPERIMENT_ID)
        disk.forget_sizes(store, [EXPERIMENT_ID])
        compute_missing(store, LONG)
        assert [row(store)[name] for name in names] == [total - 5000, 0, 300]


def test_imported_results_have_rows_of_what_they_say(recorded: DataDir) -> None:
    imports = recorded.path / "imports"
    imports.mkdir()
    lines = [
        "dev,name,batch_size,speedup,abs_latency,compilation_latency",
        "cuda,BertForMaskedLM,16,1.5,20.0,33.0",
        "cuda,GPT2,4,0.0,0.0,0.0",
    ]
    (imports / "nightly.csv").write_text("\n".join(lines) + "\n")
    with Store.in_memory(recorded) as store:
        assert len(catalog(store)) == 3
        theirs = catalog(store).iloc[1:]
    assert list(theirs["name"]) == ["BertForMaskedLM", "GPT2"]
    assert list(theirs["state"]) == ["finished", "failed"]
    assert list(theirs["speedup"]) == [1.5, None]
    assert list(theirs["experiment_id"]) == [None, None]


def test_the_catalog_is_made_anew_only_when_something_has_changed(recorded: DataDir) -> None:
    with Store.in_memory(recorded) as store:
        compute_missing(store, LONG)
        before = catalog(store)
        store.ingest()
        assert catalog(store) is before
        for run in find_experiment(recorded, EXPERIMENT_ID).runs:
            shutil.rmtree(run.path)
        store.ingest()
        assert catalog(store).empty


@pytest.mark.heavy
def test_thousands_of_experiments_have_room_in_the_databases_memory(data_dir: DataDir) -> None:
    Recording(data_dir.runs, "baseline").log.close()
    with Store.open(data_dir) as store:
        store.ingest()
        store.write("""
            INSERT INTO runs BY NAME SELECT * EXCLUDE (i) REPLACE (
                'x' || i || '.baseline' AS run_id, 'x' || i AS experiment_id)
            FROM runs, range(6000) t(i)""")
        store.write("""
            INSERT INTO progress BY NAME SELECT progress.* REPLACE (runs.run_id AS run_id)
            FROM progress, runs WHERE runs.run_id <> progress.run_id""")
        assert len(queries.list_experiments(store)) == 6001


OLD, NEW = "20261120-093010-123456-7f3a", "20261121-093010-123456-7f3a"
LATER = ("99991231-235959-999999-ffff", "21000101-000000-000000-ffff")
BEFORE = ("00010101-000000-000000-ffff", "19691231-235959-000000-ffff")
NO_TIME = "zzz"


@pytest.mark.heavy
def test_neither_future_nor_antiquity_is_the_newest(data_dir: DataDir) -> None:
    strange = (*LATER, *BEFORE)
    for experiment_id in (OLD, NEW, *strange):
        record_experiment(data_dir.runs, experiment_id=experiment_id)
        for run in data_dir.run_dirs():
            if run.run_id.startswith(strange):  # nor does the claim tell a time that was
                run.claim_file.unlink(missing_ok=True)
    record_experiment(data_dir.runs, experiment_id=NO_TIME)
    with Store.in_memory(data_dir) as store:
        listed = queries.list_experiments(store).set_index("experiment_id")
        compute_missing(store, 60)
        known = catalog(store)
        series = trends(backend_rows(store, known), "step_seconds")
    # The one without a time in its name is known by when it was claimed, a moment ago.
    assert list(listed.index[:3]) == [NO_TIME, NEW, OLD]
    assert list(known["experiment_id"][:3]) == [NO_TIME, NEW, OLD]
    assert listed.loc[NEW, "submitted"] == pd.Timestamp("2026-11-21 09:30:10.123456", tz="UTC")
    assert listed.loc[[*strange], "submitted"].isna().all()
    assert abs(listed.loc[NO_TIME, "submitted"].timestamp() - time.time()) < 600
    assert series
    for of_workload in series:
        assert [point.experiment_id for point in of_workload.points][-3:] == [OLD, NEW, NO_TIME]


def name_and_archived(store: Store) -> tuple[str, bool]:
    row = queries.list_experiments(store).iloc[0]
    return row["name"], bool(row["archived"])


def test_labels_show_after_the_next_tick_and_make_no_result_new(recorded: DataDir) -> None:
    """They leave and come back with their experiment; what cannot be read is told."""
    with Store.in_memory(recorded) as store:
        before = queries.revision(store, EXPERIMENT_ID)
        assert name_and_archived(store) == ("test", False)
        labelled = lambda old: replace(old, name="Nightly", archived=True)  # noqa: E731
        change_labels(recorded, EXPERIMENT_ID, labelled)
        store.ingest()
        assert name_and_archived(store) == ("Nightly", True)
        with Store.in_memory(recorded) as rebuilt:
            assert name_and_archived(rebuilt) == ("Nightly", True)
        assert queries.revision(store, EXPERIMENT_ID) == before
        trash.delete(recorded, EXPERIMENT_ID)
        store.ingest()
        assert queries.list_experiments(store).empty and store.query("FROM labels").empty
        trash.restore(recorded, EXPERIMENT_ID)
        store.ingest()
        assert name_and_archived(store) == ("Nightly", True)
        file = find_experiment(recorded, EXPERIMENT_ID).runs[0].labels_file
        file.unlink()
        store.ingest()
        assert name_and_archived(store) == ("test", False)
        assert store.query("FROM labels").empty
        file.write_text('{"tags": "paper"}')
        store.ingest()
        assert name_and_archived(store) == ("test", False)
        (message,) = queries.unreadable(store)["message"]
        assert "labels.json" in message and "tags" in message
        file.write_text('{"name": "mended"}')
        store.ingest()
        assert queries.unreadable(store).empty
        assert name_and_archived(store) == ("mended", False)
