"""Answers in memory and in the database: computed once, and believed only as long as they hold."""

import gc
import math
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.storage import queries, result_caches
from breakeven.storage.comparison import comparison
from breakeven.storage.compiling import ladder
from breakeven.storage.errors import StoreUnusable
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording, record_experiment

OTHER = "20261122-000000-000000-aaaa"


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> None:
    result_caches.forget()


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
def queries_sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries that were asked for data frames."""
    sent: list[str] = []
    ask = Store.columns

    def listen(store: Store, sql: str, *parameters: object) -> dict[str, Any]:
        sent.append(sql)
        return ask(store, sql, *parameters)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "columns", listen)
    return sent


def test_what_did_not_change_is_not_asked_again(data_dir: DataDir, queries_sent: list[str]) -> None:
    record_experiment(data_dir.runs)
    with Store.open(data_dir) as store:
        store.ingest()
        first = queries.losses(store, EXPERIMENT_ID)
        queries_sent.clear()
        Recording(data_dir.runs, "baseline", experiment_id=OTHER).block([0.1] * 2, [1.0] * 2)
        store.ingest()
        pd.testing.assert_frame_equal(queries.losses(store, EXPERIMENT_ID), first)
        assert len(queries.losses(store, EXPERIMENT_ID, max_points=10)) < len(first)
        assert queries_sent == [], (
            "another experiment changes nothing, and fewer points are of the same"
        )
        assert len(queries.losses(store, OTHER)) == 2
        queries.blocks(store, EXPERIMENT_ID)
        assert len(queries_sent) > 1


def test_who_changes_an_answer_changes_it_for_nobody_else(shared: Store) -> None:
    frame = queries.step_times(shared, EXPERIMENT_ID)
    frame["loss"] = 7.0
    frame.loc[0, "seconds"] = 9.0
    frame.pop("label")
    again = queries.step_times(shared, EXPERIMENT_ID)
    assert again["loss"].max() < 3.0
    assert again["seconds"].max() < 9.0
    assert "label" in again


def test_what_an_experiment_lacks_is_not_asked_for(
    data_dir: DataDir, queries_sent: list[str]
) -> None:
    record_experiment(data_dir.runs)
    run = Recording(data_dir.runs, "baseline", experiment_id=OTHER).block([0.1] * 2, [1.0] * 2)
    with Store.open(data_dir) as store:
        store.ingest()
        asks = (queries.stops, queries.resumptions, queries.compile_metrics, queries.predictions)
        first = [ask(store, EXPERIMENT_ID) for ask in asks]
        queries.blocks(store, OTHER)
        queries_sent.clear()
        for ask, before in zip(asks, first, strict=True):
            pd.testing.assert_frame_equal(ask(store, OTHER), before.iloc[:0])
        assert [
            sql for sql in queries_sent if "compile_metrics" not in sql
        ] == []  # The first one has it.
        run.stop("patience")
        store.ingest()
        assert queries.stops(store, OTHER)["reason"].tolist() == ["patience"]
        assert queries.stops(store, EXPERIMENT_ID).empty


def test_the_standing_is_asked_once(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Recording(data_dir.runs, "baseline").claim().start().block([0.1] * 10, [1.0] * 10)
    sent: list[str] = []
    ask = Store.rows

    def listen(store: Store, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        sent.append(sql)
        return ask(store, sql, *parameters)

    monkeypatch.setattr(Store, "rows", listen)
    with Store.open(data_dir) as store:
        store.ingest()
        before = result_caches.snapshot_of(store, EXPERIMENT_ID)
        assert before.states == {"lost"}
        assert before.revision == queries.revision(store, EXPERIMENT_ID)
        assert sum("FROM progress" in sql for sql in sent) == 1
        run.end(RunState.FINISHED)
        store.ingest()
        after = result_caches.snapshot_of(store, EXPERIMENT_ID)
        assert after.states == {"finished"} and after.revision > before.revision
        assert result_caches.snapshot_of(store, OTHER).states == frozenset()


def test_readers_of_the_same_have_it_asked_once(shared: Store, queries_sent: list[str]) -> None:
    with ThreadPoolExecutor(5) as readers:
        answers = [readers.submit(queries.step_times, shared, EXPERIMENT_ID) for _ in range(20)]
        assert {len(answer.result()) for answer in answers} == {120}
        assert sum("judged_steps" in sql for sql in queries_sent) == 1


def test_old_answers_go(
    shared: Store, queries_sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not one that is made of a dozen other answers, each of them newer than the question."""
    monkeypatch.setattr(result_caches, "MAX_BYTES", 20_000)
    queries.step_times(shared, EXPERIMENT_ID)  # 120 rows of 11 columns: 10 kB
    queries.losses(shared, EXPERIMENT_ID)
    queries.step_settings(shared, EXPERIMENT_ID)
    queries.step_times(shared, EXPERIMENT_ID)
    queries_sent.clear()
    queries.step_times(shared, EXPERIMENT_ID)
    assert queries_sent == []
    monkeypatch.setattr(result_caches, "MAX_BYTES", 1)
    queries.blocks(shared, EXPERIMENT_ID)
    queries.step_times(shared, EXPERIMENT_ID)
    assert len(queries_sent) > 1
    comparison.compare(shared, EXPERIMENT_ID)
    queries_sent.clear()
    comparison.compare(shared, EXPERIMENT_ID)
    assert queries_sent == []


