"""Notifications: an experiment ended, a run failed, a trend broke (docs/operating.md).

Apprise sends them to the addresses in `BREAKEVEN_NOTIFY`: mail, chats and a hundred other services.
A separate thread sends, so that no run waits for a server. A failed notification is logged and has
no other effect.
"""

import json
import logging
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from breakeven.runner.experiments.queue import Experiment
from breakeven.runner.extras import missing_words
from breakeven.runner.logs import log
from breakeven.runner.masking import mask
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import ExperimentState, RunState
from breakeven.runner.texts import printable

if TYPE_CHECKING:
    from apprise import Apprise

NOTIFY_VARIABLE = "BREAKEVEN_NOTIFY"
"""Addresses, separated by blanks. `masking` masks them as secrets."""
ATTEMPTS = 3
PAUSE_SECONDS = 2.0
"""Pause between two attempts at one address."""
MAX_WAITING = 1_000
FINISH_SECONDS = 20.0
"""How long an ending process waits for unsent notifications."""
MAX_BODY = 2_000
LOW_PRIORITY = 5
"""Nice value of the process that reads trends; with 19 it would starve next to busy processes."""
TREND_LIMIT_SECONDS = 600.0
ANSWER_LIMIT_SECONDS = 30.0
TREND_COMMAND = (
    sys.executable,
    "-m",
    "breakeven.storage",
    "trend",
    "--json",
    "--fail-if",
    "worse>2%",
)
"""The condition that docs/suites.md proposes for a nightly job."""
TREND_EXIT_STATUSES = (0, 1, 5)
"""Exit statuses of `breakeven trend` with JSON output."""
SHOW_COMMAND = (sys.executable, "-m", "breakeven.storage", "show", "--json")
SHOW_EXIT_STATUSES = (0, 1, 3, 4)
"""Exit statuses of `breakeven show` with JSON output."""


Kind = Literal["success", "failure", "warning", "info"]
NOTIFICATION_TYPES: dict[ExperimentState, Kind] = {
    ExperimentState.FINISHED: "success",
    ExperimentState.CANCELLED: "info",
}


