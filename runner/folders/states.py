"""States of runs and experiments, and records in their folders: claims, exits and labels.

The folders may be copies from anywhere, so all content is checked.
"""

import os
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from breakeven.runner.folders.process import ProcessIdentity
from breakeven.runner.python310 import StrEnum
from breakeven.runner.specs.fields import Bounds, Spec
from breakeven.runner.specs.place import check_cpus

EarlyEnd = Literal["failed", "cancelled"]
"""Replaces the verdict on a run that ended before enough was measured."""


class State(StrEnum):
    """A state of a run or an experiment."""

    @property
    def is_active(self) -> bool:
        """Whether a run waits or works on this machine."""
        return self in ("queued", "running")

    @property
    def is_final(self) -> bool:
        return not self.is_active and self != "elsewhere"


class RunState(State):
    """The state of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    ELSEWHERE = "elsewhere"
    """Claimed on another machine; its progress there is not visible here."""
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    LOST = "lost"
    """Its process vanished without a record, for instance by SIGKILL or a power cut."""

    @property
    def ended_early(self) -> bool:
        """Whether it ended before its last step, and not by its own stopping rule."""
        return self.is_final and self is not RunState.FINISHED

    @property
    def is_failed(self) -> bool:
        """Whether it ended early and not by a request to stop."""
        return self.ended_early and not self.is_cancelled

    @property
    def is_cancelled(self) -> bool:
        return self is RunState.CANCELLED

    @property
    def early_end(self) -> EarlyEnd | None:
        """How it ended early; None if it did not."""
        if not self.ended_early:
            return None
        return "failed" if self.is_failed else "cancelled"


def state_words(state: str) -> str:
    """A state as people read it: who stops a run finds it *stopped*, in files `cancelled`."""
    return "stopped" if state == RunState.CANCELLED else state.replace("_", " ")


class ExperimentState(State):
    """The state of an experiment, from the states of its runs."""

    QUEUED = "queued"
    RUNNING = "running"
    """Includes the time between two runs."""
    ELSEWHERE = "elsewhere"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    """All runs that did not finish were cancelled."""
    PARTLY_FAILED = "partly_failed"
    FAILED = "failed"
    """No run finished, and not all were cancelled."""

    @classmethod
    def of(
        cls, runs: Collection[RunState], baseline_of_search: RunState | None = None
    ) -> "ExperimentState":
        """Sums up the states of an experiment's runs. `baseline_of_search`: state of the baseline
        of a search. A search that finished has cancelled candidates itself."""
        if RunState.RUNNING in runs:
            return cls.RUNNING
        if RunState.QUEUED in runs:
            begun = any(run not in (RunState.QUEUED, RunState.CANCELLED) for run in runs)
            return cls.RUNNING if begun else cls.QUEUED
        if RunState.ELSEWHERE in runs:
            return cls.ELSEWHERE
        others = {run for run in runs if run is not RunState.FINISHED}
        if baseline_of_search is RunState.FINISHED:
            others.discard(RunState.CANCELLED)
        if not others:
            return cls.FINISHED
        if others == {RunState.CANCELLED}:
            return cls.CANCELLED
        return cls.PARTLY_FAILED if RunState.FINISHED in runs else cls.FAILED


ACTIVE_RUNS = [state.value for state in RunState if state.is_active]
FAILED_RUNS = [state.value for state in RunState if state.is_failed]
ACTIVE_EXPERIMENTS = [state.value for state in ExperimentState if state.is_active]
"""Texts of states, as columns of data frames have them; so in the lists above and below."""
FINAL_EXPERIMENTS = [state.value for state in ExperimentState if state.is_final]


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

    @classmethod
    def by(
        cls, process: ProcessIdentity, devices: tuple[str, ...] = (), cpus: str | None = None
    ) -> "Claim":
        """A claim made now, on this machine, by the calling process."""
        return cls(
            host=socket.gethostname(),
            process=process,
            supervisor=ProcessIdentity.of(os.getpid()),
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


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The state of a run, according to its folder. Times are seconds since the epoch."""

    state: RunState
    reason: str | None = None
    """A sentence: how the run ended, why its records cannot be read, or that it waits for disk
    space."""
    claimed: float | None = None
    ended: float | None = None


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
