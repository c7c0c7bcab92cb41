"""The dashboard's part in alerts: what a supervisor that hangs, or is none, cannot tell itself."""

import time

from breakeven.runner.alerts.events import Alerts
from breakeven.runner.logs import log
from breakeven.views.shared.resources import data_dir
from breakeven.views.upkeep.state import State, look

EVERY_SECONDS = 30.0


def watch_over() -> None:
    """Looks now and then, whether or not a page is open; returns at once if nobody is to be
    told."""
    alerts = Alerts(data_dir())
    while alerts.is_any:
        time.sleep(EVERY_SECONDS)
        try:
            tell(alerts, look())
        except Exception:  # the next look is made all the same
            log.exception("looking for what is worth an alert failed")


def tell(alerts: Alerts, state: State) -> None:
    """Tells of what is wrong, and of what no longer is."""
    alerts.look_at_disk()
    for kind in ("supervisor", "index"):
        alerts.problem(kind, state.problem_of(kind))
