"""What a page may say to the server: what our pages do say, and nothing else that Streamlit knows.

Streamlit answers a few messages that are meant for whoever develops an app, from anybody who is
connected: they tell names of files in the repository, empty what all sessions share, or install
files. A viewer who writes messages by hand gets no answer to them.
"""

from typing import Any

from google.protobuf.message import DecodeError
from streamlit.proto.BackMsg_pb2 import BackMsg

KNOWN = frozenset({"rerun_script", "stop_script", "app_heartbeat", "file_urls_request"})
OPERATIONS = frozenset({"deferred_file", "dataframe_chunk"})
"""Of `backend_operation_request`."""


class Messages:
    """ASGI middleware that passes over all others."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":
            await self.app(scope, receive, send)
            return

        async def received() -> Any:
            while True:
                message = await receive()
                content = message.get("bytes")
                if message["type"] != "websocket.receive" or content is None or _is_known(content):
                    return message

        await self.app(scope, received, send)


def _is_known(content: bytes) -> bool:
    message = BackMsg()
    try:
        message.ParseFromString(content)
    except DecodeError:
        return True  # Streamlit ends the connection.
    kind = message.WhichOneof("type")
    if kind == "backend_operation_request":
        asked = {field.name for field, _ in message.backend_operation_request.ListFields()}
        return bool(asked & OPERATIONS) and asked <= OPERATIONS | {"request_id", "session_id"}
    return kind in KNOWN
