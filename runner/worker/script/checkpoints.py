"""Checkpoints from which a script resumes, and what earlier attempts at the run have recorded.

Scripts, and libraries that train for them, write checkpoints anywhere in the run's working folder.
Once a checkpoint is complete and all rows before it are on the disk, a small file among the run's
checkpoints notes it: after how many steps, written by which library, with which states of the
random number generators. The note becomes invalid when the checkpoint is overwritten, or when the
process ended while it was being written.
"""

import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from breakeven.runner.files import replacement
from breakeven.runner.folders.events import each_event
from breakeven.runner.folders.run_dir import UNFINISHED, RunDir
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.random_state import set_random_state
from breakeven.runner.worker.script.blocks import ScriptBlocks

FORMAT = 1
OWN = "breakeven.save"
"""Writer of a checkpoint that the script saves itself."""


@dataclass(frozen=True, kw_only=True)
class SavedCheckpoint:
    """A checkpoint that is complete."""

    step: int
    """Steps done by then."""
    by: str
    path: Path
    random: dict[str, Any]
    """States of the random number generators."""


class ScriptCheckpoints:
    """The checkpoints of one run, including those of earlier attempts."""

    def __init__(self, run: RunDir, log: EventLog) -> None:
        self.run = run
        self.log = log

    def latest(self, by: str | None = None, path: Path | None = None) -> SavedCheckpoint | None:
        """The one after the most steps, of this writer and at this path where they are given."""
        found = [
            saved for _, saved in self._notes()
            if saved is not None and by in (None, saved.by) and path in (None, saved.path)
        ]  # fmt: skip
        return max(found, key=lambda saved: saved.step, default=None)

    def forget(self, path: Path) -> None:
        """Removes the notes of a checkpoint that is about to be overwritten."""
        for note, saved in self._notes():
            if saved is not None and saved.path == path:
                note.unlink()

    def write(self, state: Any, step: int, path: Path, random: dict[str, Any]) -> None:
        """Saves as `torch.save` does, completely or not at all."""
        since = time.perf_counter()
        # Into a stream: a full disk is then an OSError.
        with replacement(path, UNFINISHED) as unfinished, unfinished.open("wb") as stream:
            torch.save(state, stream)
            # The file keeps its identity when it is renamed. Until then the note is invalid, and
            # the checkpoint before it still counts.
            saved = SavedCheckpoint(step=step, by=OWN, path=path, random=random)
            self._write_note(saved, _identity(unfinished))
        self._log(step, path, time.perf_counter() - since)

    def written(self, saved: SavedCheckpoint, seconds: float) -> None:
        """A library has written a checkpoint, in so many seconds."""
        self._write_note(saved, _identity(saved.path))
        self._log(saved.step, saved.path, seconds)

    def _write_note(self, saved: SavedCheckpoint, identity: list[int]) -> None:
        place = self._relative(saved.path)
        of_path = hashlib.sha256(place.encode()).hexdigest()[:8]
        content = {"format": FORMAT, "step": saved.step, "by": saved.by, "path": place,
                   "identity": identity, "random": saved.random}  # fmt: skip
        self.run.checkpoints.mkdir(parents=True, exist_ok=True)
        note = self.run.checkpoints / f"step-{saved.step:08d}-{of_path}.pt"
        # Into a stream: a full disk is then an OSError.
        with replacement(note, UNFINISHED) as unfinished, unfinished.open("wb") as stream:
            torch.save(content, stream)

    def _log(self, step: int, path: Path, seconds: float) -> None:
        for note, saved in self._notes():
            if saved is None:
                note.unlink()
        self.log.append("checkpoint", step=step, file=self._relative(path), bytes=_bytes(path),
                         seconds=seconds, value=None, removed=[])  # fmt: skip
        self.log.flush(durable=True)

    def _notes(self) -> Iterator[tuple[Path, SavedCheckpoint | None]]:
        """All notes; None for a checkpoint that is no longer there as it was."""
        for note in sorted(self.run.checkpoints.glob("step-*.pt")):
            yield note, self._read(note)

    def _read(self, note: Path) -> SavedCheckpoint | None:
        content = torch.load(note, map_location="cpu", weights_only=True)
        if content.pop("format", None) != FORMAT:
            return None
        path = self.run.path / content.pop("path")
        identity = content.pop("identity")
        if not path.exists() or _identity(path) != identity:
            return None
        return SavedCheckpoint(path=path, **content)

    def _relative(self, path: Path) -> str:
        """Relative to the run folder, unless it lies elsewhere."""
        inside = path.is_relative_to(self.run.path)
        return str(path.relative_to(self.run.path) if inside else path)


