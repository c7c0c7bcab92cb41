"""Whether a trend broke, asked of storage in a process of its own, at the lowest priority."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from breakeven.runner.alerts.events import Alerts
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.logs import log
from breakeven.runner.masking import mask
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.texts import printable

LIMIT_SECONDS = 600.0
LOWEST = 19
JUDGED = (0, 1, 5)
"""Exit statuses of `breakeven trend` that come with an answer."""
COMMAND = (sys.executable, "-m", "breakeven.storage", "trend", "--json", "--fail-if", "worse>2%")
"""The condition that docs/ci-gate.md proposes for a nightly job."""


def tell_broken_trends(data_dir: DataDir, alerts: Alerts) -> int:
    """Tells of each series that came to a worse level, once; returns how many are worse now."""
    command = [*COMMAND, f"--data-folder={data_dir.path}"]
    try:
        said, errors, status = _run(command)
        if status not in JUDGED:
            raise ValueError(errors.strip().rpartition("\n")[2])
        found = [one for one in json.loads(said) if one["worse"] is not None]
        for one in found:
            series = " ".join((one["quantity"], one["workload"], one["device"], one["backend"]))
            times = {point["experiment_id"]: _mark(point["submitted"]) for point in one["points"]}
            since, newest = one["worse"]["experiment_id"], max(times.values())
            broke = f"a trend broke: {one['worse']['said']}"
            alerts.trend_broke(series, since, times[since], newest, broke)
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        log.error("trends could not be asked for: %s", mask(printable(error, 500)))
        return 0
    return len(found)


def _mark(submitted: str | None) -> str:
    """By which experiments are in order of time; ids from elsewhere may begin with anything."""
    return "" if submitted is None else f"{datetime.fromisoformat(submitted):%Y%m%d-%H%M%S-%f}"


def _run(command: Sequence[str]) -> tuple[str, str, int]:
    """What a command says, its errors and its exit status."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", cwd=PROJECT_ROOT) as process:  # fmt: skip
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, LOWEST)
        try:
            said, errors = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return said, errors, process.returncode
