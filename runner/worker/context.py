"""The run, its device and its journal, for all code that works on it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.specs.variants import Variant
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.group import ALONE, RankGroup


@dataclass(frozen=True)
class RunContext:
    """One run in this process."""

    spec: RunSpec
    run: RunDir
    device: Device
    log: EventLog
    group: RankGroup = ALONE
    """All ranks of the run."""

    @property
    def experiment(self) -> ExperimentSpec:
        return self.spec.experiment

    @property
    def work(self) -> ExperimentSpec:
        """The experiment in the run's own batch size."""
        return self.spec.work

    @cached_property
    def adds_rounds(self) -> bool:
        """Whether the run has finished and only times more steps."""
        return self.run.adds_rounds

    @property
    def workplace(self) -> Path:
        """The working folder of a script. Rounds are added in another one, which goes with the
        compile caches: the files of the finished training stay as they are."""
        return self.run.compile_cache / "work" if self.adds_rounds else self.run.workplace

    @property
    def variant(self) -> Variant:
        return self.spec.variant
