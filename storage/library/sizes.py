"""Measures the disk space of experiments. Walking the folders is slow, so it is done in small parts
and the results are valid for some minutes."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

from breakeven.runner.folders.library import size_of
from breakeven.runner.folders.run_dir import RunDir
from breakeven.storage.index.store import Store

VALID_SECONDS = 300.0
"""Time after which an experiment is measured again."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Bytes on disk. Here, artifacts exclude checkpoints."""

    total: int = 0
    checkpoints: int = 0
    artifacts: int = 0


_measurements: WeakKeyDictionary[Store, dict[str, tuple[float, Sizes]]] = WeakKeyDictionary()
_versions: WeakKeyDictionary[Store, int] = WeakKeyDictionary()


def known_sizes(store: Store) -> dict[str, Sizes]:
    """Measured sizes by experiment, of any age."""
    known = _of(store).copy()  # another thread may measure at the same time
    return {experiment_id: sizes for experiment_id, (_when, sizes) in known.items()}


def version(store: Store) -> int:
    """A version that changes with every change of known sizes."""
    return _versions.get(store, 0)


def forget(store: Store, experiment_ids: Iterable[str]) -> None:
    """Removes the sizes of experiments whose files have changed."""
    for experiment_id in experiment_ids:
        _of(store).pop(experiment_id, None)
    _versions[store] = version(store) + 1


def measure(store: Store, wanted: Sequence[tuple[str, Sequence[str]]], seconds: float) -> int:
    """Measures experiments with unknown or old sizes for about `seconds`; returns the number still
    unmeasured. `wanted`: experiments with their folders."""
    measured, now = _of(store), time.monotonic()
    known = measured.copy()  # another thread may call `forget` meanwhile
    due = [one for one in wanted if one[0] not in known]
    due += [one for one in wanted if one[0] in known and now - known[one[0]][0] > VALID_SECONDS]
    for experiment_id, folders in due:
        before, sizes = measured.get(experiment_id), _measured(folders)
        measured[experiment_id] = time.monotonic(), sizes
        if before is None or before[1] != sizes:
            _versions[store] = version(store) + 1
        if time.monotonic() - now > seconds:
            break
    return sum(experiment_id not in measured for experiment_id, _ in wanted)


def _measured(folders: Iterable[str]) -> Sizes:
    total = checkpoints = artifacts = 0
    for folder in folders:
        run = RunDir(Path(folder))
        total += size_of(run.path)
        if not run.workplace.is_symlink():
            artifacts += size_of(run.workplace)
        if not run.artifacts.is_symlink():
            saved = 0 if run.checkpoints.is_symlink() else size_of(run.checkpoints)
            checkpoints += saved
            artifacts += size_of(run.artifacts) - saved
    return Sizes(total=total, checkpoints=checkpoints, artifacts=artifacts)


def _of(store: Store) -> dict[str, tuple[float, Sizes]]:
    return _measurements.setdefault(store, {})
