"""Records in a run folder: claims, exits and labels.

The folder may be a copy from anywhere, so all content is checked.
"""

import os
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Annotated

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.fields import Bounds, Spec
from breakeven.runner.specs.place import check_cpus

MAX_TIME = 9e9
"""Seconds since the epoch that data frames can hold as a date: the year 2255."""
TIME = Bounds(0, MAX_TIME, "data frames hold no later date", unit="s")


@dataclass(frozen=True, kw_only=True)
class Claim(Spec):
    """The process that executes a run. Times are seconds since the epoch."""

    host: str
    process: ProcessIdentity
    supervisor: ProcessIdentity
    time: Annotated[float, TIME]
    devices: tuple[str, ...] = ()
    """Its devices, if the supervisor chose them."""
    cpus: str | None = None
    """CPUs that only its experiment uses, such as `0-3`."""
    node: str | None = None
    """The machine that it runs on, if it is not the claiming host."""
    is_forked: bool = False
    """Whether the process was forked from one that had imported what all runs of the experiment
    need; otherwise it started afresh."""
    is_own_supervisor: bool = False
    """Whether nobody else starts, stops or resumes the run: a training that decides itself."""

    @classmethod
    def by(
        cls, process: ProcessIdentity, devices: tuple[str, ...] = (), cpus: str | None = None
    ) -> "Claim":
        """A claim made now, on this machine, by the calling process."""
        return cls(
            host=socket.gethostname(),
            process=process,
            supervisor=ProcessIdentity.from_pid(os.getpid()),
            time=time.time(),
            devices=devices,
            cpus=cpus,
        )

    def check_rules(self) -> None:
        check_cpus(self.cpus)

    @property
    def is_from_this_host(self) -> bool:
        return self.host == socket.gethostname()


EXIT_STATUS = Bounds(1 - 2**31, 2**31 - 1, "no system has a higher one")


@dataclass(frozen=True, kw_only=True)
class Exit(Spec):
    """How a run ended. `time` is in seconds since the epoch; `reason` is one sentence."""

    state: RunState
    reason: str
    returncode: Annotated[int | None, EXIT_STATUS]
    """Exit status of the process, negative for a signal; None if its end was not observed."""
    time: Annotated[float, TIME]

    @classmethod
    def now(cls, state: RunState, reason: str, returncode: int | None) -> "Exit":
        return cls(state=state, reason=reason, returncode=returncode, time=time.time())

    def check_rules(self) -> None:
        self.require("state", self.state.is_final, "must be that of a run which is over")


MAX_NAME = 120
MAX_TAGS = 20
MAX_TAG = 40


@dataclass(frozen=True, kw_only=True)
class Labels(Spec):
    """The labels of one experiment. An invalid file is refused like an invalid specification."""

    name: str | None = None
    """Replaces the name in the specification."""
    tags: tuple[str, ...] = ()
    notes: str = ""
    """Markdown, shown without links, images and HTML."""
    archived: bool = False
    """Whether lists omit the experiment by default."""

    def check_rules(self) -> None:
        rule = f"must be 1 to {MAX_NAME} printable characters"
        self.require("name", self.name is None or _is_line(self.name, MAX_NAME), rule)
        self.require("tags", len(self.tags) <= MAX_TAGS, f"must be at most {MAX_TAGS}")
        rule = f"must each be 1 to {MAX_TAG} printable characters without a comma"
        valid = all(_is_line(tag, MAX_TAG) and "," not in tag for tag in self.tags)
        self.require("tags", valid, rule)

    def tagged(self, add: Collection[str] = (), remove: Collection[str] = ()) -> "Labels":
        """The labels with some tags added and removed; each tag once, in order of addition."""
        kept = [tag for tag in (*self.tags, *add) if tag not in remove]
        return replace(self, tags=tuple(dict.fromkeys(kept)))


Change = Callable[[Labels], Labels]


def _is_line(text: str, most: int) -> bool:
    return 0 < len(text) <= most and text.isprintable() and text == text.strip()
