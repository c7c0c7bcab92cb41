"""Compare, the page at the root, has an address of its own like all others: `/compare`."""

from typing import Any

NAME = "/compare"


class Home:
    """ASGI middleware that leads from `/compare` to the root, with all that the address chose.

    Streamlit knows its first page under the root alone, and calls every other address of it not
    found.
    """

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        asks = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if not asks or scope["path"].rstrip("/") != NAME:
            await self.app(scope, receive, send)
            return
        # Relative, so that it holds behind a proxy that serves us under a path of its own.
        parent = b"../" if scope["path"].endswith("/") else b"./"
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        headers = [(b"location", parent + query)]
        await send({"type": "http.response.start", "status": 307, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
