"""Checkpoints from which a script resumes, and the records of earlier attempts at the run.

Scripts, and libraries that train for them, write checkpoints anywhere in the run's working folder.
Once a checkpoint is complete and all rows before it are on the disk, a small file among the run's
checkpoints notes its number of steps, its writer, and the states of the random number generators.
The note becomes invalid when the checkpoint is overwritten, or when the process ends while writing
it.
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
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.random_state import set_random_state
from breakeven.runner.worker.script.script_blocks import ScriptBlocks

FORMAT = 1
OWN = "breakeven.save"
"""Name of the writer if the script itself saves a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class SavedCheckpoint:
    """A complete checkpoint."""

    step: int
    """Steps before the checkpoint."""
    by: str
    path: Path
    random: dict[str, Any]
    """States of the random number generators."""


class ScriptCheckpoints:
    """The checkpoints of one run, including those of earlier attempts."""

    def __init__(self, run: RunDir, log: EventLog, *, only_times: bool = False) -> None:
        """`only_times`: whether the script has to begin anew."""
        self.run = run
        self.log = log
        self._only_times = only_times

    def latest(self, by: str | None = None, path: Path | None = None) -> SavedCheckpoint | None:
        """The checkpoint with the most steps, by this writer and at this path if they are given.
        None for a script that runs again, because it trains from the beginning."""
        if self._only_times:
            return None
        checkpoints = [
            saved
            for _, saved in self._notes()
            if saved is not None and by in (None, saved.by) and path in (None, saved.path)
        ]
        return max(checkpoints, key=lambda saved: saved.step, default=None)

    def forget(self, path: Path) -> None:
        """Removes the notes of a checkpoint that is about to be overwritten."""
        for note, saved in self._notes():
            if saved is not None and saved.path == path:
                note.unlink()

    def write(self, state: Any, step: int, path: Path, random: dict[str, Any]) -> None:
        """Saves as `torch.save` does, completely or not at all."""
        since = time.perf_counter()
        # With a stream, a full disk raises an OSError.
        with replacement(path) as unfinished, unfinished.open("wb") as stream:
            torch.save(state, stream)
            # Renaming keeps the file's identity. Until then the note is invalid, and the previous
            # checkpoint still counts.
            saved = SavedCheckpoint(step=step, by=OWN, path=path, random=random)
            self._write_note(saved, _identity(unfinished))
        self._log(step, path, time.perf_counter() - since)

    def written(self, saved: SavedCheckpoint, seconds: float) -> None:
        """Notes a checkpoint that a library has written in `seconds` seconds."""
        self._write_note(saved, _identity(saved.path))
        self._log(saved.step, saved.path, seconds)

    def _write_note(self, saved: SavedCheckpoint, identity: list[int]) -> None:
        place = self._relative(saved.path)
        path_hash = hashlib.sha256(place.encode()).hexdigest()[:8]
        content = {
            "format": FORMAT,
            "step": saved.step,
            "by": saved.by,
            "path": place,
            "identity": identity,
            "random": saved.random,
        }
        self.run.checkpoints.mkdir(parents=True, exist_ok=True)
        note = self.run.checkpoints / f"step-{saved.step:08d}-{path_hash}.pt"
        # With a stream, a full disk raises an OSError.
        with replacement(note) as unfinished, unfinished.open("wb") as stream:
            torch.save(content, stream)

    def _log(self, step: int, path: Path, seconds: float) -> None:
        for note, saved in self._notes():
            if saved is None:
                note.unlink()
        self.log.append(
            "checkpoint",
            step=step,
            file=self._relative(path),
            bytes=_bytes(path),
            seconds=seconds,
            value=None,
            removed=[],
        )
        self.log.flush(durable=True)

    def _notes(self) -> Iterator[tuple[Path, SavedCheckpoint | None]]:
        """All notes; None for a checkpoint that is gone or has changed."""
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
        """The path relative to the run folder; unchanged if it lies elsewhere."""
        inside = path.is_relative_to(self.run.path)
        return str(path.relative_to(self.run.path) if inside else path)


def _identity(path: Path) -> list[int]:
    """Identifies the file; another file at this path has another identity."""
    status = path.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


@dataclass(frozen=True, kw_only=True)
class EarlierAttempts:
    """The records of all attempts before this one."""

    workload: Mapping[str, Any]
    """The last `workload` event."""
    evaluations: tuple[tuple[str, int], ...]
    """Split and step of each evaluation that counts."""
    is_profiled: bool


def read_earlier(run: RunDir) -> EarlierAttempts | None:
    """Reads the records of earlier attempts; None if no attempt has made a step."""
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
                evaluations = [(name, step) for name, step in evaluations if step <= event["step"]]
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
        """The earlier attempts, if the script resumes from one of their checkpoints."""
        return None if self._saved is None else self._earlier

    @property
    def num_evaluations(self) -> Mapping[str, int]:
        """Evaluations of each split up to the step from which the script resumes."""
        if self._saved is None or self._earlier is None:
            return {}
        step = self._saved.step
        return Counter(split for split, made_at in self._earlier.evaluations if made_at <= step)

    def library_checkpoint(self, name: str) -> Path | None:
        """The checkpoint from which a library must resume, if any."""
        saved = None if self._blocks.is_begun else self._checkpoints.latest(by=name)
        if saved is None:
            return None
        self.resume_from(saved)
        return saved.path

    def resume_from(self, saved: SavedCheckpoint) -> None:
        """Resumes from a checkpoint, unless a step was made or it resumes from a later one."""
        if self._earlier is None or self._blocks.is_begun or saved.step < self._blocks.num_steps:
            return
        self._saved = saved
        self._blocks.continue_after(saved.step, is_profiled=self._earlier.is_profiled)
        self.restore_random_state()

    def restore_random_state(self) -> None:
        """Restores the random number generators' states of the checkpoint."""
        if self._saved is not None:
            set_random_state(self._saved.random, self._device)

    def log(self) -> list[str]:
        """Records, before the first step, from which step the journal continues; returns a note for
        readers, if any."""
        if self._earlier is None:
            return []
        saved, run, log = self._saved, self._checkpoints.run, self._checkpoints.log
        file = None if saved is None else os.path.relpath(saved.path, run.path)
        step = self._blocks.journal_step
        log.append("resumed", step=step, file=file, attempt=run.attempt, caches=run.caches)
        log.flush(durable=True)
        if saved is None:
            return [f"Attempt {run.attempt} began anew: the script loads none of its checkpoints."]
        return [f"Attempt {run.attempt} went on from {file}, after {step:,} steps."]
