"""What is worth an alert: failed runs, broken trends, a disk that fills, work that hangs.

Each is told once, and of what lasts also its end, by whoever of supervisor and dashboard sees it
first.
"""

import shutil
import socket
import time
from typing import Any

from breakeven.runner.alerts.channels import channels
from breakeven.runner.alerts.outbox import Outbox
from breakeven.runner.alerts.settings import Settings, read_settings
from breakeven.runner.alerts.told import Told
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.states import RunState
from breakeven.runner.logs import log
from breakeven.runner.texts import printable

LAST_WORDS_SECONDS = 20.0
LOOK_SECONDS = 30.0
ENOUGH_MORE = 1.1
"""So many times the threshold must be free again until the disk counts as emptied."""
OVER = {
    "supervisor": "supervising goes on again",
    "index": "pages show what the run folders hold again",
}
"""What is said once it is no longer wrong."""


class Alerts:
    """What is worth an alert, and its way there; without an address it does nothing."""

    def __init__(self, data_dir: DataDir, settings: Settings | None = None) -> None:
        self._data_dir = data_dir
        self._settings = read_settings() if settings is None else settings
        for problem in self._settings.problems:
            log.error("%s; no alert goes there", problem)
        self._told = Told(data_dir)
        self._outboxes = [Outbox(channel, self._told) for channel in channels(self._settings)]
        self._look_next = 0.0

    @property
    def is_any(self) -> bool:
        """Whether there is somebody to tell."""
        return bool(self._outboxes)

    def run_ended(self, run_id: str, state: RunState, reason: str) -> None:
        """Tells of a run that ended otherwise than it should or was told to."""
        if state.is_failed:
            self._put("run", f"{run_id}: {state}, {reason}", run=run_id, state=str(state),
                      reason=reason)  # fmt: skip

    def trend_broke(
        self, series: str, experiment_id: str, when: str, newest: str, said: str
    ) -> None:
        """Tells of numbers that came to a worse level with an experiment, submitted at `when`,
        unless it was told: of what begins no later than `newest`, the latest that was there when
        the series was last told of. Times are texts that sort."""
        if self.is_any and self._told.is_later(f"trend {series}", when, newest):
            self._put("trend", said, experiment=experiment_id)

    def problem(self, kind: str, said: str | None, **facts: Any) -> None:
        """Tells of something that is wrong, in a sentence, or None for that it is not, whenever
        that changes."""
        if self.is_any and self._told.turns(kind, said is not None):
            self._put(kind, OVER.get(kind, f"{kind}: all is well again") if said is None else said,
                      is_over=said is None, **facts)  # fmt: skip

    def look_at_disk(self) -> None:
        """Tells once when the disk fills, and once there is room again."""
        if not self.is_any or time.monotonic() < self._look_next:
            return
        self._look_next = time.monotonic() + LOOK_SECONDS
        try:
            free = shutil.disk_usage(self._data_dir.path).free
        except OSError:
            return
        least = self._settings.min_free_bytes
        is_full = free < least * (ENOUGH_MORE if self._told.is_wrong("disk") else 1)
        if self._told.turns("disk", is_full):
            said = "the disk fills" if is_full else "there is room on the disk again"
            self._put("disk", f"{said}: {free / 1e6:,.0f} MB are free where the data folder lies, "
                      f"and {least / 1e6:,.0f} MB should be", free_bytes=free,
                      is_over=not is_full)  # fmt: skip

    def finish(self) -> None:
        """Waits a little for what has not been sent."""
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while any(not one.is_done for one in self._outboxes) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _put(self, kind: str, text: str, **facts: Any) -> None:
        content = content_of(kind, text, **facts)
        for outbox in self._outboxes:
            outbox.put(content)


def content_of(kind: str, text: str, **facts: Any) -> dict[str, Any]:
    """An alert: `text` is what chats show, the rest is for programs."""
    host = socket.gethostname()
    return {"text": f"Breakeven on {host}: {printable(text, 2000)}", "kind": kind, "host": host,
            "time": time.time(), **facts}  # fmt: skip
