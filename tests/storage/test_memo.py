"""What was asked of an experiment is remembered until something new of it arrives."""

import gc
import math
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.states import RunState
from breakeven.storage import caches, queries
from breakeven.storage.comparison.evidence import load_evidence
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording, record_experiment

OTHER = "20261122-000000-000000-aaaa"


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> None:
    caches.forget()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A finished experiment, and of another one two steps; the second has no number for a loss."""
    data_dir = DataDir(tmp_path_factory.mktemp("shared"))
    record_experiment(data_dir.runs)
    Recording(data_dir.runs, "baseline", experiment_id=OTHER).block([0.1] * 2, [1.0, math.nan])
    with Store.open(data_dir) as store:
        store.ingest()
        yield store


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The queries that were asked for data frames."""
    found: list[str] = []
    ask = Store.columns

    def listen(store: Store, sql: str, *parameters: object) -> dict[str, Any]:
        found.append(sql)
        return ask(store, sql, *parameters)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "columns", listen)
    yield found


def test_what_did_not_change_is_not_asked_again(data_dir: DataDir, asked: list[str]) -> None:
    record_experiment(data_dir.runs)
    with Store.open(data_dir) as store:
        store.ingest()
        first = queries.losses(store, EXPERIMENT_ID)
        asked.clear()
        store.ingest()
        pd.testing.assert_frame_equal(queries.losses(store, EXPERIMENT_ID), first)
        assert asked == []
        assert len(queries.losses(store, EXPERIMENT_ID, max_points=10)) < len(first)
        assert asked == []  # Thinned from the same.
        queries.blocks(store, EXPERIMENT_ID)
        assert asked


def test_another_experiment_changes_nothing(data_dir: DataDir, asked: list[str]) -> None:
    record_experiment(data_dir.runs)
    with Store.open(data_dir) as store:
        store.ingest()
        queries.losses(store, EXPERIMENT_ID)
        Recording(data_dir.runs, "baseline", experiment_id=OTHER).block([0.1] * 2, [1.0] * 2)
        store.ingest()
        asked.clear()
        queries.losses(store, EXPERIMENT_ID)
        assert asked == []
        assert len(queries.losses(store, OTHER)) == 2


def test_who_changes_an_answer_changes_it_for_nobody_else(shared: Store) -> None:
    frame = queries.step_times(shared, EXPERIMENT_ID)
    frame["loss"] = 7.0
    frame.loc[0, "seconds"] = 9.0
    frame.pop("label")
    again = queries.step_times(shared, EXPERIMENT_ID)
    assert again["loss"].max() < 3.0
    assert again["seconds"].max() < 9.0
    assert "label" in again


def test_what_an_experiment_lacks_is_not_asked_for(data_dir: DataDir, asked: list[str]) -> None:
    record_experiment(data_dir.runs)
    run = Recording(data_dir.runs, "baseline", experiment_id=OTHER).block([0.1] * 2, [1.0] * 2)
    with Store.open(data_dir) as store:
        store.ingest()
        asks = (queries.stops, queries.resumptions, queries.compile_metrics, queries.predictions)
        first = [ask(store, EXPERIMENT_ID) for ask in asks]
        queries.blocks(store, OTHER)
        asked.clear()
        for ask, before in zip(asks, first, strict=True):
            pd.testing.assert_frame_equal(ask(store, OTHER), before.iloc[:0])
        assert [sql for sql in asked if "compile_metrics" not in sql] == []  # The first one has it.
        run.stop("patience")
        store.ingest()
        assert queries.stops(store, OTHER)["reason"].tolist() == ["patience"]
        assert queries.stops(store, EXPERIMENT_ID).empty


