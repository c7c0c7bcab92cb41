"""What the first page needs is there before the first reader is."""

import gc
import os
import subprocess
import sys
import time
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.process import ProcessIdentity
from breakeven.runner.project import PROJECT_ROOT
from breakeven.storage import caches
from breakeven.storage.comparison import comparison
from breakeven.storage.errors import StoreUnusable
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog
from breakeven.views.shared import resources
from breakeven.views.shared.resources import get_store, open_store
from breakeven.views.upkeep import startup
from tests.helpers.journals import EXPERIMENT_ID, Recording, record_experiment
from tests.helpers.waiting import awaited

OTHER = "20251101-000000-000000-0000"


def refuse(*_: object) -> None:
    raise AssertionError("computed while somebody waits for it")


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the server rested, without doing so: the clock is put forward instead. It is theirs
    alone: threads that other tests left behind sleep as ever."""
    found: list[float] = []
    clock = SimpleNamespace(sleep=found.append, monotonic=lambda: time.monotonic() + sum(found))
    monkeypatch.setattr(startup, "time", clock)
    monkeypatch.setattr(resources, "time", clock)
    return found


def test_what_is_over_is_compared_and_stored_for_the_next_process(
    folder: DataDir, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in (OTHER, EXPERIMENT_ID):
        record_experiment(folder.runs, experiment_id=one)
    startup.prepare()
    assert slept == [startup.REST_SECONDS]
    assert catalog(open_store())["known"].all()
    caches.forget()
    monkeypatch.setattr(comparison, "_compare", refuse)
    for one in (OTHER, EXPERIMENT_ID):
        comparison.compare(open_store(), one)


def test_a_reader_puts_it_off(
    folder: DataDir, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(folder.runs)
    get_store()  # as every page does first
    monkeypatch.setattr(comparison, "_compare", refuse)

    def rest(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:  # Somebody comes while it waits, once.
            get_store()
        else:
            raise StoreUnusable("enough was seen")

    monkeypatch.setattr(startup.time, "sleep", rest)
    startup.prepare()
    assert slept == pytest.approx([startup.QUIET_SECONDS] * 2, abs=15.0)


def test_the_collector_is_on_again_whatever_becomes_of_what_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(startup, "IMPORTED", ["no_such_module"])
    gc.disable()
    with pytest.raises(ModuleNotFoundError):
        startup.import_all()
    assert gc.isenabled()


def test_pages_wait_until_all_is_imported() -> None:
    asked = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["type"])

    def ask(kind: str) -> None:
        awaited(startup.Imported(app)({"type": kind}, None, None))

    page = Thread(target=ask, args=["websocket"])
    with startup._importing:
        page.start()
        ask("http")
        page.join(0.05)
        assert asked == ["http"]
    page.join()
    assert asked == ["http", "websocket"]


def test_beside_an_experiment_that_goes_on_nothing_is_computed_ahead(
    folder: DataDir, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(folder.runs)
    me = ProcessIdentity.of(os.getpid())
    Recording(folder.runs, "baseline", experiment_id=OTHER).claim(me)
    monkeypatch.setattr(comparison, "_compare", refuse)
    startup.prepare()
    assert slept == []


def test_a_store_that_cannot_be_opened_is_left_to_the_first_page(folder: DataDir) -> None:
    with Store.open(folder):
        startup.prepare()


FIRST_PAGE = """
import sys
from streamlit.testing.v1 import AppTest
from breakeven.views.upkeep.startup import import_all
import_all()
print(*sys.modules)
import pyarrow
assert pyarrow.array(["a text"]).nbytes
print(pyarrow.default_memory_pool().backend_name)
app = AppTest.from_file("dashboard.py", default_timeout=120).run()
assert not app.exception, app.exception
assert not {"torch", "transformers", "datasets"} & set(sys.modules)
"""


@pytest.mark.heavy
def test_what_the_first_page_needs_not_is_not_imported_before_it_and_torch_not_even_then(
    folder: DataDir,
) -> None:
    """Each takes as long as a tenth of all that a reader waits for."""
    record_experiment(folder.runs)
    answer = subprocess.run([sys.executable, "-c", FIRST_PAGE], cwd=PROJECT_ROOT, text=True,
                            capture_output=True)  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    *modules, allocator = answer.stdout.split()
    assert not {"scipy.special", "scipy.stats", "kaleido", "torch"} & {*modules}
    assert allocator == "system", "which alone shares what it frees with all others"
