"""What a server changes in Streamlit when it starts."""

from contextlib import nullcontext
from typing import Any

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.components.v2.component_manager import BidiComponentManager
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileStorageError
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage

from breakeven import serve
from breakeven.serve import keep_files_for_browsers, offer_no_components_of_packages

LOOKING = "discover_and_register_components"
"""What Streamlit's runtime calls when it starts."""


@pytest.mark.parametrize(("leaves_out", "times"), [(False, 1), (True, 0)])
def test_a_server_does_not_look_for_components_in_installed_packages(
    monkeypatch: pytest.MonkeyPatch, leaves_out: bool, times: int
) -> None:
    looked: list[str] = []

    def scan() -> list[Any]:
        looked.append("all packages")
        return []

    monkeypatch.setattr(manifest_scanner, "scan_component_manifests", scan)
    # To be as it was when the test is over.
    monkeypatch.setattr(BidiComponentManager, LOOKING, getattr(BidiComponentManager, LOOKING))
    if leaves_out:
        offer_no_components_of_packages()
    BidiComponentManager().discover_and_register_components()
    assert len(looked) == times


@pytest.mark.parametrize(("kept", "is_there"), [(1000.0, True), (0.0, False)])
def test_a_made_file_waits_for_its_browser_while_pages_are_drawn_and_goes_after_some_seconds(
    monkeypatch: pytest.MonkeyPatch, kept: float, is_there: bool
) -> None:
    monkeypatch.setattr(serve, "KEPT_SECONDS", kept)
    remove = MediaFileManager.remove_orphaned_files
    monkeypatch.setattr(MediaFileManager, "remove_orphaned_files", remove)
    keep_files_for_browsers()
    storage = MemoryMediaFileStorage("/media")
    manager = MediaFileManager(storage)
    button = manager.add_deferred(lambda: b"step,loss", "text/csv", "1.0", file_name="race.csv")
    url = manager.execute_deferred(button)
    for _ in range(3):  # Scripts of pages end.
        manager.remove_orphaned_files()
    with nullcontext() if is_there else pytest.raises(MediaFileStorageError):
        storage.get_file(url.rpartition("/")[2])
