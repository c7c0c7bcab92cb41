"""What the first page needs, done while a server waits for its first reader.

It answers before that is done: a browser takes as long to load what it draws pages with.
"""

import asyncio
import gc
from contextlib import suppress
from importlib import import_module
from threading import Lock
from typing import Any

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.states import ACTIVE_EXPERIMENTS
from breakeven.storage.errors import StoreError
from breakeven.views.upkeep.memory import share_with_arrow

IMPORTED = (
    "breakeven.storage.team.opening",
    "breakeven.storage.comparison.comparison",
    "breakeven.views.comparison.tabs",
    "breakeven.views.comparison.behind_verdicts",
    "breakeven.views.comparison.ranks",
    "breakeven.views.comparison.why",
    "breakeven.views.comparison.ladder",
    "breakeven.views.comparison.measured_again",
    "breakeven.views.comparison.accuracy",
    "breakeven.views.comparison.cache",
    "breakeven.views.parts.damaged",
    "breakeven.views.parts.exchange",
    "breakeven.views.report.files",
    "breakeven.views.report.menu",
    "breakeven.views.upkeep.strip",
    "plotly.offline",
    "plotly.graph_objs",
)
"""What Compare takes a second or two to import."""
_importing = Lock()


def prepare() -> None:
    """Imports, opens the store, and compares what the first page shows: the newest experiment that
    is over. Beside one that goes on nothing is computed before somebody asks."""
    import_all()
    # Whatever is wrong, the first page says so.
    with suppress(StoreError, RunnerError, OSError):
        compare_newest()


def import_all() -> None:
    """Has the collector set aside what stays for good: it need not look through it again and again,
    for a quarter of a second each time. It was off until then."""
    try:
        with _importing:
            for name in IMPORTED:
                import_module(name)
        share_with_arrow()
    finally:
        gc.freeze()
        gc.enable()


def prepare_all() -> None:
    """What the first page needs, and then, as long as nothing else is to be done, all others."""
    prepare()
    from breakeven.views.comparison.idle import compare_rest

    compare_rest()


class Imported:
    """ASGI middleware: pages, which come over a websocket, wait until all is imported. One that
    imported the same at the same time would take turns with it, and modules that import each other
    could be met half made."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await asyncio.to_thread(_wait)
        await self.app(scope, receive, send)


def _wait() -> None:
    with _importing:
        pass


def compare_newest() -> None:
    from breakeven.storage import queries
    from breakeven.storage.comparison.comparison import compare
    from breakeven.views.shared.resources import data_dir, open_store, process_wide
    from breakeven.views.shared.selection import to_begin_with

    store, folder = open_store(), data_dir().path
    store.ingest_all()
    experiments = queries.list_experiments(store)
    read = process_wide().read
    if folder in read or experiments["state"].isin(ACTIVE_EXPERIMENTS).any():
        return
    shown = experiments[~experiments["archived"]]
    for one in to_begin_with(shown if len(shown) else experiments):
        compare(store, one)
