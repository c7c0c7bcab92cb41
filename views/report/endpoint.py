"""Reports at addresses of their own, `/report/EXPERIMENT,...`: to read, present and share.

A request makes a report from the run folders. Uploaded reports are never served.
"""

import asyncio
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from breakeven.storage.errors import NotExportable, NotInStore
from breakeven.views.report.report_files import MAX_EXPERIMENTS, NotWanted, report_of
from breakeven.views.shared.resources import get_store

ADDRESS = re.compile(r"/report/(\w[\w.,-]*)$")
SEPARATOR = ","
MAX_UNDER_WAY = 24
"""Most simultaneous requests of all readers; few of them compute, and the others wait."""
NOT_HERE = b"There is no such experiment or suite run here.\n"


def address(*ids: str, presenting: bool = False) -> str:
    """The address of a report, by the ids of experiments and suite runs; relative, so that it works
    behind a proxy that serves us under another path."""
    return f"report/{quote(SEPARATOR.join(ids), safe=SEPARATOR)}{'#present' if presenting else ''}"


class Reports:
    """ASGI middleware that serves reports; the dashboard serves all other addresses.

    A report stops when its reader leaves: a viewer who left eight reports of twenty experiments had
    delayed the downloads of all others. The proxy limits how many reports a viewer may request at
    once (docs/operating.md).
    """

    def __init__(self, app: Any) -> None:
        self.app = app
        self._makers = ThreadPoolExecutor(MAX_UNDER_WAY, thread_name_prefix="report")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        requested = ADDRESS.search(scope["path"]) if scope["type"] == "http" else None
        if requested is None or scope["method"] not in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        is_gone = threading.Event()
        watch = asyncio.create_task(_tell_once_gone(receive, is_gone))
        try:
            status, kind, body = await asyncio.get_running_loop().run_in_executor(
                self._makers, _answer, requested[1], is_gone
            )
        finally:
            is_gone.set()
            watch.cancel()
        response = Response(body, status, {"cache-control": "no-store"}, media_type=kind)
        await response(scope, receive, send)


async def _tell_once_gone(receive: Any, is_gone: threading.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    is_gone.set()


def _answer(requested: str, is_gone: threading.Event) -> tuple[int, str, bytes]:
    """Status, type and body."""
    try:
        page = report_of(
            get_store(), requested.split(SEPARATOR), MAX_EXPERIMENTS, lambda: not is_gone.is_set()
        )
    except NotInStore:  # Its text names the data folder.
        return 404, "text/plain", NOT_HERE
    except NotExportable as error:
        return 404, "text/plain", f"{error}\n".encode(errors="replace")
    except NotWanted:
        return 404, "text/plain", b""
    return 200, "text/html", page.encode(errors="replace")
