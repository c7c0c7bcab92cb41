"""Messages that no page of ours sends reach nothing."""

from typing import Any

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg

from breakeven.views.access.doors import Doors
from tests.helpers.waiting import awaited


def arrived(*contents: bytes) -> list[bytes]:
    """What of it the dashboard gets to see."""
    waiting: list[Any] = [{"type": "websocket.receive", "bytes": one} for one in contents]
    waiting.append({"type": "websocket.disconnect"})
    got: list[bytes] = []

    async def behind(scope: Any, receive: Any, send: Any) -> None:
        while (message := await receive())["type"] == "websocket.receive":
            got.append(message["bytes"])

    async def receive() -> Any:
        return waiting.pop(0)

    scope = {"type": "websocket", "path": "/", "headers": [(b"host", b"localhost")]}
    awaited(Doors(behind, lambda headers: True)(scope, receive, None))
    return got


def message(kind: str, value: Any = True) -> bytes:
    made = BackMsg()
    part = getattr(made, kind)
    if hasattr(part, "SetInParent"):
        part.SetInParent()
    else:
        setattr(made, kind, value)
    return made.SerializeToString()


@pytest.mark.parametrize(
    "kind",
    ["rerun_script", "stop_script", "app_heartbeat", "file_urls_request",
     "backend_operation_request"],
)  # fmt: skip
def test_what_pages_say_arrives(kind: str) -> None:
    assert arrived(message(kind)) == [message(kind)]


def test_what_is_meant_for_developers_and_whatever_comes_later_is_passed_over() -> None:
    known = {"rerun_script", "stop_script", "app_heartbeat", "file_urls_request",
             "backend_operation_request"}  # fmt: skip
    others = [field.name for field in BackMsg.DESCRIPTOR.fields if field.name not in known]
    assert {"clear_cache", "load_git_info", "debug_shutdown_runtime"} <= set(others)
    last = message("rerun_script")
    for kind in others:
        assert arrived(message(kind), last) == [last], kind


def test_what_is_no_message_is_left_to_streamlit_which_ends_the_connection() -> None:
    assert arrived(b"\xff\xff\xff") == [b"\xff\xff\xff"]
