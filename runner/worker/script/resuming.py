"""An attempt at a run that an earlier one has begun: from where it goes on, and what it says."""

import os
from pathlib import Path

from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.random_state import set_random_state
from breakeven.runner.worker.script.blocks import ScriptBlocks
from breakeven.runner.worker.script.checkpoints import Saved, ScriptCheckpoints
from breakeven.runner.worker.script.earlier import Earlier


class Resuming:
    """Nothing of it does anything in a first attempt."""

    def __init__(
        self,
        run: RunDir,
        device: Device,
        log: EventLog,
        checkpoints: ScriptCheckpoints,
        blocks: ScriptBlocks,
        earlier: Earlier | None,
    ) -> None:
        """`earlier`: what attempts before this one have left."""
        self._run = run
        self._device = device
        self._log = log
        self._checkpoints = checkpoints
        self._blocks = blocks
        self._earlier = earlier
        self._saved: Saved | None = None

    @property
    def went_on_after(self) -> Earlier | None:
        """What was left, if the script goes on from there."""
        return None if self._saved is None else self._earlier

    @property
    def num_evaluations(self) -> dict[str, int]:
        """Made of each split before this attempt."""
        if self._saved is None or self._earlier is None:
            return {}
        return self._earlier.num_evaluations(self._saved.step)

    def checkpoint_of(self, name: str) -> Path | None:
        """The checkpoint from which a library's training goes on, if it is to."""
        saved = None if self._blocks.is_begun else self._checkpoints.latest(by=name)
        if saved is not None:
            self.go_on_from(saved)
        return None if saved is None else saved.path

    def go_on_from(self, saved: Saved) -> None:
        """Unless a step was made, or the script goes on from a later one already."""
        if self._earlier is None or self._blocks.is_begun or saved.step < self._blocks.num_steps:
            return
        self._saved = saved
        self._blocks.go_on_from(saved.step, is_profiled=self._earlier.is_profiled)
        self.put_back_random_numbers()

    def put_back_random_numbers(self) -> None:
        """To where they stood at the checkpoint."""
        if self._saved is not None:
            set_random_state(self._saved.random, self._device)

    def tell(self) -> list[str]:
        """Says what of the journal still counts, before the first step; notes of it for readers."""
        if self._earlier is None:
            return []
        saved, attempt = self._saved, self._run.attempt
        file = None if saved is None else os.path.relpath(saved.path, self._run.path)
        step = self._blocks.num_steps
        self._log.append("resumed", step=step, file=file, attempt=attempt)
        self._log.flush(durable=True)
        if saved is None:
            return [f"Attempt {attempt} began anew: the script asked for none of its checkpoints."]
        return [f"Attempt {attempt} went on from {file}, after {step:,} steps."]
