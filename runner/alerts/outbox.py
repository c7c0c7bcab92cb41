"""Sends alerts in threads of their own, so that nobody waits for somebody else's server."""

import queue
import threading
import time

from breakeven.runner.alerts.channels import Channel, Content, NotTaken
from breakeven.runner.alerts.told import Told
from breakeven.runner.logs import log

ATTEMPTS = 3
PAUSE_SECONDS = 2.0
"""Before the second attempt; twice as long before each further one."""
MOST_WAITING = 1_000


class Outbox:
    """What waits to be sent by one channel."""

    def __init__(self, channel: Channel, told: Told) -> None:
        self._channel = channel
        self._told = told
        self._waiting: queue.Queue[Content] = queue.Queue(MOST_WAITING)
        threading.Thread(target=self._send_all, name=f"alerts by {channel.name}",
                         daemon=True).start()  # fmt: skip

    def put(self, content: Content) -> None:
        """Returns at once; of more than wait already one is dropped, which the log tells."""
        try:
            self._waiting.put_nowait(content)
        except queue.Full:
            log.error("alerts wait and are not taken; one is dropped")

    @property
    def num_waiting(self) -> int:
        return self._waiting.qsize()

    @property
    def is_done(self) -> bool:
        return not self._waiting.unfinished_tasks

    def _send_all(self) -> None:
        while True:
            content = self._waiting.get()
            try:
                self._told.sent(self._channel.name, self._send(content))
            except Exception:  # the next one is sent all the same
                log.exception("an alert could not be sent")
            finally:
                self._waiting.task_done()

    def _send(self, content: Content) -> str | None:
        """Why it was not taken in the end; None if it was."""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
            try:
                self._channel.send(content)
                return None
            except NotTaken as error:
                why = str(error)
                log.warning("an alert was not taken by %s: %s", self._channel.name, why)
        return why
