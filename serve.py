"""Serves the dashboard: `python serve.py`, or `make run`.

On this machine alone, unless `BREAKEVEN_HOST` names another address to listen on: README, Safety.
"""

import gc
import sys
from importlib import import_module
from threading import Thread

from starlette.middleware import Middleware
from streamlit import App

from views.access.doors import Doors, address, own_names, port
from views.access.home import Home
from views.access.permissions import NotAllowed, allowed_to_others, may_act_by
from views.report.serving import Reports

doors = Middleware(Doors, may_upload=may_act_by)
NEEDED_LATER = ("storage.comparison.comparison", "views.comparison.charts", "scipy.special")
"""What the first page takes a second to import, which a server has until somebody opens it."""


def load_ahead() -> None:
    """Imports what is needed later, and has the garbage collector pass over what never is any."""
    for name in NEEDED_LATER:
        import_module(name)
    gc.freeze()


app = App("dashboard.py", middleware=[doors, Middleware(Home), Middleware(Reports)])

if __name__ == "__main__":
    try:
        allowed_to_others()
    except NotAllowed as error:
        sys.exit(f"{error}.")
    Thread(target=load_ahead, daemon=True).start()
    app.run(
        config={
            "server.address": address(),
            "server.port": port(),
            "server.allowedHosts": ["*"],  # the middleware knows them
            "server.headless": True,
            "browser.serverAddress": (*own_names(), "localhost")[0],  # nobody is asked for it
        }
    )
