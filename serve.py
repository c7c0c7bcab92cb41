"""Serves the dashboard: `python serve.py`, or `make run`.

Serves only this machine, unless `BREAKEVEN_HOST` names another address (docs/operating.md).
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from threading import Thread

from starlette.middleware import Middleware
from streamlit import App

from breakeven.runner import secret_link
from breakeven.runner.commands.entry import tell
from breakeven.runner.errors import SettingsUnusable
from breakeven.runner.logs import DASHBOARD, log, open_log
from breakeven.runner.project import PACKAGE
from breakeven.runner.protocol.data_dir import DataDir, default_data_folder
from breakeven.runner.settings import HOST_VARIABLE, read_settings
from breakeven.views.access import request_checks
from breakeven.views.access.permissions import let_scripts_run, may_act_by
from breakeven.views.report.endpoint import Reports
from breakeven.views.upkeep.serving import ROUTES, show_failure
from breakeven.views.upkeep.startup import compare_ahead, import_pages


@asynccontextmanager
async def preparing(app: App) -> AsyncIterator[None]:
    """Provides threads, so that a slow request, such as a picture that waits for the one browser,
    delays no other file."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(MAX_WAITING))
    let_scripts_run()
    Thread(target=compare_ahead, daemon=True).start()
    yield


layers = [Middleware(request_checks.RequestChecks, may_upload=may_act_by), Middleware(Reports)]
MAX_WAITING = 64
"""Threads for the requests of pages, apart from drawing; Python's own default would be 6 on two
processors."""
LEFT_SECONDS = 30
"""Seconds to hold the session of a closed page, up to some ten MB each. A reader who returns later,
for example after a network failure, gets the page again from its address and fields."""


def main() -> None:
    folder = DataDir(default_data_folder())
    try:
        serving = read_settings(folder.path).serving
    except SettingsUnusable as error:
        sys.exit(f"{error}.")
    os.environ[HOST_VARIABLE] = serving.host  # Valid even if the file changes.
    with suppress(OSError):  # A page shows the error.
        folder.make()
    open_log(folder.logs, DASHBOARD)
    where = {"address": serving.host, "port": serving.port}
    log.info("dashboard begins", extra={"fields": where})
    import_pages()
    token = None
    with suppress(OSError):  # As above.
        token = secret_link.ensure(folder)
    tell(secret_link.start_words(serving, token))
    app = App(
        str(PACKAGE / "dashboard.py"),
        lifespan=preparing,
        middleware=layers,
        routes=ROUTES,
        on_script_error=show_failure,
    )
    options = {
        "server.address": serving.host,
        "server.port": serving.port,
        "server.allowedHosts": ["*"],  # the middleware checks them
        "server.headless": True,
        "server.disconnectedSessionTTL": LEFT_SECONDS,
        "client.showErrorDetails": "none",  # `show_failure` does, to users who may act
        "browser.serverAddress": (*request_checks.own_names(), "localhost")[0],  # avoids a lookup
    }
    app.run(config=options)


if __name__ == "__main__":
    main()
