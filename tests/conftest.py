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
# Nothing that the tests start may wait for a network.
os.environ["HF_HUB_OFFLINE"] = "1"
# What commands store for their account must not reach the account that runs the tests.
STATE = tempfile.TemporaryDirectory(prefix="breakeven-state-")
os.environ["XDG_STATE_HOME"] = STATE.name
# With an empty cache, torch compiles and loads a library to test which instructions of the CPU the
# compiler knows: a third of the processor time of a small training under Inductor.
os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"
# A script would run in the environment that is active where the tests start.
for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
    os.environ.pop(variable, None)
# Hundreds of processes import the same modules; their bytecode is compiled once.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

NOT_FAST = re.compile(
    r"^(import|from) torch|fresh_torch|^pytestmark = (?:\[\s*)?.*(heavy|browser)"
    r"|\bopened\b|AppTest",
    re.M,
)
"""Words in a test file that make all of its tests slow."""
LONGEST_SLEEP_SECONDS = 0.02
"""Seconds between two looks of Streamlit's page tests at a page."""
ARGUMENTS = ["--no-sandbox", "--process-per-site"]
"""All pages of a reader share a browser process, and the code compiled there."""
CALM = """const calm = new CSSStyleSheet();
calm.replaceSync('*, *::before, *::after {animation-iteration-count: 1 !important}');
document.adoptedStyleSheets.push(calm);"""
"""Stops endless animations of loading pages after one turn: each frame takes processor time."""
FULL_LOOK_EVERY = 100
"""Collections of the younger objects between two full ones; Python's default is 10."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only what needs nothing but Python")


def pytest_configure(config: pytest.Config) -> None:
    # No power fails during a test, and a disk takes milliseconds for each small file.
    os.fsync = lambda file: None  # type: ignore[assignment]
    # Files, and what they import, stay: until all are there, looking through them is for nothing.
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """A full collection over torch and all files takes half a second: existing objects are exempt,
    and full collections become rarer. Trainings collect between their blocks anyway."""
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_LOOK_EVERY)
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """A process that ends looks through all of its objects, which takes seconds with torch."""
    gc.freeze()


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
    # Files with few long tests first: at the end the short ones fill both workers.
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
def _what_is_there_is_not_looked_through(request: pytest.FixtureRequest) -> Iterator[None]:
    """The garbage collector looks only at objects of the present file's tests: trainings make it
    look at everything again, which takes longer for half a gigabyte than most tests take."""
    if not request.config.getoption("--fast"):  # which leaves little
        gc.collect()  # only the objects of the previous file
    gc.freeze()
    yield


@pytest.fixture(autouse=True, scope="module")
def _no_folder_of_code_stays() -> Iterator[None]:
    """Removes the path entries that trainings of one file added, among them a plugin of torch, for
    later files of the same process; entries of libraries stay. Commands that run in this process
    leave the folders that they allow in the environment."""
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
    """The Chromium of this machine without a window; its default timeout is long."""
    from playwright.sync_api import expect, sync_playwright  # most tests do not need it

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
    """A reader of the file's dashboard. The browser loads the scripts once: each test has its own
    page in the process of a page that stays open."""
    context = browser.new_context()
    context.new_page().goto(f"{address}/_stcore/health")
    yield context
    context.close()


@pytest.fixture
def fresh_torch() -> Iterator[None]:
    """One thread, and a compiler without a cache: a run usually has its own process."""
    from tests.helpers.loop import torch_afresh  # takes seconds, and most tests do not need it

    with torch_afresh():
        yield
