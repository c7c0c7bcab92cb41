"""What a server does when it starts: everything that the first page needs is ready before a reader
comes."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage import result_caches
from breakeven.storage.comparison import comparison
from breakeven.storage.errors import StoreUnusable
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog
from breakeven.views.shared import resources
from breakeven.views.shared.resources import get_store, open_store
from breakeven.views.upkeep import startup
from tests.helpers.journals import EXPERIMENT_ID, Recording, record_experiment

OTHER = "20251101-000000-000000-0000"


def printed(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT_ROOT)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def refuse(*_: object) -> None:
    raise AssertionError("computed while somebody waits for it")


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The server's rests; the clock is put forward instead of sleeping. Other threads sleep as
    usual."""
    rests: list[float] = []
    clock = SimpleNamespace(sleep=rests.append, monotonic=lambda: time.monotonic() + sum(rests))
    monkeypatch.setattr(startup, "time", clock)
    monkeypatch.setattr(resources, "time", clock)
    return rests


def test_what_is_over_is_compared_and_stored_for_the_next_process(
    folder: DataDir, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for experiment_id in (OTHER, EXPERIMENT_ID):
        record_experiment(folder.runs, experiment_id=experiment_id)
    startup.compare_ahead()
    assert slept == [startup.REST_SECONDS]
    assert catalog(open_store())["known"].all()
    result_caches.forget()
    monkeypatch.setattr(comparison, "_compare", refuse)
    for experiment_id in (OTHER, EXPERIMENT_ID):
        comparison.compare(open_store(), experiment_id)


def test_a_reader_puts_it_off(folder: DataDir, slept: list[float], monkeypatch: pytest.MonkeyPatch):
    record_experiment(folder.runs)
    get_store()  # as every page does first
    monkeypatch.setattr(comparison, "_compare", refuse)

    def rest(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:  # A reader comes once while it waits.
            get_store()
        else:
            raise StoreUnusable("enough was seen")

    monkeypatch.setattr(startup.time, "sleep", rest)
    startup.compare_ahead()
    assert slept == pytest.approx([startup.QUIET_SECONDS] * 2, abs=15.0)


def test_beside_an_experiment_that_goes_on_nothing_is_computed_ahead(
    folder: DataDir, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(folder.runs)
    me = ProcessIdentity.from_pid(os.getpid())
    Recording(folder.runs, "baseline", experiment_id=OTHER).claim(me)
    monkeypatch.setattr(comparison, "_compare", refuse)
    startup.compare_ahead()
    assert slept == []


def test_a_store_that_cannot_be_opened_is_left_to_the_first_page(folder: DataDir) -> None:
    with Store.open(folder):
        startup.compare_ahead()


FIRST_PAGE = """
import sys
from streamlit.testing.v1 import AppTest
from breakeven.views.upkeep.startup import import_pages
import_pages()
print(*sys.modules)
app = AppTest.from_file("dashboard.py", default_timeout=120).run()
assert not app.exception, app.exception
assert not {"torch", "transformers", "datasets"} & set(sys.modules)
"""


@pytest.mark.heavy
def test_what_the_first_page_needs_not_is_not_imported_before_it_and_torch_not_even_then(
    folder: DataDir,
) -> None:
    """Importing each of them would take a tenth of the time for which a reader waits."""
    record_experiment(folder.runs)
    modules = printed(FIRST_PAGE).split()
    assert not {"scipy.special", "scipy.stats", "kaleido", "torch"} & {*modules}
