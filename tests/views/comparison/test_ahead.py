"""What the first page needs is there before the first reader is."""

import gc
import os
import subprocess
import sys
from threading import Thread
from typing import Any

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.process import ProcessIdentity
from breakeven.runner.project import PROJECT_ROOT
from breakeven.storage.comparison import comparison
from breakeven.storage.index.store import Store
from breakeven.views.comparison import ahead, charts
from breakeven.views.shared import resources
from breakeven.views.shared.resources import get_store, open_store
from tests.helpers.journals import EXPERIMENT_ID, Recording, record_experiment
from tests.helpers.waiting import awaited


def refuse(*_: object) -> None:
    raise AssertionError("computed while somebody waits for it")


def test_the_newest_comparison_and_its_charts_are_kept_for_the_first_reader(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(folder.runs, experiment_id="20251101-000000-000000-0000")
    record_experiment(folder.runs)
    ahead.prepare()
    monkeypatch.setattr(comparison, "_compare", refuse)
    monkeypatch.setattr(charts, "cards", refuse)
    charts.draw(open_store(), EXPERIMENT_ID)


def test_without_an_experiment_of_ones_own_the_example_that_compare_shows_is_prepared(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was recorded last."""
    record_experiment(resources.EXAMPLES / "one", experiment_id="20240101-000000-000000-0000")
    record_experiment(resources.EXAMPLES / "other")
    made = []
    monkeypatch.setattr(comparison, "compare", lambda _, one: made.append(one))
    monkeypatch.setattr(charts, "draw", lambda *_: None)
    ahead.prepare()
    assert made == [EXPERIMENT_ID]


def test_the_collector_is_on_again_whatever_becomes_of_what_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ahead, "IMPORTED", ["no_such_module"])
    gc.disable()
    with pytest.raises(ModuleNotFoundError):
        ahead.import_all()
    assert gc.isenabled()


def test_pages_wait_until_all_is_imported() -> None:
    asked = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["type"])

    def ask(kind: str) -> None:
        awaited(ahead.Imported(app)({"type": kind}, None, None))

    page = Thread(target=ask, args=["websocket"])
    with ahead._importing:
        page.start()
        ask("http")
        page.join(0.05)
        assert asked == ["http"]
    page.join()
    assert asked == ["http", "websocket"]


def test_beside_an_experiment_that_goes_on_nothing_is_computed_ahead(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(folder.runs)
    me = ProcessIdentity.of(os.getpid())
    Recording(folder.runs, "baseline", experiment_id="20251101-000000-000000-0000").claim(me)
    monkeypatch.setattr(comparison, "_compare", refuse)
    ahead.prepare()


def test_whoever_is_there_already_is_not_kept_waiting_by_what_others_may_want(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(folder.runs)
    get_store()  # as every page does first
    monkeypatch.setattr(comparison, "_compare", refuse)
    ahead.prepare()


def test_a_store_that_cannot_be_opened_is_left_to_the_first_page(folder: DataDir) -> None:
    with Store.open(folder):
        ahead.prepare()


@pytest.mark.heavy
def test_what_the_first_page_needs_not_is_not_imported_before_it() -> None:
    """Each takes as long as a tenth of all that a reader waits for."""
    code = "import sys; from breakeven.views.comparison.ahead import import_all; import_all()"
    code += "; print(*sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True,
                            text=True, check=True)  # fmt: skip
    assert not {"scipy.special", "scipy.stats", "kaleido", "torch"} & set(answer.stdout.split())
