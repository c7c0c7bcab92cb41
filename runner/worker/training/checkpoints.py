"""Checkpoints, from which training resumes as if it had never been interrupted.

A run writes a checkpoint after a block, when all earlier rows are in the journal. It holds weights,
optimizers, learning-rate schedule, gradient scaler, random states, callbacks, and the number of
finished steps, which gives the position in the data. The journal holds the history.
"""

import copy
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from breakeven.runner.errors import WorkloadError
from breakeven.runner.files import replacement
from breakeven.runner.protocol.run_dir import CHECKPOINT_ENDINGS, RunDir
from breakeven.runner.worker.callbacks import Callback, Hooks, TrainingState
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.random_state import random_state, set_random_state
from breakeven.runner.worker.step.optimizers import LearningRate

FORMAT = 1
ENDINGS = WHOLE, SHARDED = CHECKPOINT_ENDINGS


@dataclass(frozen=True, kw_only=True)
class Checkpointed:
    """The whole state of a training, except the journal."""

    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    rate: LearningRate
    scaler: torch.amp.GradScaler
    hooks: Hooks
    context: RunContext

    def save(self, step: int) -> tuple[Path, int]:
        """Writes the checkpoint of a step, completely or not at all; returns its path and size in
        bytes. All ranks call this."""
        run = self.context.run
        random_states = self.context.group.gather(random_state(self.context.device))
        rest = {
            "format": FORMAT,
            "step": step,
            "devices": self.context.experiment.num_devices,
            "rate": self.rate.state_dict(),
            "scaler": self.scaler.state_dict(),
            "callbacks": self.hooks.state_dict(),
        }
        if self.context.group.size > 1:
            from breakeven.runner.worker.training.sharded_checkpoints import save_sharded

            folder = run.checkpoints / f"{_name(step)}{SHARDED}"
            rest["random_by_rank"] = random_states
            return folder, save_sharded(
                folder, self.model, self.optimizers, rest, self.context.group
            )
        state = {
            **rest,
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "random": random_states[0],
        }
        file = run.checkpoints / f"{_name(step)}{WHOLE}"
        file.parent.mkdir(parents=True, exist_ok=True)
        # With a stream, a full disk raises an OSError.
        with replacement(file) as unfinished, unfinished.open("wb") as stream:
            torch.save(state, stream)
        return file, file.stat().st_size

    def load(self, file: Path) -> int:
        """Restores everything, even from another number of devices; returns the checkpoint's number
        of devices. Raises `WorkloadError` for an unreadable checkpoint."""
        if file.suffix == SHARDED:
            from breakeven.runner.worker.training.sharded_checkpoints import load_sharded

            state = load_sharded(file, self.model, self.optimizers)
            _check_format(state, file)
            states = state["random_by_rank"]
        else:
            state = self._load_whole(file)
            states = [state["random"]]
        for optimizer in self.optimizers:
            for parameters in optimizer.param_groups:
                if isinstance(parameters["lr"], torch.Tensor):
                    parameters["lr"] = parameters["lr"].to(self.context.device.torch_device)
        self.rate.load_state_dict(state["rate"])
        self.scaler.load_state_dict(state["scaler"])
        self.hooks.load_state_dict(state["callbacks"])
        # Ranks that did not exist before start from their seed.
        if self.context.group.rank < len(states):
            set_random_state(states[self.context.group.rank], self.context.device)
        # Earlier versions did not write `devices`.
        return int(state.get("devices", len(state.get("random_by_rank", [0]))))

    def _load_whole(self, file: Path) -> dict[str, Any]:
        state = load_checkpoint(file)
        if self.context.group.size > 1:
            from breakeven.runner.worker.training.sharded_checkpoints import divide

            divide(state["model"], state["optimizers"], self.model, self.optimizers)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        return state


