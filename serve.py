"""Serves the dashboard: `python serve.py`, or `make run`.

Serves only this machine, unless `BREAKEVEN_HOST` names another address to listen on: README,
Safety.
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
    # Imported objects stay in memory: to scan them for garbage takes a seventh of the time to
    # import them. `import_all` turns the collector on again.
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
from breakeven.views.access.permissions import let_scripts_run, may_act_by
from breakeven.views.report.serving import Reports
from breakeven.views.upkeep.serving import ROUTES, show_failure
from breakeven.views.upkeep.startup import Imported, keep_giving_back, prepare, share_arenas


@asynccontextmanager
async def preparing(app: App) -> AsyncIterator[None]:
    """Imports the modules of pages while the browser loads its own code. Provides threads, so that
    a slow request, such as a picture that waits for the one browser, delays no other file."""
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
"""Seconds to hold the session of a closed page, up to some ten MB each. A reader who returns later,
for example after a network failure, gets the page again from its address and fields."""

KEPT_SECONDS = 10.0
"""Least seconds that a generated file waits for its browser's request."""

GONE = ("BREAKEVEN_TEAM", "BREAKEVEN_HOSTNAMES", "BREAKEVEN_FILES")
"""Former variables that limited access: ignoring one would serve people against the administrator's
intention."""


def offer_no_components_of_packages() -> None:
    """Disables Streamlit's search for components in all installed packages. It reads their metadata
    four times, which takes a quarter of a start, and pages use only their own components."""
    BidiComponentManager.discover_and_register_components = (  # type: ignore[method-assign]
        lambda self, *, start_file_watching=True: None
    )


def keep_files_for_browsers() -> None:
    """Delays Streamlit's deletion of files for buttons, which comes after two page scripts have
    ended. A page that follows a run, or other readers, end scripts sooner than a slow network
    requests a file."""
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
        os.environ[HOST_VARIABLE] = serving.host  # Valid even if the file changes.
        proxied = doors.open_socket() if doors.has_sign_in() else None
    except SettingsUnusable as error:
        sys.exit(f"{error}.")
    with suppress(OSError):  # A page shows the error.
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
        "server.allowedHosts": ["*"],  # the middleware checks them
        "server.headless": True,
        "server.disconnectedSessionTTL": LEFT_SECONDS,
        "client.showErrorDetails": "none",  # `show_failure` does, to users who may act
        "browser.serverAddress": (*doors.own_names(), "localhost")[0],  # avoids a lookup
    }
    if proxied is None:
        app.run(config=options)
        return
    for name, value in options.items():
        config.set_option(name, value)
    server = uvicorn.Config(app, ws="websockets-sansio", access_log=False, forwarded_allow_ips="*")
    uvicorn.Server(server).run(sockets=[proxied])


if __name__ == "__main__":
    main()
