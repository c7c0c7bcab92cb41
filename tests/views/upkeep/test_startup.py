"""What a server does when it starts: what the first page needs is there before the first reader
is, and memory goes back."""

import gc
import os
import platform
import subprocess
import sys
import time
from contextlib import nullcontext
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.components.v2.component_manager import BidiComponentManager
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileStorageError
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage

from breakeven import serve
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


def printed(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT_ROOT)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


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


def test_a_reader_puts_it_off(folder: DataDir, slept: list[float], monkeypatch: pytest.MonkeyPatch):
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
    *modules, allocator = printed(FIRST_PAGE).split()
    assert not {"scipy.special", "scipy.stats", "kaleido", "torch"} & {*modules}
    assert allocator == "system", "which alone shares what it frees with all others"


PARTS = """
import ctypes, os, sys, threading
if "shared" in sys.argv:
    from breakeven.views.upkeep.startup import share_arenas
    share_arenas()
meet = threading.Barrier(8)
def work():
    meet.wait()
    held = [bytes(600 + size) for size in range(5000)]
    meet.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
[one.start() for one in threads]
[one.join() for one in threads]
library = ctypes.CDLL(None)
library.fdopen.restype = ctypes.c_void_p
library.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
library.fflush.argtypes = [ctypes.c_void_p]
out = library.fdopen(1, b"w")
library.malloc_info(0, out)
library.fflush(out)
"""


FREED = """
from pathlib import Path
import os
from breakeven.views.upkeep.startup import give_back

def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

held = [bytes(5000) for _ in range(20_000)]
last = held.pop()  # what lies below it stays
before = megabytes()
held.clear()
kept = before - megabytes()
give_back()
print(kept, before - megabytes())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries divide otherwise")
@pytest.mark.heavy
def test_runs_of_pages_share_the_memory_that_they_free_and_what_lies_below_some_is_given_back():
    """100 MB, of which the very last piece is in use."""
    assert printed(PARTS, "shared").count("<heap nr=") < printed(PARTS).count("<heap nr=")
    by_itself, when_told = map(float, printed(FREED).split())
    assert by_itself < 10 and when_told > 90


def test_a_server_does_not_look_for_components_in_installed_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    scan = "scan_component_manifests"
    monkeypatch.setattr(manifest_scanner, scan, lambda: looked.append("all packages") or [])
    look = "discover_and_register_components"  # What Streamlit's runtime calls when it starts.
    # To be as it was when the test is over.
    monkeypatch.setattr(BidiComponentManager, look, getattr(BidiComponentManager, look))
    BidiComponentManager().discover_and_register_components()
    assert looked == ["all packages"]
    serve.offer_no_components_of_packages()
    BidiComponentManager().discover_and_register_components()
    assert looked == ["all packages"]


@pytest.mark.parametrize(("kept", "is_there"), [(1000.0, True), (0.0, False)])
def test_a_made_file_waits_for_its_browser_while_pages_are_drawn_and_goes_after_some_seconds(
    monkeypatch: pytest.MonkeyPatch, kept: float, is_there: bool
) -> None:
    monkeypatch.setattr(serve, "KEPT_SECONDS", kept)
    remove = MediaFileManager.remove_orphaned_files
    monkeypatch.setattr(MediaFileManager, "remove_orphaned_files", remove)
    serve.keep_files_for_browsers()
    storage = MemoryMediaFileStorage("/media")
    manager = MediaFileManager(storage)
    button = manager.add_deferred(lambda: b"step,loss", "text/csv", "1.0", file_name="race.csv")
    url = manager.execute_deferred(button)
    for _ in range(3):  # Scripts of pages end.
        manager.remove_orphaned_files()
    with nullcontext() if is_there else pytest.raises(MediaFileStorageError):
        storage.get_file(url.rpartition("/")[2])
