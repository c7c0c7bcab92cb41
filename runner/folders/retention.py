"""Keeps the data folder within a budget of disk space: what no result needs goes first.

Deleted experiments go first, then checkpoints, then all other artifacts (predictions, graphs,
traces), of the oldest experiments first. What journals, specifications
and labels say stays, so every result does; so do checkpoints from which a run could still go on,
and whatever is not over.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders import library
from breakeven.runner.folders.data_dir import DataDir, run_names
from breakeven.runner.folders.queue import can_resume
from breakeven.runner.folders.run_dir import RunDir


@dataclass(frozen=True, kw_only=True)
class Removal:
    """Something that can go."""

    what: str
    num_bytes: int
    remove: Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What goes, in order, and what the folder then holds."""

    removals: tuple[Removal, ...]
    bytes_before: int
    budget: int

    @property
    def bytes_after(self) -> int:
        return self.bytes_before - sum(removal.num_bytes for removal in self.removals)

    @property
    def is_enough(self) -> bool:
        return self.bytes_after <= self.budget


def plan(data_dir: DataDir, budget: int) -> Plan:
    """What has to go until the data folder takes `budget` bytes at most."""
    before = left = library.size_of(data_dir.path)
    chosen = []
    for removal in _candidates(data_dir):
        if left <= budget:
            break
        if removal.num_bytes:
            chosen.append(removal)
            left -= removal.num_bytes
    return Plan(removals=tuple(chosen), bytes_before=before, budget=budget)


def _candidates(data_dir: DataDir) -> Iterator[Removal]:
    trash = library.size_of(data_dir.trash)
    yield Removal(what="what was deleted", num_bytes=trash,
                  remove=partial(library.empty_trash, data_dir))  # fmt: skip
    ended = dict(_ended(data_dir))
    for experiment_id, runs in ended.items():
        found = sum(library.size_of(run.checkpoints) for run in runs)
        yield Removal(what=f"checkpoints of {experiment_id}", num_bytes=found,
                      remove=partial(library.free, data_dir, experiment_id))  # fmt: skip
    for experiment_id, runs in ended.items():
        found = sum(
            library.size_of(folder) for run in runs for folder in (run.artifacts, run.workplace)
        )
        found -= sum(library.size_of(run.checkpoints) for run in runs)
        yield Removal(
            what=f"artifacts of {experiment_id}",
            num_bytes=found,
            remove=partial(library.free, data_dir, experiment_id, artifacts=True),
        )


def _ended(data_dir: DataDir) -> Iterator[tuple[str, list[RunDir]]]:
    """Experiments that are over and from which nothing could go on, the oldest first."""
    groups: dict[str, list[RunDir]] = {}
    for name in run_names(data_dir.runs):
        run = data_dir.run_dir(name)
        if not run.is_link:
            groups.setdefault(name.partition(".")[0], []).append(run)
    for experiment_id, runs in groups.items():
        try:
            is_over = all(run.state.is_final for run in runs)
            if is_over and not any(can_resume(run) for run in runs):
                yield experiment_id, runs
        except (RunnerError, OSError):  # Of what cannot be read nothing is taken.
            continue
