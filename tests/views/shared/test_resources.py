"""State that pages share: the machine, and reads of the run folders that take a small part of a
core."""

import time
from concurrent.futures import Future
from dataclasses import replace

import pytest

from breakeven.runner.errors import ProbeFailed
from breakeven.runner.machine import capabilities
from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.index.store import Store
from breakeven.views.shared import resources
from breakeven.views.shared.resources import look_at_machine, process_wide
from tests.helpers.journals import Recording
from tests.helpers.machine import MACHINE, WITH_GPU, keep
from tests.helpers.waiting import PATIENCE_SECONDS

ONE_GPU = ("gpu proc/driver/nvidia/gpus/0000:01:00.0",)


@pytest.fixture
def probed(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> list[DataDir]:
    """The folders of the requests to torch."""
    folders: list[DataDir] = []

    def probe(folder: DataDir) -> Capabilities:
        folders.append(folder)
        if len(folders) > 1:
            raise ProbeFailed("no")
        return replace(WITH_GPU, seen=ONE_GPU)

    data_dir.make()
    monkeypatch.setattr(resources, "probe", probe)
    monkeypatch.setattr(capabilities, "visible_hardware", lambda: ())
    return folders


def failure(answer: Future[Capabilities]) -> str:
    return str(answer.exception(timeout=PATIENCE_SECONDS))


def test_a_running_dashboard_asks_anew_when_a_gpu_was_added_and_in_vain_once(
    data_dir: DataDir, probed: list[DataDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(data_dir, replace(MACHINE, seen=()))
    assert look_at_machine(data_dir).result().seen == () and not probed
    monkeypatch.setattr(capabilities, "visible_hardware", lambda: ONE_GPU)
    machine = look_at_machine(data_dir).result(timeout=PATIENCE_SECONDS)
    assert [device.id for device in machine.devices] == ["cpu", "cuda:0"]
    assert look_at_machine(data_dir).result() == machine and len(probed) == 1
    monkeypatch.setattr(capabilities, "visible_hardware", lambda: (*ONE_GPU, "driver 590.0"))
    assert failure(look_at_machine(data_dir)) == failure(look_at_machine(data_dir)) == "no"
    assert len(probed) == 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Wall time and CPU time, as a test sets them."""
    now = {"monotonic": 1000.0, "thread_time": 0.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["monotonic"])
    monkeypatch.setattr(time, "thread_time", lambda: now["thread_time"])
    return now


def looked(store: Store, clock: dict[str, float], *, after: float) -> bool:
    """Whether a new run is ingested so many seconds later; drawing it takes 0.12 s of a core."""
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
    assert "\npostScriptGC = false\n" in (PROJECT_ROOT / ".streamlit/config.toml").read_text()
