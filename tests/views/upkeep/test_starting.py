"""What a server does without when it starts."""

from typing import Any

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.components.v2.component_manager import BidiComponentManager

from breakeven.serve import offer_no_components_of_packages

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
