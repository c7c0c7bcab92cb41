"""What a page may say to the server: what our pages do say, and nothing else that Streamlit knows.

Streamlit answers a few messages that are meant for whoever develops an app, from anybody who is
connected: they tell names of files in the repository, empty what all sessions share, or install
files. A viewer who writes messages by hand gets no answer to them.

And no page says more than the server has time for: 190,000 messages that somebody wrote within ten
seconds had kept all others waiting for a minute. Nor is one message longer than any of ours.
"""

import asyncio
import time
from typing import Any

from google.protobuf.message import DecodeError
from streamlit.proto.BackMsg_pb2 import BackMsg

from breakeven.views.shared.pace import one_more_reader

KNOWN = frozenset({"rerun_script", "stop_script", "app_heartbeat", "file_urls_request"})
MAX_BYTES, MAX_QUERY = 2**20, 2**14
"""Of a message, and of the address in it, which no browser's is longer than; what pages hold is
looked through for each row of a list."""
OPERATIONS = frozenset({"deferred_file", "dataframe_chunk"})
"""Of `backend_operation_request`."""
AT_ONCE, A_SECOND = 100, 20
"""Messages of one page that are taken as they come, and afterwards; ours say two a second, and one
for each click."""


class Messages:
    """ASGI middleware that passes over all others, and counts who is connected."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            await self.app(scope, receive, send)
            return

        pace = _Pace()

        async def received() -> Any:
            while True:
                await pace.keep()  # What is not received stays with whoever sends it.
                message = await receive()
                content = message.get("bytes")
                if message["type"] != "websocket.receive" or content is None or _is_known(content):
                    return message

        with one_more_reader():
            await self.app(scope, received, send)


class _Pace:
    """Of one page."""

    def __init__(self) -> None:
        self._left, self._at = float(AT_ONCE), time.monotonic()

    async def keep(self) -> None:
        """Waits until another message may be taken."""
        now = time.monotonic()
        self._left = min(AT_ONCE, self._left + (now - self._at) * A_SECOND) - 1
        self._at = now
        if self._left < 0:
            await asyncio.sleep(-self._left / A_SECOND)


def _is_known(content: bytes) -> bool:
    if len(content) > MAX_BYTES:
        return False
    message = BackMsg()
    try:
        message.ParseFromString(content)
    except DecodeError:
        return True  # Streamlit ends the connection.
    kind = message.WhichOneof("type")
    if kind == "backend_operation_request":
        asked = {field.name for field, _ in message.backend_operation_request.ListFields()}
        return bool(asked & OPERATIONS) and asked <= OPERATIONS | {"request_id", "session_id"}
    if kind == "rerun_script" and len(message.rerun_script.query_string) > MAX_QUERY:
        return False
    return kind in KNOWN
