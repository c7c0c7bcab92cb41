"""Serves the dashboard: `python serve.py`, or `make run`.

On this machine alone, unless `BREAKEVEN_HOST` names another address to listen on: README, Safety.
"""

import sys
from threading import Thread

from starlette.middleware import Middleware
from streamlit import App

from views.access.doors import Doors, address, own_names, port
from views.access.home import Home
from views.access.permissions import NotAllowed, allowed_to_others, may_act_by
from views.comparison.ahead import prepare
from views.report.serving import Reports

doors = Middleware(Doors, may_upload=may_act_by)
app = App("dashboard.py", middleware=[doors, Middleware(Home), Middleware(Reports)])

if __name__ == "__main__":
    try:
        allowed_to_others()
    except NotAllowed as error:
        sys.exit(f"{error}.")
    Thread(target=prepare, daemon=True).start()
    app.run(
        config={
            "server.address": address(),
            "server.port": port(),
            "server.allowedHosts": ["*"],  # the middleware knows them
            "server.headless": True,
            "browser.serverAddress": (*own_names(), "localhost")[0],  # nobody is asked for it
        }
    )
