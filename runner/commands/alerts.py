"""`breakeven alerts`: where alerts go, whether they arrive, what is worth one now."""

import argparse
import sys
import time
from collections.abc import Callable

from breakeven.runner.alerts.channels import NotTaken, channels
from breakeven.runner.alerts.events import Alerts, content_of
from breakeven.runner.alerts.settings import (
    SMTP_VARIABLE,
    WEBHOOK_VARIABLE,
    Settings,
    read_settings,
)
from breakeven.runner.alerts.told import Told
from breakeven.runner.alerts.trends import tell_broken_trends
from breakeven.runner.doctor.findings import Health
from breakeven.runner.doctor.processes import check_supervisor
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.texts import printable

NOT_TAKEN = 1
NOBODY = (f"nobody is told: set {WEBHOOK_VARIABLE} or {SMTP_VARIABLE} for supervisor and dashboard "
          "(docs/operating.md)")  # fmt: skip


def add_alert_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--test", action="store_true",
                         help="send one now: exit status 1 if it is not taken")  # fmt: skip
    command.add_argument(
        "--check", action="store_true",
        help="look at disk, supervisor and trends now and tell what was not told yet, for instance "
        "every night where the queue is never empty",
    )  # fmt: skip


def manage_alerts(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Says where alerts go, without secrets; 1 if a setting cannot be used or a test failed."""
    settings, told = read_settings(), Told(data_dir)
    for problem in settings.problems:
        sys.stderr.write(f"{problem}\n")
    if not settings.is_any:
        _print(NOBODY)
        return NOT_TAKEN if settings.problems or options.test else 0
    status = NOT_TAKEN if settings.problems else 0
    for line in described(settings, told):
        _print(line)
    if options.test and not all(send_test(settings, told, _print)):
        status = NOT_TAKEN
    if options.check:
        check(data_dir)
    return status


def described(settings: Settings, told: Told) -> list[str]:
    """A line for each way: where to, and what became of the last alert."""
    lines = [f"{channel.described}: {_last(told, channel.name)}" for channel in channels(settings)]
    return [*lines, f"disk: below {settings.min_free_bytes / 1e6:,.0f} MB free"]


def send_test(settings: Settings, told: Told, say: Callable[[str], None]) -> list[bool]:
    """Sends a test by each way and says what came of it; whether each was taken."""
    taken = []
    for channel in channels(settings):
        try:
            channel.send(content_of("test", "this is a test; alerts come this way"))
            error = None
        except NotTaken as found:
            error = str(found)
        told.sent(channel.name, error)
        say(f"{channel.described}: {'taken' if error is None else f'NOT taken: {error}'}")
        taken.append(error is None)
    return taken


def check(data_dir: DataDir) -> None:
    """Tells what is wrong now, if it was not told."""
    alerts = Alerts(data_dir)
    alerts.look_at_disk()
    found = check_supervisor(data_dir)
    alerts.problem("supervisor", found.evidence if found.health is Health.WRONG else None)
    worse = tell_broken_trends(data_dir, alerts)
    alerts.finish()
    _print(f"supervisor {found.health}: {printable(found.evidence)}; {worse} trends are worse than "
           "they were")  # fmt: skip


def _last(told: Told, channel: str) -> str:
    found = told.last(channel)
    if found is None:
        return "none was sent yet"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(found["time"])))
    error = found.get("error")
    return f"the last at {when} was " + (f"NOT taken: {printable(error)}" if error else "taken")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
