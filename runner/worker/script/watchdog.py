"""Ends a script that makes no steps: the other runs, and the person, would wait for ever."""

import faulthandler
import os
import sys
import threading
import time
from typing import Any

from breakeven.runner.supervision.exits import WorkerExit
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.script.session import ScriptSession

LOOK_SECONDS = 1.0
TOO_LONG = (
    "no step for {patience:g} s: the script neither compiled nor waited for its turn. If it trains "
    "meanwhile, say where a step ends, with breakeven.step(loss) behind optimizer.step(); if it "
    "needs so long, give it a larger --patience-seconds. Where it was stands in the output"
)


class Watchdog:
    """Looks once a second while a script runs."""

    def __init__(self, session: ScriptSession, patience_seconds: float, log: EventLog) -> None:
        self._session = session
        self._patience = patience_seconds
        self._log = log
        self._over = threading.Event()

    def __enter__(self) -> "Watchdog":
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._over.set()

    def _watch(self) -> None:
        seen, since = -1, time.monotonic()
        while not self._over.wait(LOOK_SECONDS):
            if self._session.num_steps != seen or self._session.is_excused:
                seen, since = self._session.num_steps, time.monotonic()
            elif time.monotonic() - since > self._patience:
                self._end()

    def _end(self) -> None:
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
        message = TOO_LONG.format(patience=self._patience)
        sys.stderr.write(message + "\n")
        self._log.append("error", error="WorkloadError", message=message, traceback=message,
                         out_of_memory=False)  # fmt: skip
        self._log.flush(durable=True)
        os._exit(WorkerExit.FAILED)
