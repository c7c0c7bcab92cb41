"""Pages that poll look at the run folders so seldom that it takes a small part of a core."""

import time
import tomllib
from pathlib import Path

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.index.store import Store
from breakeven.views.shared import resources
from breakeven.views.shared.resources import process_wide
from tests.helpers.journals import Recording

CONFIG = tomllib.loads((Path(__file__).parents[3] / ".streamlit" / "config.toml").read_text())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The time of day and the CPU time, as a test sets them."""
    now = {"monotonic": 1000.0, "thread_time": 0.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["monotonic"])
    monkeypatch.setattr(time, "thread_time", lambda: now["thread_time"])
    return now


def looked(store: Store, clock: dict[str, float], *, after: float) -> bool:
    """Whether a new run is taken in so many seconds later; to draw it takes 0.12 s of a core."""
    clock["monotonic"] += after
    number = sum(1 for _ in store.data_dir.run_dirs())
    Recording(store.data_dir.runs, "baseline", experiment_id=f"20261122-000000-000000-{number:04}")
    before = store.generation
    with resources.keeping_up(store):
        clock["thread_time"] += 0.12
    return store.generation > before


def test_what_takes_long_to_draw_is_drawn_as_seldom_as_its_share_of_a_core_allows(
    data_dir: DataDir, clock: dict[str, float]
) -> None:
    with Store.open(data_dir) as store:
        process_wide().due.pop(data_dir.path, None)
        assert looked(store, clock, after=0.0)
        # 0.12 s are 3 % of 4 s.
        assert not looked(store, clock, after=3.9)
        assert looked(store, clock, after=0.2)


def test_streamlit_does_not_look_through_all_objects_after_each_run_of_a_page() -> None:
    assert CONFIG["runner"]["postScriptGC"] is False
