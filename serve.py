"""Serves the dashboard: `python serve.py`, or `make run`.

On this machine alone, unless `BREAKEVEN_HOST` names another address to listen on: README, Safety.
"""

import asyncio
import gc
import os
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from threading import Thread

if __name__ == "__main__":
    # What is imported stays: looking through it for what does not would be a seventh of importing
    # it. `import_all` turns the collector on again.
    gc.disable()

import uvicorn
from starlette.middleware import Middleware
from streamlit import App, config
from streamlit.components.v2.component_manager import BidiComponentManager
from streamlit.runtime.media_file_manager import MediaFileManager

from breakeven.runner.errors import SettingsUnusable
from breakeven.runner.folders.data_dir import DataDir, default_data_folder
from breakeven.runner.logs import DASHBOARD, log, open_log
from breakeven.runner.project import PACKAGE
from breakeven.runner.settings import HOST_VARIABLE, read_settings
from breakeven.views.access import doors
from breakeven.views.access.files import let_scripts_run
from breakeven.views.access.permissions import may_act_by
from breakeven.views.comparison.ahead import Imported, prepare
from breakeven.views.report.serving import Reports
from breakeven.views.upkeep.failing import show_failure
from breakeven.views.upkeep.memory import keep_giving_back, share_arenas
from breakeven.views.upkeep.serving import ROUTES


@asynccontextmanager
async def preparing(app: App) -> AsyncIterator[None]:
    """While a browser loads what it draws pages with, the server imports what fills them. And what
    waits, such as a picture for the one browser, keeps no other file from being made."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(MAX_WAITING))
    let_scripts_run()
    Thread(target=prepare, daemon=True).start()
    yield


layers = [
    Middleware(doors.Doors, may_upload=may_act_by),
    Middleware(Reports),
    Middleware(Imported),
]
MAX_WAITING = 64
"""Threads for the requests of pages, apart from drawing; Python's own default would be 6 on two
processors."""
LEFT_SECONDS = 30
"""That what a reader looked at is held once the page is left, up to some ten MB for each. Who comes
back later, after a nap of the network, gets it from the address and the fields of the page."""

KEPT_SECONDS = 10.0
"""At least so long a made file waits for the request of its browser."""

GONE = ("BREAKEVEN_TEAM", "BREAKEVEN_HOSTNAMES", "BREAKEVEN_FILES")
"""Former variables that limited access: ignoring one would serve people against the administrator's
intention."""


def offer_no_components_of_packages() -> None:
    """Streamlit reads what every installed package says of itself, four times, in search of
    components that pages could use: a quarter of a start, and pages use none but their own."""
    BidiComponentManager.discover_and_register_components = (  # type: ignore[method-assign]
        lambda self, *, start_file_watching=True: None
    )


def keep_files_for_browsers() -> None:
    """Streamlit deletes a file that it made for a button when page scripts have ended twice. A page
    that follows a run, or other readers, end them sooner than a slow network requests the file."""
    remove, latest = MediaFileManager.remove_orphaned_files, -KEPT_SECONDS

    def remove_seldom(self: MediaFileManager) -> None:
        nonlocal latest
        if time.monotonic() - latest >= KEPT_SECONDS:
            latest = time.monotonic()
            remove(self)

    MediaFileManager.remove_orphaned_files = remove_seldom  # type: ignore[method-assign]


def main() -> None:
    share_arenas()
    folder = DataDir(default_data_folder())
    if gone := [name for name in GONE if os.environ.get(name)]:
        sys.exit(f"{gone[0]} is no variable any more: docs/operating.md says what to set instead.")
    try:
        serving = read_settings(folder.path).serving
        os.environ[HOST_VARIABLE] = serving.host  # Whatever becomes of the file: it listens there.
        proxied = doors.open_socket() if doors.has_sign_in() else None
    except (SettingsUnusable, doors.NotServed) as error:
        sys.exit(f"{error}.")
    with suppress(OSError):  # A page says so.
        folder.make()
    open_log(folder.logs, DASHBOARD)
    where = {"address": serving.host, "port": serving.port}
    log.info("dashboard begins", extra={"fields": where})
    keep_giving_back()
    offer_no_components_of_packages()
    keep_files_for_browsers()
    app = App(
        str(PACKAGE / "dashboard.py"),
        lifespan=preparing,
        middleware=layers,
        routes=ROUTES,
        on_script_error=show_failure,
    )
    options = {
        "server.address": serving.host if proxied is None else doors.LOOPBACK,
        "server.port": serving.port,
        "server.allowedHosts": ["*"],  # the middleware knows them
        "server.headless": True,
        "server.disconnectedSessionTTL": LEFT_SECONDS,
        "client.showErrorDetails": "none",  # `show_failure` does, to whom it may concern
        "browser.serverAddress": (*doors.own_names(), "localhost")[0],  # avoids a lookup
    }
    if proxied is None:
        held = doors.hold_the_other_loopback()
        app.run(config=options)
        if held is not None:
            held.close()
        return
    for name, value in options.items():
        config.set_option(name, value)
    server = uvicorn.Config(app, ws="websockets-sansio", access_log=False, forwarded_allow_ips="*")
    uvicorn.Server(server).run(sockets=[proxied])


if __name__ == "__main__":
    main()
