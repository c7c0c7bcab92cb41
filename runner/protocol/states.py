"""States of runs and experiments, which are derived from the files of the run folders."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from breakeven.runner.python310 import StrEnum

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
    def from_runs(
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


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """The state of a run, according to its folder. Times are seconds since the epoch."""

    state: RunState
    reason: str | None = None
    """A sentence: how the run ended, why its records cannot be read, or that it waits for disk
    space."""
    claimed: float | None = None
    ended: float | None = None
