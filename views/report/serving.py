"""Reports at addresses of their own, `/report/EXPERIMENT,...`: to read, to present, to send on.

They are made when they are asked for, from the run folders as everything else; what somebody
uploaded as a report is never served.
"""

import asyncio
import re
from typing import Any
from urllib.parse import quote

from storage.errors import NotExportable, NotInStore
from views.shared.resources import get_store

ADDRESS = re.compile(r"/report/(\w[\w.,-]*)$")
SEPARATOR = ","
HTML, TEXT = b"text/html; charset=utf-8", b"text/plain; charset=utf-8"


def address(*asked: str, presenting: bool = False) -> str:
    """Of a report of experiments and suite runs by their ids; relative, so that it holds behind a
    proxy that serves us under a path of its own."""
    return (
        f"report/{quote(SEPARATOR.join(asked), safe=SEPARATOR)}{'#present' if presenting else ''}"
    )


class Reports:
    """ASGI middleware; all other addresses are the dashboard's."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        asked = ADDRESS.search(scope["path"]) if scope["type"] == "http" else None
        if asked is None or scope["method"] not in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        status, kind, body = await asyncio.to_thread(_answer, asked[1])
        headers = [(b"content-type", kind), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send(
            {"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body}
        )


def _answer(asked: str) -> tuple[int, bytes, bytes]:
    """Status, type and body."""
    from views.report.files import (
        report_of,
    )  # Drawing and all: a server answers before it is there.

    try:
        page = report_of(get_store(), asked.split(SEPARATOR))
    except (NotInStore, NotExportable) as error:
        return 404, TEXT, f"{error}\n".encode(errors="replace")
    return 200, HTML, page.encode(errors="replace")
