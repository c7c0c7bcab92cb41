"""What a server leaves out when it starts, so that it answers sooner."""

from streamlit.components.v2.component_manager import BidiComponentManager


def offer_no_components_of_packages() -> None:
    """Streamlit reads what every installed package says of itself, four times, in search of
    components that pages could use: a quarter of a start, and pages use none but their own."""
    BidiComponentManager.discover_and_register_components = _nothing  # type: ignore[method-assign]


def _nothing(self: BidiComponentManager, *, start_file_watching: bool = True) -> None:
    pass
