"""Tells an address of the operator's when a run fails or the disk fills: a POST of JSON each.

It has `text`, which chats show (Slack, Mattermost and others that take the same), and the facts by
name. Sending takes a thread of its own: no run waits for somebody else's server.
"""

import json
import os
import queue
import shutil
import socket
import threading
import time
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from runner.folders.queue import MIN_FREE_BYTES
from runner.folders.run_dir import DataDir
from runner.folders.states import RunState
from runner.logs import log
from runner.masking import mask
from runner.texts import printable

WEBHOOK_VARIABLE = "BREAKEVEN_WEBHOOK"
"""Where alerts go: an http or https address. Its name says that it is secret, as such ones are."""
ATTEMPTS = 3
PAUSE_SECONDS = 2.0
"""Before the second attempt; twice as long before each further one."""
LIMIT_SECONDS = 10.0
LAST_WORDS_SECONDS = 20.0
LOOK_SECONDS = 30.0
MOST_WAITING = 1_000


class Alerts:
    """What is worth an alert, and its way there; without an address it does nothing."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._address = os.environ.get(WEBHOOK_VARIABLE, "")
        self._waiting: queue.Queue[dict[str, Any]] = queue.Queue(MOST_WAITING)
        self._disk_was_full = False
        self._look_next = 0.0
        if self._address and urlsplit(self._address).scheme not in ("http", "https"):
            log.error("%s must be an http or https address; no alert is sent", WEBHOOK_VARIABLE)
            self._address = ""
        if self._address:
            threading.Thread(target=self._send_all, name="alerts", daemon=True).start()

    def run_ended(self, run_id: str, state: RunState, reason: str) -> None:
        """Tells of a run that ended otherwise than it should or was told to."""
        if state.is_failed:
            self._put("run", f"{run_id}: {state}, {reason}", run=run_id, state=str(state),
                      reason=reason)  # fmt: skip

    def look_at_disk(self) -> None:
        """Tells once when there is no more room for another experiment, and once there is again."""
        if not self._address or time.monotonic() < self._look_next:
            return
        self._look_next = time.monotonic() + LOOK_SECONDS
        try:
            free = shutil.disk_usage(self._data_dir.path).free
        except OSError:
            return
        is_full = free < MIN_FREE_BYTES
        if is_full != self._disk_was_full:
            self._disk_was_full = is_full
            said = "no room for another experiment" if is_full else "there is room again"
            self._put("disk", f"{said}: {free / 1e6:,.0f} MB are free", free_bytes=free)

    def finish(self) -> None:
        """Waits a little for what has not been sent."""
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while self._waiting.unfinished_tasks and time.monotonic() < deadline:
            time.sleep(0.02)

    def _put(self, kind: str, text: str, **facts: Any) -> None:
        if self._address:
            host = socket.gethostname()
            content = {"text": f"Breakeven on {host}: {printable(text)}", "kind": kind,
                       "host": host, "time": time.time(), **facts}  # fmt: skip
            try:
                self._waiting.put_nowait(content)
            except queue.Full:
                log.error("alerts wait and are not taken; one is dropped")

    def _send_all(self) -> None:
        while True:
            content = self._waiting.get()
            self._send(mask(json.dumps(content)).encode())
            self._waiting.task_done()

    def _send(self, body: bytes) -> None:
        for attempt in range(ATTEMPTS):
            request = urllib.request.Request(
                self._address, body, {"Content-Type": "application/json"}, method="POST"
            )
            try:
                with urllib.request.urlopen(request, timeout=LIMIT_SECONDS):
                    return
            except (OSError, ValueError) as error:
                log.warning("an alert was not taken: %s", error)
            time.sleep(PAUSE_SECONDS * 2**attempt)