class Notifier:
    """Sends notifications; without addresses it does nothing.

    Apprise is imported at once: a later import could disturb a measurement.
    """

    def __init__(self, addresses: str | None = None) -> None:
        given = os.environ.get(NOTIFY_VARIABLE, "") if addresses is None else addresses
        self.problems: list[str] = []
        """Errors of unusable addresses, without secrets."""
        self._services = self._load(given.split()) if given.strip() else None
        self._waiting: queue.Queue[tuple[str, str, Kind]] = queue.Queue(MAX_WAITING)
        """Titles, texts and kinds."""
        for problem in self.problems:
            log.error("%s", problem)
        if self.has_addresses:
            threading.Thread(target=self._send_all, name="notifications", daemon=True).start()

    @property
    def has_addresses(self) -> bool:
        """Whether any address can be used."""
        return bool(self._services)

    @property
    def service_names(self) -> list[str]:
        """The name of each address's service: `JSON`, `E-Mail`."""
        return [str(service.service_name) for service in self._services or ()]

    def _load(self, addresses: Sequence[str]) -> "Apprise | None":
        try:
            import apprise
        except ImportError:
            self.problems.append(f"{NOTIFY_VARIABLE} {missing_words('apprise')}")
            return None
        asset = apprise.AppriseAsset(
            app_id="Breakeven",
            app_desc="Breakeven",
            app_url="",
            image_url_mask="",
            storage_mode="memory",
            http_redirects=False,
            default_service_retry=ATTEMPTS - 1,
            default_service_wait=PAUSE_SECONDS,
        )
        services = apprise.Apprise(asset=asset)
        for number, address in enumerate(addresses, start=1):
            if not services.add(address):
                self.problems.append(
                    f"{NOTIFY_VARIABLE}: address {number} of {len(addresses)} is unknown to "
                    "Apprise (https://appriseit.com/services/)"
                )
        return services

    def run_ended(self, run_id: str, state: RunState, reason: str) -> None:
        """Notifies of a run that failed, exceeded a limit or vanished."""
        if state.is_failed:
            self._put(f"{run_id}: {state}", reason, "failure")

    def experiment_ended(self, experiment: Experiment, *, with_answer: bool = False) -> None:
        """Notifies of an experiment if all its runs have ended. `with_answer`: reads the answer in
        a process of low priority; only while no measurement runs."""
        states = [run.state for run in experiment.runs]
        if not all(state.is_final for state in states):
            return
        baselines = [
            state
            for state, arm in zip(states, experiment.arms, strict=True)
            if arm.role == "baseline"
        ]
        search_baseline_state = (
            baselines[0] if baselines and experiment.spec.kind.has_candidates else None
        )
        outcome = ExperimentState.from_runs(states, search_baseline_state)
        counts = ", ".join(f"{count} {state}" for state, count in Counter(states).items())
        answer = _read_answer(experiment) if with_answer and self.has_addresses else ""
        body = (
            f"{experiment.spec.name} on {experiment.spec.place}: runs: {counts}. {answer}"
            f"`breakeven show {experiment.experiment_id}` prints the comparison."
        )
        title = f"experiment {experiment.experiment_id} ended: {outcome.replace('_', ' ')}"
        self._put(title, body, NOTIFICATION_TYPES.get(outcome, "failure"))

    def trends_broke(self, data_dir: DataDir, ended: Collection[str]) -> None:
        """Notifies of each series that became worse with one of these experiments. Reads trends in
        a process of low priority; call it only while no measurement runs."""
        if not self.has_addresses or not ended:
            return
        try:
            for series in _read_trends(data_dir):
                worse = series["worse"]
                if worse is not None and worse["shown_by"] in ended:
                    self._put("a trend broke", worse["sentence"], "warning")
        except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
            log.error("trends could not be read: %s", mask(printable(error, 500)))

    def send_test(self) -> str | None:
        """Sends a test now; returns None if every service accepted it, else the error."""
        return self._send("test", "Notifications arrive.", "info")

    def finish(self) -> None:
        """Waits at most `FINISH_SECONDS` for unsent notifications."""
        deadline = time.monotonic() + FINISH_SECONDS
        while self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.02)

    def _put(self, title: str, body: str, kind: Kind) -> None:
        if not self.has_addresses:
            return
        try:
            self._waiting.put_nowait((title, body, kind))
        except queue.Full:
            log.error("too many notifications wait; one is dropped")

    def _send_all(self) -> None:
        while True:
            notification = self._waiting.get()
            try:
                problem = self._send(*notification)
                if problem is not None:
                    log.warning("a notification did not arrive: %s", problem)
            except Exception:  # The thread must send the next one.
                log.exception("a notification could not be sent")
            finally:
                self._waiting.task_done()

    def _send(self, title: str, body: str, kind: Kind) -> str | None:
        """Returns None if every service accepted it, else the error without secrets."""
        import apprise

        assert self._services is not None
        capture = apprise.LogCapture(level=logging.WARNING, fmt="%(message)s")  # type: ignore[no-untyped-call]
        with capture as captured:
            arrived = self._services.notify(
                title=f"Breakeven on {socket.gethostname()}: {printable(mask(title), 200)}",
                body=printable(mask(body or title), MAX_BODY),
                notify_type=kind,
                body_format=apprise.NotifyFormat.TEXT,
            )
            lines = dict.fromkeys(captured.getvalue().splitlines())
        if arrived:
            return None
        return mask(printable("; ".join(lines) or "no service accepted it", 500))


def _read_trends(data_dir: DataDir) -> list[dict[str, Any]]:
    """The series of all trends; raises `OSError`, `ValueError` or `subprocess.TimeoutExpired`."""
    series: list[dict[str, Any]] = _read_json(
        TREND_COMMAND, data_dir, TREND_EXIT_STATUSES, TREND_LIMIT_SECONDS
    )
    return series


def _read_answer(experiment: Experiment) -> str:
    """The sentence that page and terminal show, and a space; empty without an answer."""
    command = (*SHOW_COMMAND, experiment.experiment_id)
    try:
        shown = _read_json(command, experiment.data_dir, SHOW_EXIT_STATUSES, ANSWER_LIMIT_SECONDS)
        return f"{shown['answer']['words']} " if shown.get("answer") else ""
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        log.error("the answer could not be read: %s", mask(printable(error, 500)))
        return ""


def _read_json(
    arguments: Sequence[str], data_dir: DataDir, statuses: Collection[int], limit: float
) -> Any:
    """What a command prints as JSON, in a process of low priority; raises `OSError`, `ValueError`
    or `subprocess.TimeoutExpired`."""
    command = [*arguments, f"--data-folder={data_dir.path}"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        cwd=PROJECT_ROOT,
    ) as process:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, LOW_PRIORITY)
        try:
            answer, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    if process.returncode not in statuses:
        raise ValueError(errors.strip().rpartition("\n")[2])
    return json.loads(answer)
