"""From which of its own checkpoints a script goes on, and what earlier attempts have left.

Scripts, and libraries that train for them, write their checkpoints where they like in the run's
working folder. Once one is whole and all rows before it are on the disk, a small file among the
run's checkpoints says so: after how many steps, by which library, and where the generators of
random numbers stood. One that was written over since, or in the middle of whose writing the process
ended, counts no more.
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

from breakeven.runner.folders.events import each_event
from breakeven.runner.folders.run_dir import UNFINISHED, RunDir
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.random_state import set_random_state
from breakeven.runner.worker.script.blocks import ScriptBlocks

FORMAT = 1
OWN = "breakeven.save"
"""Who wrote a checkpoint of a loop of one's own."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint that is whole."""

    step: int
    """Steps done by then."""
    by: str
    path: Path
    random: dict[str, Any]
    """Where the generators of random numbers stood."""


class ScriptCheckpoints:
    """The checkpoints of one run, also those of its earlier attempts."""

    def __init__(self, run: RunDir, log: EventLog) -> None:
        self.run = run
        self.log = log

    def latest(self, by: str | None = None, path: Path | None = None) -> Saved | None:
        """The one after most steps, of those that this writer wrote, or that lie there."""
        found = [
            saved for _, saved in self._found()
            if saved is not None and by in (None, saved.by) and path in (None, saved.path)
        ]  # fmt: skip
        return max(found, key=lambda saved: saved.step, default=None)

    def forget(self, path: Path) -> None:
        """What lies there is about to be written over, and cannot be gone on from meanwhile."""
        for note, saved in self._found():
            if saved is not None and saved.path == path:
                note.unlink()

    def write(self, state: Any, step: int, path: Path, random: dict[str, Any]) -> None:
        """Saves as `torch.save` does, so that the file is there whole or not at all."""
        since = time.perf_counter()
        unfinished = path.with_name(path.name + UNFINISHED)
        try:
            with unfinished.open("wb") as stream:
                torch.save(state, stream)
                stream.flush()
                os.fsync(stream.fileno())
            # Renaming leaves it what it is: until then, the note is one of a file that was written
            # over, and the one before is as good as ever.
            self._note(Saved(step=step, by=OWN, path=path, random=random), _identity(unfinished))
            os.replace(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        self._tell(step, path, time.perf_counter() - since)

    def written(self, saved: Saved, seconds: float) -> None:
        """A library has written one, in so many seconds."""
        self._note(saved, _identity(saved.path))
        self._tell(saved.step, saved.path, seconds)

    def _note(self, saved: Saved, identity: list[int]) -> None:
        self.run.checkpoints.mkdir(parents=True, exist_ok=True)
        place = self._relative(saved.path)
        of_path = hashlib.sha256(place.encode()).hexdigest()[:8]
        note = self.run.checkpoints / f"step-{saved.step:08d}-{of_path}.pt"
        unfinished = note.with_suffix(UNFINISHED)
        content = {"format": FORMAT, "step": saved.step, "by": saved.by, "path": place,
                   "identity": identity, "random": saved.random}  # fmt: skip
        torch.save(content, unfinished)
        os.replace(unfinished, note)

    def _tell(self, step: int, path: Path, seconds: float) -> None:
        removed = [note for note, saved in self._found() if saved is None]
        for note in removed:
            note.unlink()
        self.log.append("checkpoint", step=step, file=self._relative(path), bytes=_bytes(path),
                         seconds=seconds, value=None, removed=[])  # fmt: skip
        self.log.flush(durable=True)

    def _found(self) -> Iterator[tuple[Path, Saved | None]]:
        """All notes; None for what cannot be gone on from any more."""
        for note in sorted(self.run.checkpoints.glob("step-*.pt")):
            yield note, self._read(note)

    def _read(self, note: Path) -> Saved | None:
        content = torch.load(note, map_location="cpu", weights_only=True)
        if content.get("format") != FORMAT:
            return None
        path = self.run.path / content["path"]
        if not path.exists() or _identity(path) != content["identity"]:
            return None
        return Saved(step=content["step"], by=content["by"], path=path, random=content["random"])

    def _relative(self, path: Path) -> str:
        """To the run folder, unless it lies elsewhere."""
        inside = path.is_relative_to(self.run.path)
        return str(path.relative_to(self.run.path) if inside else path)


def _identity(path: Path) -> list[int]:
    """What differs once something else lies there."""
    found = path.stat()
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """All attempts before this one together."""

    workload: Mapping[str, Any]
    """What the journal says last of what the script trains."""
    evaluations: tuple[tuple[str, int], ...]
    """Split and step of each that counts by now."""
    is_profiled: bool

    def num_evaluations(self, step: int) -> dict[str, int]:
        """Of each split, up to a step from which the script goes on."""
        return dict(Counter(split for split, at in self.evaluations if at <= step))


def read_earlier(run: RunDir) -> Earlier | None:
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
    return Earlier(workload=workload, evaluations=tuple(evaluations), is_profiled=is_profiled)


class Resuming:
    """Nothing of it does anything in a first attempt."""

    def __init__(
        self,
        checkpoints: ScriptCheckpoints,
        device: Device,
        blocks: ScriptBlocks,
        earlier: Earlier | None,
    ) -> None:
        """`earlier`: what attempts before this one have left."""
        self._run, self._log = checkpoints.run, checkpoints.log
        self._device = device
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
