"""Lets the machines of one run find each other through files in `meetings/` of the shared data
folder.

    RUN.json            address of the run's first machine          its process there
    EXPERIMENT.N.seat   which machine is number N                   `queue start --join` there
    RUN.N.here          number N is about to begin                  the run's process there
    RUN.N.failed        why number N failed                         the run's process there

A seat is kept for an experiment, because compared runs use the same machines. Its holder touches
it; a seat without a touch for a while is free for another machine.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.runner.files import write_atomically
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.settings import read_settings
from breakeven.runner.specs.fields import Spec
from breakeven.runner.texts import read_json

KEPT_SECONDS = 60.0
"""How long a seat is kept for a silent machine."""


@dataclass(frozen=True, kw_only=True)
class Meeting(Spec):
    """The address at which the first machine of a run waits for the others."""

    run_id: str
    attempt: int
    nodes: int
    """Number of machines, with the first."""
    address: str
    port: int
    devices: tuple[str, ...]
    """The devices of every machine."""

    @property
    def experiment_id(self) -> str:
        return self.run_id.partition(".")[0]


class Meetings:
    """The folder `meetings/` of a data folder."""

    def __init__(self, data_dir: DataDir) -> None:
        self._folder = data_dir.path / "meetings"

    def call(self, meeting: Meeting) -> None:
        """Publishes the meeting; removes the files of an earlier attempt."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self.close(meeting.run_id)
        write_atomically(self._of(meeting.run_id), meeting.to_json())

    def close(self, run_id: str) -> None:
        """Removes the files of a run that has ended, but keeps the seats."""
        for file in self._folder.glob(f"{run_id}.*"):
            if file.suffix != ".seat":
                file.unlink(missing_ok=True)

    def read(self, run_id: str) -> Meeting | None:
        """The meeting of a run; None if it is missing or unreadable."""
        try:
            return Meeting.from_json(self._of(run_id).read_text())
        except (OSError, ValueError):
            return None

    def all(self) -> Iterator[Meeting]:
        for file in sorted(self._folder.glob("*.json")):
            meeting = self.read(file.stem)
            if meeting is not None:
                yield meeting

    def come(self, run_id: str, number: int) -> None:
        (self._folder / f"{run_id}.{number}.here").touch()

    def is_here(self, run_id: str, number: int) -> bool:
        """Whether a machine has begun as this number."""
        return (self._folder / f"{run_id}.{number}.here").exists()

    def num_here(self, run_id: str) -> int:
        """The number of further machines that are about to begin."""
        return sum(1 for _ in self._folder.glob(f"{run_id}.*.here"))

    def fail(self, run_id: str, number: int, failure: dict[str, Any]) -> None:
        write_atomically(self._folder / f"{run_id}.{number}.failed", json.dumps(failure))

    def failures(self, run_id: str) -> list[dict[str, Any]]:
        """The failures of further machines, unchanged."""
        reports = []
        for file in sorted(self._folder.glob(f"{run_id}.*.failed")):
            with suppress(OSError, ValueError):
                reports.append(read_json(file.read_text()))
        return reports

    def take_seat(self, meeting: Meeting, holder: str) -> int | None:
        """Gives a machine a number that it keeps for the experiment; None if all are taken.
        `holder` is a unique name of the machine."""
        seats = [
            self._folder / f"{meeting.experiment_id}.{number}.seat"
            for number in range(1, meeting.nodes)
        ]
        now = self._now(holder)
        for number, seat in enumerate(seats, start=1):
            if _holder(seat) == holder:
                os.utime(seat)
                return number
        for number, seat in enumerate(seats, start=1):
            with suppress(OSError):
                if now - seat.stat().st_mtime > KEPT_SECONDS:
                    seat.unlink(missing_ok=True)
            try:
                with seat.open("x") as file:
                    file.write(holder)
                return number
            except FileExistsError:
                continue
        return None

    def keep_seats(self, holder: str) -> None:
        """Shows that the holder of seats still works."""
        for seat in self._seats_of(holder):
            with suppress(OSError):
                os.utime(seat)

    def leave(self, holder: str) -> None:
        """Gives all seats back."""
        for seat in self._seats_of(holder):
            seat.unlink(missing_ok=True)
        (self._folder / f"{holder}.clock").unlink(missing_ok=True)

    def _seats_of(self, holder: str) -> list[Path]:
        return [seat for seat in self._folder.glob("*.seat") if _holder(seat) == holder]

    def _now(self, holder: str) -> float:
        """The time by the clock of the file system, which may be another machine's."""
        clock = self._folder / f"{holder}.clock"
        clock.touch()
        return clock.stat().st_mtime

    def _of(self, run_id: str) -> Path:
        return self._folder / f"{run_id}.json"


def _holder(seat: Path) -> str | None:
    try:
        return seat.read_text()
    except OSError:
        return None


def own_address(data_dir: DataDir) -> str:
    """The address of this machine for others: from the settings, or its host name. Raises
    `SettingsUnusable`."""
    name = socket.gethostname()
    return read_settings(data_dir.path).addresses.get(name, name)


def free_port() -> int:
    """A free port: no process listens on it now."""
    with socket.socket(
        socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    ) as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def wait_for_others(meetings: Meetings, meeting: Meeting, patience_seconds: float) -> bool:
    """Whether all further machines came in time."""
    deadline = time.monotonic() + patience_seconds
    while meetings.num_here(meeting.run_id) < meeting.nodes - 1:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
