"""What the doctor sees beside a training, looked at now and then while pages are read."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from breakeven.runner.doctor.examination import look
from breakeven.runner.doctor.findings import Finding, Health
from breakeven.runner.folders.data_dir import DataDir

EVERY_SECONDS = 30.0
FIRST_SECONDS = 5.0
"""Before the first look, which passes over every run: a first page has the machine to itself."""
LASTING_SECONDS = 20.0
"""What is wrong for a shorter time was about to be mended: a supervisor that starts, a run that is
being closed."""


class Watching:
    """The last findings of each data folder; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="doctor")
        self._looks: dict[Path, tuple[float, Future[list[Finding]] | None]] = {}
        self._since: dict[tuple[Path, str], float] = {}

    def wrong(self, data_dir: DataDir) -> list[Finding]:
        """What has been wrong for a while, at once: as of the last look, and the next one is begun
        if it is time."""
        now, folder = time.monotonic(), data_dir.path
        with self._lock:
            earlier = now - EVERY_SECONDS + FIRST_SECONDS
            begun, answer = self._looks.setdefault(folder, (earlier, None))
            found = self._noted(folder, begun, answer)
            if now - begun >= EVERY_SECONDS and (answer is None or answer.done()):
                self._looks[folder] = (now, self._workers.submit(look, data_dir))
        return found

    def _noted(
        self, folder: Path, begun: float, answer: "Future[list[Finding]] | None"
    ) -> list[Finding]:
        if answer is None or not answer.done():
            return []
        wrong = [one for one in answer.result() if one.health is Health.WRONG]
        subjects = {(folder, one.subject) for one in wrong}
        for gone in [key for key in self._since if key[0] == folder and key not in subjects]:
            del self._since[gone]
        for key in subjects:
            self._since.setdefault(key, begun)
        return [one for one in wrong
                if begun - self._since[folder, one.subject] >= LASTING_SECONDS]  # fmt: skip


watching = Watching()
