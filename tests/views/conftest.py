"""A data folder that the pages of a test show."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.commands import EXAMPLES
from breakeven.storage.index.store import Store
from breakeven.views.parts import downloads
from tests.helpers.pages import shown


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataDir]:
    with shown(tmp_path) as data_dir:
        yield data_dir


@pytest.fixture(scope="module")
def kept_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataDir]:
    """One folder for all tests of a file that only read what was recorded there."""
    with shown(tmp_path_factory.mktemp("kept")) as data_dir:
        yield data_dir


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The recorded examples; importing them takes seconds."""
    with Store.in_memory(DataDir(tmp_path_factory.mktemp("examples")), EXAMPLES) as store:
        yield store


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], bytes]]:
    """The content of each download button, by the button's key; every menu is open."""
    offered: dict[str, Callable[[], bytes]] = {}

    def button(label: str, data: Any, file_name: str, mime: str, key: str, **settings: Any) -> None:
        offered[key] = data if callable(data) else lambda: data

    def menu(label: str, **settings: Any) -> Any:
        opened = downloads.st.container()
        opened.open = True
        return opened

    monkeypatch.setattr(downloads.st, "download_button", button)
    monkeypatch.setattr(downloads.st, "popover", menu)
    return offered