class Checkpoints(Callback):
    """Writes checkpoints when they are due and at the end; removes superfluous ones."""

    def __init__(self, context: RunContext) -> None:
        experiment = context.work
        self._run, self._log = context.run, context.log
        self._spec = spec = experiment.checkpoints
        self._evaluation = experiment.evaluation
        assert spec.every is not None
        steps = experiment.steps_per_epoch if spec.unit == "epochs" else 1
        self._every_steps = spec.every * steps
        self._saved: Checkpointed | None = None
        self._values: dict[int, float | None] = {}
        """Value of the metric for each remaining checkpoint, by step."""

    def set_source(self, source: Checkpointed) -> None:
        """Sets the state to save, once all of it exists."""
        self._saved = source

    def block_end(self, state: TrainingState) -> None:
        if state.step % self._every_steps == 0:
            self._write(state)

    def train_end(self, state: TrainingState) -> None:
        if state.step not in self._values:
            self._write(state)

    def state_dict(self) -> dict[str, Any]:
        return {"values": dict(self._values)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._values = dict(state["values"])

    def _write(self, state: TrainingState) -> None:
        assert self._saved is not None
        started = time.perf_counter()
        value = None
        if state.scores_step == state.step:
            value = state.scores.get(self._evaluation.metric)
        self._values[state.step] = value
        superfluous = self._values.keys() - self._last_and_best()
        for step in superfluous:
            del self._values[step]
        # All rows of earlier steps must be on the disk before the checkpoint.
        self._log.flush(durable=True)
        file, num_bytes = self._saved.save(state.step)
        removed = [
            old
            for step in sorted(superfluous)
            for old in (self._run.checkpoints / f"{_name(step)}{end}" for end in ENDINGS)
            if old.exists()
        ]
        if self._saved.context.group.rank == 0:
            list(map(_remove, removed))
        self._log.append(
            "checkpoint",
            step=state.step,
            file=str(file.relative_to(self._run.path)),
            bytes=num_bytes,
            seconds=time.perf_counter() - started,
            value=value,
            removed=[str(old.relative_to(self._run.path)) for old in removed],
        )
        self._log.flush(durable=True)

    def _last_and_best(self) -> set[int]:
        latest = sorted(self._values)[-self._spec.keep_last :]
        sign = 1 if self._evaluation.lower_is_better else -1
        judged = [(sign * value, step) for step, value in self._values.items() if value is not None]
        # NaN is worse than any number.
        judged.sort(key=lambda entry: (entry[0] != entry[0], entry))
        return {*latest, *(step for _, step in judged[: self._spec.keep_best])}


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _remove(checkpoint: Path) -> None:
    if checkpoint.is_dir():
        shutil.rmtree(checkpoint, ignore_errors=True)
    else:
        checkpoint.unlink(missing_ok=True)


ZERO_AT_FIRST = (
    torch.optim.Adam,
    torch.optim.SGD,
    torch.optim.RMSprop,
    torch.optim.Adamax,
    torch.optim.Adadelta,
)
"""Optimizers, with their subclasses, whose states begin with zeros, also when a momentum begins
with the first gradient."""


class FreshState:
    """The state of a training before its first step, kept in the host's memory."""

    def __init__(self, checkpointed: Checkpointed) -> None:
        self._checkpointed = checkpointed
        weights = checkpointed.model.state_dict()
        self._weights = {
            name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()
        }
        self._rate = copy.deepcopy(checkpointed.rate.state_dict())
        self._scaler = copy.deepcopy(checkpointed.scaler.state_dict())

    @torch.no_grad()
    def restore(self) -> None:
        """Begins anew. Tensors stay where they are, because compiled code and CUDA graphs know
        their places."""
        for name, tensor in self._checkpointed.model.state_dict().items():
            tensor.copy_(self._weights[name])
        for optimizer in self._checkpointed.optimizers:
            if isinstance(optimizer, ZERO_AT_FIRST):
                for state in optimizer.state.values():
                    for value in filter(torch.is_tensor, state.values()):
                        value.zero_()
            else:
                optimizer.state.clear()
        self._checkpointed.rate.load_state_dict(copy.deepcopy(self._rate))
        self._checkpointed.scaler.load_state_dict(copy.deepcopy(self._scaler))


def latest_checkpoint(run: RunDir) -> tuple[int, Path] | None:
    """Step and file of the checkpoint to resume from; None if there is none."""
    checkpoints = [
        (int(match[1]), file)
        for file in run.checkpoints.glob("step-*")
        if (match := re.fullmatch(r"step-(\d+)", file.stem)) and file.suffix in ENDINGS
    ]
    return max(checkpoints, default=None)


def load_checkpoint(file: Path) -> dict[str, Any]:
    """Reads a checkpoint without running code; raises `WorkloadError` for another format."""
    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    _check_format(state, file)
    return state


def _check_format(state: dict[str, Any], file: Path) -> None:
    if state.get("format") != FORMAT:
        raise WorkloadError(
            f"{file} has format {state.get('format')!r}, but this version reads {FORMAT}; "
            "go on with the version that wrote it, or start the experiment anew"
        )
