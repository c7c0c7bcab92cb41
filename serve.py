"""Serves the dashboard: `python serve.py`, or `make run`.

On this machine alone, unless `BREAKEVEN_HOST` names another address to listen on: README, Safety.
"""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

if __name__ == "__main__":
    # What is imported stays: looking through it for what does not would be a seventh of importing
    # it. `import_all` turns the collector on again.
    gc.disable()

from starlette.middleware import Middleware
from streamlit import App

from breakeven.runner.errors import SettingsUnusable
from breakeven.runner.folders.data_dir import DataDir, default_data_folder
from breakeven.runner.logs import DASHBOARD, log, open_log
from breakeven.runner.project import PACKAGE
from breakeven.runner.settings import read_settings
from breakeven.views.access.bundle import Bundle
from breakeven.views.access.doors import Doors, address, hold_the_other_loopback, own_names, port
from breakeven.views.access.home import Home
from breakeven.views.access.lasting import Lasting
from breakeven.views.access.messages import Messages
from breakeven.views.access.patience import give_up_at_last
from breakeven.views.access.permissions import NotAllowed, allowed_to_others, may_act_by
from breakeven.views.access.session import signed_out
from breakeven.views.access.signin import SignIn
from breakeven.views.access.team import TEAM_VARIABLE, Team, TeamUnusable, read_team
from breakeven.views.access.uploads import let_scripts_run
from breakeven.views.comparison.ahead import Imported, prepare_all
from breakeven.views.report.serving import Reports
from breakeven.views.upkeep.failing import show_failure
from breakeven.views.upkeep.memory import keep_giving_back, share_arenas
from breakeven.views.upkeep.serving import ROUTES
from breakeven.views.upkeep.starting import offer_no_components_of_packages


@asynccontextmanager
async def preparing(app: App) -> AsyncIterator[None]:
    """While a browser loads what it draws pages with, the server imports what fills them. And what
    waits, such as a picture for the one browser, keeps no other file from being made."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(MAX_WAITING))
    let_scripts_run()
    Thread(target=prepare_all, daemon=True).start()
    yield


layers = [
    Middleware(Doors, may_upload=may_act_by),
    Middleware(SignIn),
    Middleware(Messages),
    Middleware(Home),
    Middleware(Lasting),
    Middleware(Reports),
    Middleware(Bundle),
    Middleware(Imported),
]
SWITCH_SECONDS = 0.0005
"""For which a thread that computes keeps others from their turn. Who serves a page's files needs
dozens of turns, and Python's own 5 ms for each would make them a second."""
MAX_WAITING = 64
"""Threads for what pages ask for beside being drawn; on two processors Python's own would be 6."""
LEFT_SECONDS = 30
"""That what a reader looked at is held once the page is left, up to some ten MB for each. Who comes
back later, after a nap of the network, gets it from the address and the fields of the page."""


def the_team() -> Team | None:
    """Who may sign in, where people are to; raises `TeamUnusable`."""
    file = os.environ.get(TEAM_VARIABLE)
    if not file:
        return None
    if find_spec("authlib") is None:
        raise TeamUnusable(f"{TEAM_VARIABLE} needs Authlib: pip install -r requirements-team.txt")
    return read_team(Path(file))


def main() -> None:
    share_arenas()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        allowed_to_others()
        team = the_team()
        folder = DataDir(default_data_folder())
        read_settings(folder.path)
    except (NotAllowed, SettingsUnusable, TeamUnusable) as error:
        sys.exit(f"{error}.")
    with suppress(OSError):  # A page says so.
        folder.make()
    open_log(folder.logs, DASHBOARD)
    signed_out.open(folder)
    log.info("dashboard begins", extra={"fields": {"address": address(), "port": port()}})
    keep_giving_back()
    give_up_at_last()
    offer_no_components_of_packages()
    held = hold_the_other_loopback()
    app = App(
        str(PACKAGE / "dashboard.py"),
        lifespan=preparing,
        middleware=layers,
        routes=ROUTES,
        on_script_error=show_failure,
        secrets=None if team is None else team.secrets(),
    )
    app.run(
        config={
            "server.address": address(),
            "server.port": port(),
            "server.allowedHosts": ["*"],  # the middleware knows them
            "server.headless": True,
            "server.disconnectedSessionTTL": LEFT_SECONDS,
            "client.showErrorDetails": "none",  # `show_failure` does, to whom it may concern
            "browser.serverAddress": (*own_names(), "localhost")[0],  # nobody is asked for it
        }
    )
    if held is not None:
        held.close()


if __name__ == "__main__":
    main()
