"""The websocket of a page without a browser: sends what a page would send, and forged messages."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

from tests.helpers.waiting import PATIENCE_SECONDS


class Page:
    """A connection to the dashboard at `address`, with or without cookies and an origin."""

    def __init__(self, address: str, cookies: Mapping[str, str], origin: str | None = "") -> None:
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
        if origin is not None:
            headers["Origin"] = origin or address
        where = f"ws{address.removeprefix('http')}/_stcore/stream"
        with ExitStack() as stack:
            self.connection = stack.enter_context(
                connect(
                    where, additional_headers=headers, max_size=None, subprotocols=["streamlit"]
                )  # type: ignore[list-item]
            )
            self.ending = stack.pop_all()
        self.hashes: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.ending.close()

    def ask(self, name: str, query: str = "", pressed: str = "") -> list[Any]:
        """Runs a page, with a button pressed whether or not it was ever shown; returns its
        elements."""
        message = BackMsg()
        if name in self.hashes:
            message.rerun_script.page_script_hash = self.hashes[name]
        else:
            message.rerun_script.page_name = name
        message.rerun_script.query_string = query
        if pressed:
            state = message.rerun_script.widget_states.widgets.add()
            state.id, state.trigger_value = pressed, True
        self.connection.send(message.SerializeToString())
        elements = []
        while True:
            answer = ForwardMsg()
            answer.ParseFromString(self.connection.recv(timeout=PATIENCE_SECONDS))  # type: ignore[arg-type]
            kind = answer.WhichOneof("type")
            if kind == "delta" and answer.delta.WhichOneof("type") == "new_element":
                elements.append(answer.delta.new_element)
            if kind == "navigation":
                self.hashes[name] = answer.navigation.page_script_hash
            if kind == "script_finished":
                return elements


def buttons(elements: list[Any]) -> dict[str, str]:
    """The ids of buttons by their labels."""
    buttons = [element.button for element in elements if element.WhichOneof("type") == "button"]
    return {button.label: button.id for button in buttons}
