"""The command `join`: this machine takes part in runs that span several."""

import os
import signal
import socket
import subprocess
import sys
import threading
from types import FrameType

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.meetings import Meeting, Meetings
from breakeven.runner.folders.process import end_group, start_in_own_session
from breakeven.runner.machine.run_environment import for_runs
from breakeven.runner.project import PROJECT_ROOT

LOOK_SECONDS = 0.25


class Joiner:
    """Begins its part of every run that asks for machines, as long as there is a seat."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._meetings = Meetings(data_dir)
        self._holder = f"{socket.gethostname()}-{os.getpid()}"
        self._at_work: dict[tuple[str, int, int], subprocess.Popen[bytes]] = {}
        """By run, attempt and port."""

    def look(self) -> None:
        """Begins what is asked for, and takes note of what has ended."""
        self._meetings.keep_seats(self._holder)
        asked = {(one.run_id, one.attempt, one.port): one for one in self._meetings.all()}
        for key, meeting in asked.items():
            if key not in self._at_work:
                number = self._meetings.take_seat(meeting, self._holder)
                # One that went on without its `join` still works at what it began.
                if number is not None and not self._meetings.is_here(meeting.run_id, number):
                    self._at_work[key] = self._start(meeting, number)
        for key, process in list(self._at_work.items()):
            if process.poll() is not None and key not in asked:
                del self._at_work[key]

    def _start(self, meeting: Meeting, number: int) -> subprocess.Popen[bytes]:
        run = self._data_dir.run_dir(meeting.run_id)
        command = [
            sys.executable,
            "-m",
            "breakeven.runner.worker.ranks.node",
            str(run.path),
            str(number),
        ]
        sys.stdout.write(f"{meeting.run_id}: machine {number + 1} of {meeting.nodes}\n")
        sys.stdout.flush()
        output = run.path / f"output-{number}.log"
        return start_in_own_session(
            command, output=output, cwd=PROJECT_ROOT, env=for_runs(os.environ)
        )

    def close(self) -> None:
        """Ends all parts and gives the seats back."""
        for process in self._at_work.values():
            end_group(process)
        self._meetings.leave(self._holder)


def join(data_dir: DataDir, stop: threading.Event) -> None:
    """Takes part until `stop`."""
    joiner = Joiner(data_dir)
    try:
        while not stop.wait(LOOK_SECONDS):
            joiner.look()
    finally:
        joiner.close()


def join_until_stopped(data_dir: DataDir) -> int:
    """The command: until SIGTERM or Ctrl-C."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    join(data_dir, stop)
    return 0
