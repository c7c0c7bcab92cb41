"""Files that browsers keep for good: those asked for with their version in the address.

Streamlit serves the files of components without saying how long they last, so that a browser would
load plotly.js, 5 MB, with every page.
"""

from typing import Any
from urllib.parse import parse_qs

LASTING = "version"
"""The parameter of such an address."""
COMPONENTS = "/component/"
FOREVER = (b"cache-control", b"public, max-age=31536000, immutable")


class Lasting:
    """ASGI middleware that says so."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not _lasts(scope):
            await self.app(scope, receive, send)
            return

        async def told(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                others = [one for one in message["headers"] if one[0].lower() != FOREVER[0]]
                message = {**message, "headers": [*others, FOREVER]}
            await send(message)

        await self.app(scope, receive, told)


def _lasts(scope: Any) -> bool:
    return COMPONENTS in scope["path"] and LASTING in parse_qs(scope["query_string"].decode())