def test_functions_of_one_name_have_answers_of_their_own(shared: Store) -> None:
    def named(number: int) -> Callable[[Store], int]:
        @result_caches.memo(result_caches.always)
        def answer(store: Store) -> int:
            return number

        return answer

    first, second = named(1), named(2)
    assert [first(shared), second(shared), first(shared)] == [1, 2, 1]


def test_a_store_has_no_answers_of_one_before_it(data_dir: DataDir) -> None:
    """Even where the next one takes the place of the closed one in memory."""
    store_ids: list[int] = []

    @result_caches.memo(result_caches.always)
    def ask(store: Store) -> None:
        store_ids.append(store.id)

    for _ in range(3):
        with Store.in_memory(data_dir) as store:
            ask(store)
            ask(store)
    assert len(store_ids) == 3


def test_an_unchanged_record_is_computed_once(shared: Store) -> None:
    first = comparison.compare(shared, EXPERIMENT_ID)
    assert all(comparison.compare(shared, EXPERIMENT_ID) is first for _ in range(200))


@pytest.mark.parametrize(("num_frames", "num_rows"), [(300, 3), (3, 20_000)])
def test_counted_sizes_of_frames_are_real(shared: Store, num_frames: int, num_rows: int) -> None:
    """A number of 8 bytes, one of 1 and a text of 10 in each row, whose offset takes 8."""

    @result_caches.memo(result_caches.revision)
    def ask(store: Store, experiment_id: str, number: int) -> pd.DataFrame:
        steps = np.arange(num_rows)
        texts = pd.Series([f"{number:3}{step:7}" for step in steps], dtype="str")
        return pd.DataFrame({"step": steps, "steady": steps % 2 == 0, "text": texts})

    gc.collect()
    tracemalloc.start()
    try:
        for frame_number in range(num_frames):
            ask(shared, EXPERIMENT_ID, frame_number)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    size = sum(entry.size for entry in result_caches._memory._entries.values())
    assert num_frames * num_rows * (8 + 1 + 10 + 8) < size
    assert taken / 1.3 < size < taken * 1.3


def test_texts_beside_many_rows_take_a_byte_each(shared: Store) -> None:
    for ask in (queries.step_times, queries.losses, queries.blocks, queries.step_settings):
        frame = ask(shared, EXPERIMENT_ID)
        runs = frame.drop_duplicates("run_id")
        assert runs["run_id"].tolist() == [f"{EXPERIMENT_ID}.{label}" for label in runs["label"]]
        for name in ("run_id", "label", "role"):
            assert frame[name].array.codes.nbytes == len(frame)


@pytest.fixture
def compared(data_dir: DataDir, computed: list[str]) -> DataDir:
    """A finished experiment that a process compared, which has ended since."""
    record_experiment(data_dir.runs)
    compare_anew(data_dir)
    assert computed == [EXPERIMENT_ID]
    computed.clear()
    return data_dir


def compare_anew(
    data_dir: DataDir, change: Callable[[Store], object] = lambda _: None
) -> comparison.Comparison:
    """As the next process of the dashboard does, once something was changed."""
    with Store.open(data_dir) as store:
        change(store)
        store.ingest_all()
        return comparison.compare(store, EXPERIMENT_ID)


