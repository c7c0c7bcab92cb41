"""The folder in which a run of a script works: a copy of the folder in which the script starts, so
that runs do not overwrite each other's files, nor the person's."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath

from breakeven.runner.checks.allowed_code import allowed, locate, package_of
from breakeven.runner.errors import WorkloadError
from breakeven.runner.revisions import Repository, apply_diff
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.start_folders import LEFT_OUT, is_broad, project_of

LARGEST_COPIED_BYTES = 16_000_000
MAX_COPIED_BYTES = 500_000_000
"""Bytes copied altogether; further files are linked."""
MAX_FILES = 20_000
"""Number of files after which whole folders are linked."""
MAX_ENTRIES_AROUND = 2_000
"""Entries of a folder that is copied in part; others are left out."""


@dataclass(frozen=True)
class Workplace:
    """Where a script starts, and what of it is copied."""

    script: Path
    """The file of the script or module."""
    package: Path
    """The folder of the script, or of the module's outermost package."""
    start: Path | None
    """The folder in which the script starts; None for an empty one."""

    @cached_property
    def top(self) -> Path | None:
        """The folder that the copy represents: that of the project, so that `../data` exists. Every
        imported module is compared with it."""
        return self.start and (self.start if is_broad(self.start) else project_of(self.start))

    @property
    def copied(self) -> tuple[Path, ...]:
        """Folders that are copied with all that is in them. Around them files are copied, and
        folders linked, as for a script from elsewhere."""
        top, package = self.top, self.package
        if top is None or self.start is None or not package.is_relative_to(top):
            return ()
        return tuple(folder for folder in {self.start, package} if not is_broad(folder))

    def make(self, place: Path) -> list[str]:
        """Makes the copy without replacing files there; returns the linked names."""
        place.mkdir(parents=True, exist_ok=True)
        if self.top is None or self.start is None:
            return []
        linked: list[str] = []
        if self.top not in self.copied:
            linked = self._fill_around(self.top, place, place)
        for folder in self.copied:
            if not any(folder.is_relative_to(other) for other in self.copied if other != folder):
                within = folder.relative_to(self.top)
                names = make_workplace(folder, place / within, place)
                linked += [str(within / name) for name in names]
        return linked

    def _fill_around(self, folder: Path, target: Path, place: Path) -> list[str]:
        """Makes `target` like `folder` around what is copied: files are copied, folders linked;
        returns the linked names."""
        target.mkdir(exist_ok=True)
        linked: list[str] = []
        entries = sorted(folder.iterdir())[:MAX_ENTRIES_AROUND]
        for path in entries:
            copy = target / path.name
            if path in self.copied:
                continue
            if any(inner.is_relative_to(path) for inner in (self.start, *self.copied) if inner):
                linked += self._fill_around(path, copy, place)
            elif path.is_dir():
                linked += _link(path, copy, folder) if _is_taken(path, place) else ()
            elif (size := _size(path)) is None or os.path.lexists(copy):
                continue
            elif size <= LARGEST_COPIED_BYTES:
                shutil.copy2(path, copy)
            else:
                linked += _link(path, copy, folder)
        return linked

    def change(self, place: Path, arm: Arm) -> list[Path]:
        """Makes the copy that of the arm's revision and diff; returns the files of the repository
        that differ and that the copy does not have. Raises `WorkloadError`."""
        if not (arm.revision or arm.diff):
            return []
        if self.top is None:
            raise WorkloadError(
                f"{arm.label}: a module that starts in an empty folder has no copy that a revision "
                "could change; start the command in the folder of its project"
            )
        repository = Repository(self.top)
        make_real = partial(self._make_real, place)
        outside = repository.lay_over(arm.revision, make_real) if arm.revision else []
        if arm.diff:
            apply_diff(Path(arm.diff), place, repository.prefix, make_real)
        return outside

    def check_imports(self, place: Path, arm: Arm, outside: Sequence[Path]) -> None:
        """Raises `WorkloadError` if the script has imported a file of the original that the arm's
        revision changes: then the arm did not run what it names. `outside`: those that the copy
        does not have."""
        if self.top is None or not (arm.revision or arm.diff):
            return
        files = {getattr(module, "__file__", None) for module in [*sys.modules.values()]}
        for file in sorted(map(Path, filter(None, files))):
            if file in outside or self._is_changed(file, place):
                raise WorkloadError(
                    f"{arm.label}: the script imports {file}, which its revision changes, from the "
                    "original: a package that is installed there (pip install -e) is imported from "
                    "there alone, and files outside of the folder in which the command was typed "
                    "are not copied. Start it as a module at the top of the repository, or name a "
                    "Python without this package and set PYTHONPATH to the repository"
                )

    def _is_changed(self, file: Path, place: Path) -> bool:
        """Whether the copy of a file of the original is another one."""
        if self.top is None or not file.is_relative_to(self.top):
            return False
        copy = place / file.relative_to(self.top)
        if not copy.is_file() or copy.samefile(file):
            return False
        return copy.read_bytes() != file.read_bytes()

    def _make_real(self, place: Path, path: PurePosixPath) -> Path:
        """Makes a path of the copy a copy of its own where it, or a folder around it, is a link."""
        target = place
        for part in path.parts:
            target = target / part
            if target.is_symlink() and target.exists():
                original = target.resolve()
                target.unlink()
                if original.is_dir():
                    make_workplace(original, target, place)
                else:
                    shutil.copy2(original, target)
        return target

    def copy_of(self, path: Path, place: Path) -> Path:
        """Where the copy in `place` has a path; the path itself if it has none."""
        if self.top is None or not path.is_relative_to(self.top):
            return path
        copy = place / path.relative_to(self.top)
        return copy if copy.exists() else path

    def start_in(self, place: Path) -> Path:
        """The folder of the copy in which the script starts."""
        return place if self.start is None else self.copy_of(self.start, place)

    def tidy(self, place: Path) -> None:
        """Removes what is as `make` made it."""
        if self.top is not None:
            tidy(self.top, place)


