"""A data folder that the pages of a test show."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.views.parts import actions, downloads
from breakeven.views.shared import resources
from tests.helpers.machine import MACHINE, keep
from tests.helpers.pages import close_store


@contextmanager
def shown(place: Path) -> Iterator[DataDir]:
    """An empty data folder that knows this machine, and no shipped examples."""
    data_dir = DataDir(place / "data")
    data_dir.path.mkdir()
    keep(data_dir, MACHINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BREAKEVEN_DATA", str(data_dir.path))
        patch.setattr(resources, "EXAMPLES", place / "examples")
        # What a supervisor then does is test_browser's subject; here it would only burn time.
        patch.setattr(actions, "ensure_supervisor", lambda data_dir: None)
        patch.setattr(resources, "ensure_supervisor", lambda data_dir: None)
        yield data_dir
        close_store(data_dir)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataDir]:
    with shown(tmp_path) as data_dir:
        yield data_dir


@pytest.fixture(scope="module")
def kept_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataDir]:
    """One for all tests of a file that only look at what was recorded there once."""
    with shown(tmp_path_factory.mktemp("kept")) as data_dir:
        yield data_dir


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], bytes]]:
    """What each button would hand out, as the page offers it, by the button's key."""
    offered: dict[str, Callable[[], bytes]] = {}

    def button(label: str, data: Any, file_name: str, mime: str, key: str, **settings: Any) -> None:
        offered[key] = data if callable(data) else lambda: data

    monkeypatch.setattr(downloads.st, "download_button", button)
    return offered
