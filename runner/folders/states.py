"""Where runs and experiments stand, and what that means for whoever waits for them."""

from collections.abc import Collection
from enum import StrEnum
from typing import Literal

EarlyEnd = Literal["failed", "cancelled"]
"""What stands for a verdict on a run that ended before enough of it was measured."""


class RunState(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    ELSEWHERE = "elsewhere"
    """Claimed on another machine; how it goes on there cannot be seen from here."""
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    LOST = "lost"
    """Its process vanished without a word, for instance through SIGKILL or a power cut."""

    @property
    def is_active(self) -> bool:
        """Whether this machine still has to do with it."""
        return self in (RunState.QUEUED, RunState.RUNNING)

    @property
    def is_final(self) -> bool:
        return not self.is_active and self is not RunState.ELSEWHERE

    @property
    def ended_early(self) -> bool:
        """Whether it ended before its last step and by no rule of its own."""
        return self.is_final and self is not RunState.FINISHED

    @property
    def is_failed(self) -> bool:
        """Whether it ended otherwise than it should or was told to."""
        return self.ended_early and self is not RunState.CANCELLED

    @property
    def early_end(self) -> EarlyEnd | None:
        """None unless it ended early."""
        if not self.ended_early:
            return None
        return "failed" if self.is_failed else "cancelled"


class ExperimentState(StrEnum):
    """What the states of an experiment's runs come to."""

    QUEUED = "queued"
    RUNNING = "running"
    """Also between two runs."""
    ELSEWHERE = "elsewhere"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    """Whatever did not finish was cancelled."""
    PARTLY_FAILED = "partly_failed"
    FAILED = "failed"
    """None finished."""

    @classmethod
    def of(cls, runs: Collection[RunState]) -> "ExperimentState":
        """Sums up the states of an experiment's runs."""
        if RunState.RUNNING in runs:
            return cls.RUNNING
        if RunState.QUEUED in runs:
            begun = any(run not in (RunState.QUEUED, RunState.CANCELLED) for run in runs)
            return cls.RUNNING if begun else cls.QUEUED
        if RunState.ELSEWHERE in runs:
            return cls.ELSEWHERE
        others = {run for run in runs if run is not RunState.FINISHED}
        if not others:
            return cls.FINISHED
        if others == {RunState.CANCELLED}:
            return cls.CANCELLED
        return cls.PARTLY_FAILED if RunState.FINISHED in runs else cls.FAILED

    @property
    def is_active(self) -> bool:
        """Whether this machine still has to do with it."""
        return self in (ExperimentState.QUEUED, ExperimentState.RUNNING)

    @property
    def is_final(self) -> bool:
        return not self.is_active and self is not ExperimentState.ELSEWHERE


ACTIVE_RUNS = [state.value for state in RunState if state.is_active]
FAILED_RUNS = [state.value for state in RunState if state.is_failed]
ACTIVE_EXPERIMENTS = [state.value for state in ExperimentState if state.is_active]
"""As columns of data frames hold them, like the following."""
FINAL_EXPERIMENTS = [state.value for state in ExperimentState if state.is_final]
