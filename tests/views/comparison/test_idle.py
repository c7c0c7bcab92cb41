"""What nobody opened yet is compared while a server has nothing else to do."""

import os
import time
from types import SimpleNamespace

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.process import ProcessIdentity
from breakeven.storage.comparison import comparison
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog
from breakeven.views.comparison import charts, idle
from breakeven.views.shared import resources
from breakeven.views.shared.resources import get_store, open_store
from tests.helpers.journals import EXPERIMENT_ID, Recording, record_experiment

OTHER = "20251101-000000-000000-0000"


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it rested, without doing so: the clock is put forward instead. It is theirs alone:
    threads that other tests left behind sleep as ever."""
    found: list[float] = []
    clock = SimpleNamespace(sleep=found.append, monotonic=lambda: time.monotonic() + sum(found))
    monkeypatch.setattr(idle, "time", clock)
    monkeypatch.setattr(resources, "time", clock)
    return found


def test_all_are_compared_and_kept_for_the_next_process(
    folder: DataDir, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in (OTHER, EXPERIMENT_ID):
        record_experiment(folder.runs, experiment_id=one)
    open_store().ingest_all()
    idle.compare_rest()
    assert slept[0] == pytest.approx(idle.QUIET_SECONDS, abs=1.0)
    assert slept[1:] == [idle.REST_SECONDS] * 2
    assert catalog(open_store())["known"].all()
    monkeypatch.setattr(comparison, "_compare", lambda *_: pytest.fail("computed again"))
    monkeypatch.setattr(charts, "cards", lambda *_: pytest.fail("drawn again"))
    comparison._kept.clear()
    charts._kept.clear()
    for one in (OTHER, EXPERIMENT_ID):
        charts.draw(open_store(), one)


def test_a_reader_puts_it_off(
    folder: DataDir, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(folder.runs)
    visits = [get_store]
    compared: list[float] = []
    whole = idle.compare_next

    def rest(seconds: float) -> None:
        slept.append(seconds)
        if visits:  # Somebody comes while it waits, once.
            visits.pop()()

    def listen(store: Store, tried: idle.Tried) -> bool:
        compared.append(sum(slept))
        return whole(store, tried)

    monkeypatch.setattr(idle.time, "sleep", rest)
    monkeypatch.setattr(idle, "compare_next", listen)
    idle.compare_rest()
    assert compared[0] == pytest.approx(2 * idle.QUIET_SECONDS, abs=1.0)


def test_beside_a_run_nothing_is_compared(folder: DataDir, slept: list[float]) -> None:
    record_experiment(folder.runs, experiment_id=OTHER)
    Recording(folder.runs, "baseline").claim(ProcessIdentity.of(os.getpid())).start()
    idle.compare_rest()
    assert slept == []
    known = catalog(open_store()).set_index("experiment_id")["known"]
    assert not known[OTHER]