def _identity(path: Path) -> list[int]:
    """Changes when another file takes this path."""
    found = path.stat()
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


@dataclass(frozen=True, kw_only=True)
class EarlierAttempts:
    """What all attempts before this one have recorded."""

    workload: Mapping[str, Any]
    """The last `workload` event."""
    evaluations: tuple[tuple[str, int], ...]
    """Split and step of each evaluation that counts."""
    is_profiled: bool


def read_earlier(run: RunDir) -> EarlierAttempts | None:
    """None if no attempt has made a step."""
    workload: Mapping[str, Any] | None = None
    evaluations: list[tuple[str, int]] = []
    is_profiled = False
    for event in each_event(run.events_file):
        match event["kind"]:
            case "workload":
                workload = event
            case "evaluation":
                evaluations.append((event["split"], event["step"]))
            case "profile":
                is_profiled = True
            case "resumed":
                evaluations = [one for one in evaluations if one[1] <= event["step"]]
    if workload is None:
        return None
    return EarlierAttempts(
        workload=workload, evaluations=tuple(evaluations), is_profiled=is_profiled
    )


class Resuming:
    """Resumes a script from a checkpoint; does nothing in the first attempt."""

    def __init__(
        self,
        checkpoints: ScriptCheckpoints,
        device: Device,
        blocks: ScriptBlocks,
        earlier: EarlierAttempts | None,
    ) -> None:
        self._device = device
        self._checkpoints = checkpoints
        self._blocks = blocks
        self._earlier = earlier
        self._saved: SavedCheckpoint | None = None

    @property
    def resumed_attempts(self) -> EarlierAttempts | None:
        """The earlier attempts, if the script resumes from a checkpoint of theirs."""
        return None if self._saved is None else self._earlier

    @property
    def num_evaluations(self) -> Mapping[str, int]:
        """Evaluations of each split up to the step from which the script resumes."""
        if self._saved is None or self._earlier is None:
            return {}
        step = self._saved.step
        return Counter(split for split, at in self._earlier.evaluations if at <= step)

    def checkpoint_of(self, name: str) -> Path | None:
        """The checkpoint from which a library has to resume; None for none."""
        saved = None if self._blocks.is_begun else self._checkpoints.latest(by=name)
        if saved is None:
            return None
        self.resume_from(saved)
        return saved.path

    def resume_from(self, saved: SavedCheckpoint) -> None:
        """Does nothing after the first step, or if the script resumes from a later checkpoint."""
        if self._earlier is None or self._blocks.is_begun or saved.step < self._blocks.num_steps:
            return
        self._saved = saved
        self._blocks.go_on_from(saved.step, is_profiled=self._earlier.is_profiled)
        self.restore_random_state()

    def restore_random_state(self) -> None:
        """Sets the random number generators to their states at the checkpoint."""
        if self._saved is not None:
            set_random_state(self._saved.random, self._device)

    def log(self) -> list[str]:
        """Records from which step the journal continues, before the first step; returns a note for
        readers, if any."""
        if self._earlier is None:
            return []
        saved, run, log = self._saved, self._checkpoints.run, self._checkpoints.log
        file = None if saved is None else os.path.relpath(saved.path, run.path)
        step = self._blocks.num_steps
        log.append("resumed", step=step, file=file, attempt=run.attempt)
        log.flush(durable=True)
        if saved is None:
            return [f"Attempt {run.attempt} began anew: the script loads none of its checkpoints."]
        return [f"Attempt {run.attempt} went on from {file}, after {step:,} steps."]
