"""Lists the folders that may be runs, again only if the time stamp of their parent changed, and
finds the specification that most folders of an experiment have."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from breakeven.runner.folders.data_dir import run_names
from breakeven.runner.folders.queue import agreed_spec
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec

GRANULARITY_NS = 2_000_000_000
"""Coarsest resolution of file time stamps: a more recent stamp may hide a second change."""


class Folder(NamedTuple):
    """A folder that may be a run."""

    path: str
    origin: str
    """`local` or `example`."""


class Listing:
    """All folders that may be runs, by name.

    Folders of the same name are copies of the same run; the local one counts.
    """

    def __init__(self, runs: Path, examples: Path | None) -> None:
        self.folders: Mapping[str, Folder] = {}
        self._runs, self._examples = str(runs), str(examples) if examples else None
        self._parents: dict[str, tuple[tuple[int, int] | None, bool, list[str]]] = {}
        """For each listed folder: time stamp, whether the stamp is old enough to rely on, names."""
        self._listed: list[list[str]] = []
        self.was_touched = False
        """Whether the last update found a changed time stamp of a parent."""
        self._experiments: dict[str, list[Path]] | None = None

    def update(self) -> bool:
        """Lists folders again if necessary; returns whether any were added or removed."""
        self.was_touched = False
        groups = self._names(self._examples) if self._examples else []
        parents = [(f"{self._examples}/{group}", "example") for group in groups]
        parents.append((self._runs, "local"))
        found = [(parent, origin, self._names(parent)) for parent, origin in parents]
        listed = [groups, *(names for _, _, names in found)]
        if [*map(id, listed)] == [*map(id, self._listed)]:
            return False
        self._listed, self._experiments = listed, None
        self.folders = {
            name: Folder(f"{parent}/{name}", origin)
            for parent, origin, names in found
            for name in names
        }
        return True

    def of_experiment(self, experiment_id: str) -> list[Path]:
        """Folders whose names belong to an experiment."""
        if self._experiments is None:
            self._experiments = {}
            for name, folder in self.folders.items():
                mine = self._experiments.setdefault(name.partition(".")[0], [])
                mine.append(Path(folder.path))
        return self._experiments.get(experiment_id, [])

    def _names(self, parent: str) -> list[str]:
        """Names of folders in `parent`; the same list object if nothing changed."""
        known, is_old, names = self._parents.get(parent, (None, False, []))
        try:
            found = os.stat(parent)
            stamp = (found.st_ino, found.st_mtime_ns)
        except OSError:
            stamp = None
        if stamp is None or stamp != known or not is_old:
            self.was_touched |= stamp != known
            listed = run_names(Path(parent))
            names = names if parent in self._parents and listed == names else listed
            is_old = stamp is not None and stamp[1] < time.time_ns() - GRANULARITY_NS
            self._parents[parent] = (stamp, is_old, names)
        return names


class Agreed:
    """The specification that most folders of an experiment have, read on first use."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._specs: dict[str, ExperimentSpec | None] = {}
        self._texts: dict[str, str] = {}

    def spec(self, experiment_id: str) -> ExperimentSpec | None:
        if experiment_id not in self._specs:
            folders = self._listing.of_experiment(experiment_id)
            self._specs[experiment_id] = agreed_spec(map(RunDir, folders))
        return self._specs[experiment_id]

    def text(self, experiment_id: str) -> str:
        """The specification as JSON."""
        if experiment_id not in self._texts:
            spec = self.spec(experiment_id)
            self._texts[experiment_id] = json.dumps(None if spec is None else asdict(spec))
        return self._texts[experiment_id]
