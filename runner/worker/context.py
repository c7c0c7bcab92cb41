"""What everything that works at a run needs to know of it."""

from dataclasses import dataclass

from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.runner.specs.variants import Variant
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.group import ALONE, RankGroup


@dataclass(frozen=True)
class RunContext:
    """One run, as this process works at it."""

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
    def adds_rounds(self) -> bool:
        """Whether the run has finished, and its steps are only timed again."""
        return self.run.adds_rounds

    @property
    def variant(self) -> Variant:
        return self.spec.variant
