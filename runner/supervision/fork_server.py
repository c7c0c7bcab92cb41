"""The process from which the runs of an experiment are forked, so that they import only once what
they all need. Where it cannot be had or would not be safe, runs start afresh."""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from breakeven.runner.logs import log
from breakeven.runner.machine.placement import Place
from breakeven.runner.machine.run_variables import process_variables
from breakeven.runner.processes import (
    AdoptedProcess,
    end_group,
    has_exited,
    start_in_own_session,
)
from breakeven.runner.protocol.fork_requests import FORK_OPTION, ROOM, ForkClient
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.turns import TurnPost

LOADING_SECONDS = 120.0
"""How long the process may import before runs start without it."""
FORKING_SECONDS = 5.0
"""How long a fork may take, which takes milliseconds."""
SET_SUBREAPER, GET_SUBREAPER = 36, 37
"""Linux's PR_SET_CHILD_SUBREAPER and PR_GET_CHILD_SUBREAPER, prctl(2)."""
_adoption = threading.Lock()


class Fork(NamedTuple):
    """A forked process that waits to become a run."""

    process: AdoptedProcess
    post: TurnPost
    since: float
    """When its run began, in seconds since the epoch: that of the first fork with the import."""


class ForkServer:
    """A process that imports, and is forked on request."""

    def __init__(
        self,
        like: RunDir,
        command: Sequence[str],
        place: Place,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`like`: a run of the experiment; `variables`: environment variables that the experiment
        sets. Raises `OSError`."""
        self._experiment_id = like.run_id.partition(".")[0]
        self._variables = variables or {}
        self._client = ForkClient()
        self._is_loaded = False
        self._importing_since: float | None = time.time()
        self.is_gone = False
        """Whether there is no process, or none that may be forked."""
        self._deadline = time.monotonic() + LOADING_SECONDS
        # A later supervisor kills all processes whose run folder lies in the data folder. Forks
        # write their own folder over this one, which may be longer.
        folder = like.path.with_name(f"{self._experiment_id}.forks")
        room = "/" * len(ROOM)
        environment = process_variables(f"{folder}{room}", place, self._variables)
        fd = self._client.server_fd
        arguments = [*command, FORK_OPTION, str(fd), str(like.path), ROOM]
        try:
            self.process = start_in_own_session(arguments, Path(os.devnull), environment, [fd])
        except OSError:
            self._client.close()
            raise
        finally:
            self._client.close_server_end()

    @staticmethod
    def is_possible() -> bool:
        """Whether this system has what forks need: /proc, and the adoption of processes."""
        return sys.platform == "linux"

    @property
    def is_loading(self) -> bool:
        """Whether it still imports what runs need."""
        if not (self.is_gone or self._is_loaded):
            self._hear()
            if time.monotonic() > self._deadline:
                self._give_up(f"it imported for longer than {LOADING_SECONDS:g} s")
        return not (self.is_gone or self._is_loaded)

    @property
    def has_exited(self) -> bool:
        return has_exited(self.process)

    def _hear(self) -> None:
        try:
            message = self._client.hear()
        except (OSError, ValueError) as error:
            self._give_up(str(error))
            return
        if message is not None:
            self._is_loaded = "loaded" in message
            if not self._is_loaded:
                self._give_up(str(message.get("refused")))

    def fork(self, variables: Mapping[str, str] | None = None) -> Fork | None:
        """A forked process, which is a child of this one; None if there is none, or if the run has
        other `variables`, which libraries may read when they are imported."""
        if self.is_loading or self.is_gone or (variables or {}) != self._variables:
            return None
        post = TurnPost()
        try:
            with _adopting():
                answer = self._client.ask(post.run_fds, FORKING_SECONDS)
            pid = answer.get("forked")
            if not isinstance(pid, int) or not _is_child(pid):
                raise ValueError(answer.get("refused") or f"process {pid} was not adopted")
        except (OSError, ValueError) as error:
            post.close()  # A process that was forked nevertheless ends when it notices this.
            self._give_up(str(error))
            return None
        finally:
            post.close_run_ends()
        since, self._importing_since = self._importing_since or time.time(), None
        return Fork(AdoptedProcess(pid), post, since)

    def _give_up(self, why: str) -> None:
        log.info("%s: further runs start afresh: %s", self._experiment_id, why)
        self.discard()

    def discard(self) -> None:
        """Kills the process, but none that was forked from it."""
        if not self.is_gone:
            self.is_gone = True
            end_group(self.process)
            self._client.close()


@contextmanager
def _adopting() -> Iterator[None]:
    """Meanwhile processes whose parent ends become children of this process, if they descend from
    it; otherwise those of the system's first process."""
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    before = ctypes.c_int()
    with _adoption:
        prctl(GET_SUBREAPER, ctypes.addressof(before), 0, 0, 0)
        prctl(SET_SUBREAPER, 1, 0, 0, 0)
        try:
            yield
        finally:
            prctl(SET_SUBREAPER, before.value, 0, 0, 0)


def _is_child(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
