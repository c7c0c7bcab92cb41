"""Messages that no page of ours sends reach nothing."""

import asyncio
import time
from typing import Any

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg

from breakeven.views.access.messages import MAX_BYTES, MAX_QUERY, Messages
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

    awaited(Messages(behind)({"type": "websocket"}, receive, None))
    return got


def message(kind: str, value: Any = True) -> bytes:
    made = BackMsg()
    part = getattr(made, kind)
    if hasattr(part, "SetInParent"):
        part.SetInParent()
    else:
        setattr(made, kind, value)
    return made.SerializeToString()


def operation(*parts: str) -> bytes:
    made = BackMsg()
    made.backend_operation_request.request_id = "1"
    for part in parts:
        getattr(made.backend_operation_request, part).SetInParent()
    return made.SerializeToString()


@pytest.mark.parametrize(
    "kind", ["rerun_script", "stop_script", "app_heartbeat", "file_urls_request"]
)
def test_what_pages_say_arrives(kind: str) -> None:
    assert arrived(message(kind)) == [message(kind)]


def test_downloads_and_tables_are_asked_for() -> None:
    for part in ("deferred_file", "dataframe_chunk"):
        assert arrived(operation(part)) == [operation(part)]


def test_what_is_meant_for_developers_and_whatever_comes_later_is_passed_over() -> None:
    known = {"rerun_script", "stop_script", "app_heartbeat", "file_urls_request",
             "backend_operation_request"}  # fmt: skip
    others = [field.name for field in BackMsg.DESCRIPTOR.fields if field.name not in known]
    assert {"clear_cache", "load_git_info", "debug_shutdown_runtime"} <= set(others)
    last = message("rerun_script")
    for kind in others:
        assert arrived(message(kind), last) == [last], kind
    for parts in (("install_skills",), ("dismiss_skills_nudge",), ()):
        assert arrived(operation(*parts), last) == [last]


def test_a_message_or_an_address_longer_than_any_of_ours_is_passed_over() -> None:
    last = message("rerun_script")
    for length, arrives in ((MAX_QUERY, True), (MAX_QUERY + 1, False)):
        made = BackMsg()
        made.rerun_script.query_string = "q" * length
        one = made.SerializeToString()
        assert arrived(one, last) == ([one, last] if arrives else [last])
    made = BackMsg()
    made.rerun_script.widget_states.widgets.add().string_value = "w " * (MAX_BYTES // 2)
    assert arrived(made.SerializeToString(), last) == [last]
    made.rerun_script.widget_states.widgets[0].string_value = "w " * (MAX_BYTES // 2 - 50)
    assert len(arrived(made.SerializeToString(), last)) == 2


def test_what_is_no_message_is_left_to_streamlit_which_ends_the_connection() -> None:
    assert arrived(b"\xff\xff\xff") == [b"\xff\xff\xff"]


def test_a_page_that_never_stops_talking_is_heard_twenty_times_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, slept = [1000.0], []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    one = message("rerun_script")
    assert len(arrived(*[one] * 100)) == 100 and len(slept) == 1  # for what would come next
    slept.clear()
    # A hundred at once, then one in 50 ms, and the last look is at the end of the connection.
    assert len(arrived(*[one] * 600)) == 600
    assert sum(slept) == pytest.approx(501 / 20)
