"""Fixtures shared by all tests, and `--fast`: those that need nothing but Python.

With `--fast` no test trains with torch, starts a process, drives a browser, opens a whole page or
sleeps: files that say so are not even imported, and a test that does it all the same fails.
"""

import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from tests.helpers.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

# Two threads on two cores make an Inductor step ten times slower, and tests share the machine.
os.environ["OMP_NUM_THREADS"] = "1"
# Whatever the tests start must never wait for a network.
os.environ["HF_HUB_OFFLINE"] = "1"
# What commands remember of their account is not the account's of whoever runs the tests.
STATE = tempfile.TemporaryDirectory(prefix="breakeven-state-")
os.environ["XDG_STATE_HOME"] = STATE.name
# In every empty cache torch compiles and loads a library to see whether the compiler knows the
# CPU's instructions: a third of the processor time of a small training under Inductor.
os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"
# Hundreds of processes import the same modules, which are compiled once.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

NOT_FAST = re.compile(
    r"^(import|from) torch|fresh_torch|^pytestmark = (?:\[\s*)?.*(heavy|browser)"
    r"|\bopened\b|AppTest",
    re.M,
)
"""What a test file says that has no fast test in it."""
LONGEST_SLEEP_SECONDS = 0.02
"""Streamlit's own tests of pages look so often whether a page is done."""
ARGUMENTS = ["--no-sandbox", "--process-per-site"]
"""A reader's pages of one server share a process, and what is compiled there."""
CALM = """const calm = new CSSStyleSheet();
calm.replaceSync('*, *::before, *::after {animation-iteration-count: 1 !important}');
document.adoptedStyleSheets.push(calm);"""
"""What says that a page loads moves once instead of without end: each frame takes the processor."""
FULL_LOOK_EVERY = 100
"""Looks at what is younger between two full ones; Python's own are 10."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only what needs nothing but Python")


def pytest_configure(config: pytest.Config) -> None:
    # No power fails during a test, and a disk takes milliseconds for each small file.
    os.fsync = lambda file: None  # type: ignore[assignment]
    # Files, and what they import, stay: until all are there, looking through them is for nothing.
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """A full look of the garbage collector at torch and all files takes half a second: none at
    what is there by now, and from now on fewer. Trainings collect between their blocks anyhow."""
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_LOOK_EVERY)
    gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--fast") or collection_path.suffix != ".py":
        return None
    return bool(NOT_FAST.search(collection_path.read_text())) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--fast"):
        items[:] = [
            item
            for item in items
            if not item.get_closest_marker("heavy") and not item.get_closest_marker("browser")
        ]
        return
    # Files of few long tests first: at the end the short ones fill both workers.
    long = {
        item.path
        for item in items
        if item.get_closest_marker("heavy") or item.get_closest_marker("browser")
    }
    items.sort(key=lambda item: item.path not in long)


@pytest.fixture(autouse=True)
def _kept_fast(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not request.config.getoption("--fast"):
        yield
        return
    sleep = time.sleep

    def short(seconds: float) -> None:
        assert seconds <= LONGEST_SLEEP_SECONDS, "a fast test sleeps: mark it `heavy`"
        sleep(seconds)

    def no_process(*_: object, **__: object) -> None:
        raise AssertionError("a fast test starts a process: mark it `heavy`")

    monkeypatch.setattr(time, "sleep", short)
    monkeypatch.setattr(subprocess.Popen, "__init__", no_process)
    yield
    assert "torch" not in sys.modules, "a fast test imports torch: mark it `heavy`"


@pytest.fixture(autouse=True, scope="module")
def _what_is_there_is_not_looked_through() -> Iterator[None]:
    """The garbage collector looks only at what a file's own tests made: trainings have it look at
    everything again, and half a gigabyte takes it longer than most tests take."""
    if gc.get_freeze_count():
        gc.collect()  # only what the file before left
    gc.freeze()
    yield


@pytest.fixture(autouse=True, scope="module")
def _no_folder_of_code_stays() -> Iterator[None]:
    """What one file's trainings add to the path, among it a plugin of torch's, is not there for the
    files that the same process runs afterwards; libraries may add what is theirs. Commands that
    run in this process leave the folders that they allow in the environment."""
    before, allowed = list(sys.path), os.environ.get("BREAKEVEN_CODE")
    yield
    if allowed is None:
        os.environ.pop("BREAKEVEN_CODE", None)
    else:
        os.environ["BREAKEVEN_CODE"] = allowed
    sys.path[:] = [entry for entry in sys.path if entry in before or "site-packages" in entry]


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[DataDir]:
    """An empty data folder."""
    yield DataDir(tmp_path / "data")


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """The Chromium of this machine, without a window; whoever waits in it is patient."""
    from playwright.sync_api import expect, sync_playwright  # most tests do without

    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        new_context = chromium.new_context

        def patient(**options: Any) -> "BrowserContext":
            context = new_context(**options)
            context.set_default_timeout(1000 * PATIENCE_SECONDS)
            context.add_init_script(CALM)
            return context

        patch.setattr(chromium, "new_context", patient)
        expect.set_options(timeout=1000 * PATIENCE_SECONDS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def reader(browser: "Browser", address: str) -> Iterator["BrowserContext"]:
    """A reader of the file's dashboard, whose browser loads its scripts once: each test has a page
    of its own, in the process that a page keeps which stays open."""
    context = browser.new_context()
    context.new_page().goto(f"{address}/_stcore/health")
    yield context
    context.close()


@pytest.fixture
def fresh_torch() -> Iterator[None]:
    """One thread, and a compiler that knows nothing: a run has its process to itself."""
    from tests.helpers.loop import torch_afresh  # takes seconds, and most tests do without

    with torch_afresh():
        yield
