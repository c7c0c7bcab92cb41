"""What an experiment came to is computed once, and believed only as long as it holds."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from breakeven.runner.folders import library
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.states import RunState
from breakeven.storage import caches
from breakeven.storage.caches import NotStorable, read, written
from breakeven.storage.comparison import comparison
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.compiling import ladder
from breakeven.storage.errors import StoreUnusable
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog
from tests.helpers.journals import EXPERIMENT_ID, Recording, record_experiment

pytestmark = pytest.mark.heavy


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
) -> Comparison:
    """As the next process of the dashboard does, once something was changed."""
    with Store.open(data_dir) as store:
        change(store)
        store.ingest_all()
        return comparison.compare(store, EXPERIMENT_ID)


def test_the_next_process_reads_what_was_computed(compared: DataDir, computed: list[str]) -> None:
    with Store.open(compared) as store:
        store.ingest_all()
        found = comparison.compare(store, EXPERIMENT_ID)
        band = found.loss_band
    assert computed == []
    with Store.in_memory(compared) as store:
        again = comparison.compare(store, EXPERIMENT_ID)
        assert computed == [EXPERIMENT_ID]  # A database in memory holds what it computed itself.
        assert repr(found) == repr(again)
        assert len(again.loss_band) > 0
        assert band.equals(again.loss_band)
        assert found.table().equals(again.table())


def test_other_code_computes_anew_and_the_ladder_is_read_too(
    compared: DataDir, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "code_version", lambda: "of tomorrow")
    compare_anew(compared)
    assert computed == [EXPERIMENT_ID]
    first: list[object] = []
    compare_anew(compared, lambda store: first.append(ladder.find_ladder(store, EXPERIMENT_ID)))
    monkeypatch.setattr(ladder, "on_rungs", lambda *_: pytest.fail("computed again"))
    compare_anew(compared, lambda store: first.append(ladder.find_ladder(store, EXPERIMENT_ID)))
    assert first[0] == first[1] and computed == [EXPERIMENT_ID]


def test_a_run_that_was_resumed_is_compared_anew(data_dir: DataDir, computed: list[str]) -> None:
    Recording(data_dir.runs, "control").claim().start().block([0.2] * 10, [2.0] * 10).end()
    Recording(data_dir.runs, "baseline").claim().start().block([0.2] * 10, [2.0] * 10).end()
    run = Recording(data_dir.runs, "inductor").claim().start().block([0.1] * 10, [2.0] * 10)
    run.end(RunState.FAILED)
    assert [one.state for one in compare_anew(data_dir).results if one.role == "backend"] == [
        "failed"
    ]
    run.run.exit_file.unlink()
    run.log = type(run.log)(run.run.events_file)
    run.resume(10).block([0.1] * 10, [1.0] * 10).end()
    found = compare_anew(data_dir).result_of("inductor")
    assert (found.state, found.measured.num_steps) == ("finished", 20)
    assert computed == [EXPERIMENT_ID] * 2


def test_a_later_run_counts(data_dir: DataDir, computed: list[str], tmp_path: Path) -> None:
    """As of runs that are imported one after the other."""
    record_experiment(data_dir.runs)
    (later,) = data_dir.runs.glob("*.inductor")
    later.rename(tmp_path / later.name)
    assert [one.label for one in compare_anew(data_dir).results] == ["baseline", "control"]
    (tmp_path / later.name).rename(later)
    assert "inductor" in [one.label for one in compare_anew(data_dir).results]
    assert computed == [EXPERIMENT_ID] * 2


def test_labels_leave_it_as_it_is_and_show(compared: DataDir, computed: list[str]) -> None:
    library.change_labels(compared, EXPERIMENT_ID, lambda old: replace(old, name="Nightly"))
    compare_anew(compared)
    assert computed == []
    with Store.open(compared) as store:
        store.ingest_all()
        assert list(catalog(store)["name"]) == ["Nightly"]


def test_what_cannot_be_read_is_computed_anew(compared: DataDir, computed: list[str]) -> None:
    for number, content in enumerate(("content[:-2]", "'[]'", '\'{"os.system":["true"]}\''), 1):
        query = f"UPDATE results SET content = {content}"
        compare_anew(compared, lambda store, query=query: store.write(query))
        assert computed == [EXPERIMENT_ID] * number, content


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
        caches.forget()
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
    ],
)
def test_a_result_comes_back_as_it_was(value: object) -> None:
    assert repr(read(written(value, (Told, RunState)), (Told, RunState))) == repr(value)


def test_only_named_classes_are_written_and_made() -> None:
    with pytest.raises(NotStorable):
        written([Told(number=1.0)], ())
    with pytest.raises(NotStorable):
        written({1, 2}, ())
    for text in ('{"Told":[1,2]}', '{"os.system":["true"]}', '{"a":1,"b":2}', "{}", "x"):
        with pytest.raises((ValueError, TypeError)):
            read(text, ())