def workplace_of(experiment: ExperimentSpec) -> Workplace:
    """Where a script starts; raises `CodeNotAllowed`."""
    assert experiment.model.script is not None
    script, _ = locate(experiment.model.script)
    folder = experiment.script.folder
    package = allowed(str(script), package_of(experiment))
    if folder:
        return Workplace(script, package, allowed(folder, Path(folder)))
    return Workplace(script, package, None if experiment.script.module else script.parent)


def make_workplace(folder: Path, place: Path, workplace: Path | None = None) -> list[str]:
    """Copies `folder` to `place`, which may lie in a larger `workplace`, without replacing files
    there; returns the linked names."""
    workplace = workplace or place
    place.mkdir(parents=True, exist_ok=True)
    linked: list[str] = []
    copied, files = 0, 0
    for parent, folders, names in os.walk(folder):
        target = place / Path(parent).relative_to(folder)
        taken = [name for name in folders if _is_taken(Path(parent, name), workplace)]
        folders[:] = taken if files < MAX_FILES else []
        for name in taken:
            if files < MAX_FILES and not os.path.islink(Path(parent, name)):
                (target / name).mkdir(exist_ok=True)
            else:
                linked += _link(Path(parent, name), target / name, folder)
        for name in names:
            file, size = Path(parent, name), _size(Path(parent, name))
            if size is None or os.path.lexists(target / name):
                continue
            files += 1
            if size <= LARGEST_COPIED_BYTES and copied + size <= MAX_COPIED_BYTES:
                shutil.copy2(file, target / name)
                copied += size
            else:
                linked += _link(file, target / name, folder)
    return linked


def tidy(folder: Path, place: Path) -> None:
    """Removes copies and links of `make_workplace` that the script has not changed; its own files
    remain."""
    for parent, folders, names in os.walk(place, topdown=False):
        original = folder / Path(parent).relative_to(place)
        for name in [*names, *folders]:
            copy, source = Path(parent, name), original / name
            if copy.is_symlink() or (copy.is_file() and _is_same(copy, source)):
                copy.unlink()
        if Path(parent) != place and not any(Path(parent).iterdir()):
            Path(parent).rmdir()


def _is_taken(folder: Path, place: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name in LEFT_OUT
    is_environment = (folder / "pyvenv.cfg").exists()
    return not (hidden or is_environment or place.is_relative_to(folder))


def _size(file: Path) -> int | None:
    """Size in bytes; None for pipes and the like, and for unreadable files."""
    try:
        return file.stat().st_size if file.is_file() and os.access(file, os.R_OK) else None
    except OSError:
        return None


def _link(original: Path, target: Path, folder: Path) -> Iterator[str]:
    if not os.path.lexists(target):
        target.symlink_to(original.resolve())
    yield str(original.relative_to(folder))


def _is_same(copy: Path, original: Path) -> bool:
    try:
        copied, other = copy.stat(), original.stat()
    except OSError:
        return False
    return (copied.st_size, copied.st_mtime_ns) == (other.st_size, other.st_mtime_ns)