def test_the_standing_is_asked_once(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Recording(data_dir.runs, "baseline").claim().start().block([0.1] * 10, [1.0] * 10)
    told: list[str] = []
    ask = Store.rows

    def listen(store: Store, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        told.append(sql)
        return ask(store, sql, *parameters)

    monkeypatch.setattr(Store, "rows", listen)
    with Store.open(data_dir) as store:
        store.ingest()
        before = caches.standing(store, EXPERIMENT_ID)
        assert before.states == {"lost"} and before.revision == queries.revision(
            store, EXPERIMENT_ID
        )
        assert sum("FROM progress" in sql for sql in told) == 1
        run.end(RunState.FINISHED)
        store.ingest()
        after = caches.standing(store, EXPERIMENT_ID)
        assert after.states == {"finished"} and after.revision > before.revision
        assert caches.standing(store, OTHER).states == frozenset()


def test_readers_of_the_same_have_it_asked_once(shared: Store, asked: list[str]) -> None:
    with ThreadPoolExecutor(5) as readers:
        found = [readers.submit(queries.step_times, shared, EXPERIMENT_ID) for _ in range(20)]
        assert {len(one.result()) for one in found} == {120}
        assert sum("judged_steps" in sql for sql in asked) == 1


def test_old_answers_go(shared: Store, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "MAX_BYTES", 20_000)
    queries.step_times(shared, EXPERIMENT_ID)  # 120 rows of 11 columns: 10 kB
    queries.losses(shared, EXPERIMENT_ID)
    queries.step_settings(shared, EXPERIMENT_ID)
    queries.step_times(shared, EXPERIMENT_ID)
    asked.clear()
    queries.step_times(shared, EXPERIMENT_ID)
    assert asked == []
    monkeypatch.setattr(caches, "MAX_BYTES", 1)
    queries.blocks(shared, EXPERIMENT_ID)
    queries.step_times(shared, EXPERIMENT_ID)
    assert len(asked) > 1


def test_big_answers_stay(shared: Store, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The evidence is made of a dozen other answers, each of them newer than the question."""
    monkeypatch.setattr(caches, "MAX_BYTES", 1)
    load_evidence(shared, EXPERIMENT_ID)
    asked.clear()
    load_evidence(shared, EXPERIMENT_ID)
    assert asked == []


def test_asking_often_leaves_no_references(shared: Store) -> None:
    """Pandas notes with a column who looked at it, until there are 500 of them."""

    def notes_after(asks: int) -> int:
        for _ in range(asks):
            _, runs = load_evidence(shared, EXPERIMENT_ID)
            assert all(run.steps["seconds"].sum() > 0 for run in runs)
            assert queries.blocks(shared, EXPERIMENT_ID)["seconds"].sum() > 0
            assert queries.stops(shared, EXPERIMENT_ID)["reason"].empty
        return num_references()

    first = load_evidence(shared, EXPERIMENT_ID)
    most = notes_after(caches.MAX_ANSWERS - 1)
    assert load_evidence(shared, EXPERIMENT_ID) is not first
    del first
    assert notes_after(20 * caches.MAX_ANSWERS) < most + 100


def num_references() -> int:
    gc.collect()
    return sum(type(one) is weakref.ref for one in gc.get_objects())


@pytest.mark.parametrize(("num_frames", "num_rows"), [(300, 3), (3, 20_000)])
def test_counted_sizes_of_frames_are_real(shared: Store, num_frames: int, num_rows: int) -> None:
    """A number of 8 bytes, one of 1 and a text of 10 in each row, whose offset takes 8."""

    @caches.memo(caches.revision)
    def ask(store: Store, experiment_id: str, number: int) -> pd.DataFrame:
        steps = np.arange(num_rows)
        texts = pd.Series([f"{number:3}{step:7}" for step in steps], dtype="str")
        return pd.DataFrame({"step": steps, "steady": steps % 2 == 0, "text": texts})

    taken = taken_by(lambda: [ask(shared, EXPERIMENT_ID, one) for one in range(num_frames)])
    size = counted()
    assert num_frames * num_rows * (8 + 1 + 10 + 8) < size
    assert taken / 1.3 < size < taken * 1.3


def taken_by(act: Callable[[], object]) -> int:
    """Bytes that are held afterwards and were not before."""
    gc.collect()
    tracemalloc.start()
    try:
        act()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def counted() -> int:
    return sum(entry.size for entry in caches._memory._entries.values())


def test_a_frame_in_a_record_counts_as_fifteen_kilobytes_and_its_numbers() -> None:
    frame = pd.DataFrame({"loss": [1.0] * 100, "step": range(100)})
    assert caches._size([frame, frame["step"]]) == 15_000 + 2 * 800 + 15_000 + 800


def test_texts_beside_many_rows_take_a_byte_each(shared: Store) -> None:
    for ask in (queries.step_times, queries.losses, queries.blocks, queries.step_settings):
        frame = ask(shared, EXPERIMENT_ID)
        told = frame.drop_duplicates("run_id")
        ids = [f"{EXPERIMENT_ID}.{label}" for label in told["label"]]
        assert told["run_id"].tolist() == ids and len(ids) == 3
        texts = frame[["run_id", "label", "role"]]
        of_row = [texts[name].array.codes.nbytes / len(texts) for name in texts]
        assert of_row == [1, 1, 1]