@pytest.mark.heavy
def test_the_next_process_reads_what_was_computed(compared: DataDir, computed: list[str]) -> None:
    with Store.open(compared) as store:
        store.ingest_all()
        computed_before = comparison.compare(store, EXPERIMENT_ID)
    assert computed == []
    with Store.in_memory(compared) as store:
        again = comparison.compare(store, EXPERIMENT_ID)
        assert computed == [EXPERIMENT_ID]  # A database in memory holds what it computed itself.
        assert repr(computed_before) == repr(again)
        assert len(again.band) > 0 and again.band.equals(computed_before.band)
        assert again.round_speedups.equals(computed_before.round_speedups)
        assert computed_before.table().equals(again.table())


@pytest.mark.heavy
def test_other_code_computes_anew_and_the_ladder_is_read_too(
    compared: DataDir, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_caches, "code_version", lambda: "of tomorrow")
    compare_anew(compared)
    assert computed == [EXPERIMENT_ID]
    first: list[object] = []
    compare_anew(compared, lambda store: first.append(ladder.find_ladder(store, EXPERIMENT_ID)))
    monkeypatch.setattr(ladder, "on_rungs", lambda *_: pytest.fail("computed again"))
    compare_anew(compared, lambda store: first.append(ladder.find_ladder(store, EXPERIMENT_ID)))
    assert first[0] == first[1] and computed == [EXPERIMENT_ID]


@pytest.mark.heavy
def test_a_later_run_counts(data_dir: DataDir, computed: list[str], tmp_path: Path) -> None:
    """As of runs that are imported one after the other."""
    record_experiment(data_dir.runs)
    (later,) = data_dir.runs.glob("*.inductor")
    later.rename(tmp_path / later.name)
    assert [result.label for result in compare_anew(data_dir).results] == ["baseline", "control"]
    (tmp_path / later.name).rename(later)
    assert "inductor" in [result.label for result in compare_anew(data_dir).results]
    assert computed == [EXPERIMENT_ID] * 2


@pytest.mark.heavy
def test_what_cannot_be_read_is_computed_anew(compared: DataDir, computed: list[str]) -> None:
    for number, content in enumerate(("content[:-2]", "'[]'", '\'{"os.system":["true"]}\''), 1):
        query = f"UPDATE results SET content = {content}"
        compare_anew(compared, lambda store, query=query: store.write(query))
        assert computed == [EXPERIMENT_ID] * number, content


@pytest.mark.heavy
def test_what_a_full_disk_has_no_room_for_is_computed_once_for_this_process(
    data_dir: DataDir, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(data_dir.runs)

    def full(*_: object) -> None:
        raise StoreUnusable("no space left")

    with Store.open(data_dir) as store:
        store.ingest_all()
        monkeypatch.setattr(store, "write", full)
        comparison.compare(store, EXPERIMENT_ID)
        result_caches.forget()
        comparison.compare(store, EXPERIMENT_ID)
    assert computed == [EXPERIMENT_ID]


@dataclass(frozen=True, kw_only=True)
class Told:
    number: float
    inner: object = None


@pytest.mark.parametrize(
    "value",
    [
        Told(number=math.inf, inner=(1, [2.5, None], {"a": True, 3: ()})),
        [math.nan, -0.0, 1e-320, 2**70, "ü\n\ud800", np.float64(0.1), np.int64(3), np.bool_(True)],
        {"tuple": [1], "Told": {"dict": {}}},
        RunState.FAILED,
        pd.DataFrame({"round": np.array([1, 2], np.int32), "seconds": [0.1, math.nan]}),
        pd.DataFrame({"round": []}, dtype=float),
    ],
)
def test_a_result_comes_back_as_it_was(value: object) -> None:
    classes = (Told, RunState)
    assert repr(result_caches.read(result_caches.written(value, classes), classes)) == repr(value)


def test_only_named_classes_are_written_and_made() -> None:
    for value in ([Told(number=1.0)], {1, 2}):
        with pytest.raises(result_caches.NotStorable):
            result_caches.written(value, ())
    for text in ('{"Told":[1,2]}', '{"os.system":["true"]}', '{"a":1,"b":2}', "{}", "x"):
        with pytest.raises((ValueError, TypeError)):
            result_caches.read(text, ())
