"""A data folder that the pages of a test show."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.views.parts import actions, downloads
from breakeven.views.shared import resources
from tests.helpers.machine import MACHINE, keep
from tests.helpers.pages import close_store


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DataDir]:
    """An empty data folder that knows this machine, and no shipped examples."""
    data_dir = DataDir(tmp_path / "data")
    data_dir.path.mkdir()
    keep(data_dir, MACHINE)
    monkeypatch.setenv("BREAKEVEN_DATA", str(data_dir.path))
    monkeypatch.setattr(resources, "EXAMPLES", tmp_path / "examples")
    # What a supervisor then does is test_browser's subject; here it would only burn processor time.
    monkeypatch.setattr(actions, "ensure_supervisor", lambda data_dir: None)
    monkeypatch.setattr(resources, "ensure_supervisor", lambda data_dir: None)
    yield data_dir
    close_store(data_dir)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], bytes]]:
    """What each button would hand out, as the page offers it, by the button's key."""
    offered: dict[str, Callable[[], bytes]] = {}

    def button(label: str, data: Any, file_name: str, mime: str, key: str, **settings: Any) -> None:
        offered[key] = data if callable(data) else lambda: data

    monkeypatch.setattr(downloads.st, "download_button", button)
    return offered
