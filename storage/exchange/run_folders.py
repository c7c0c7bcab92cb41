"""Packs run folders into an archive, and imports them from one.

Only runs that have ended are imported: a waiting run would start here, and a running one belongs to
another machine. An import is complete or changes nothing, and never overwrites existing files.
"""

import filecmp
import io
import os
import re
import secrets
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.queue import agreed_spec, check_membership
from breakeven.runner.files import FileLock
from breakeven.runner.protocol.data_dir import DataDir, run_dirs
from breakeven.runner.protocol.plain_files import walk
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.texts import printable
from breakeven.storage.errors import ImportUnusable, NotExportable
from breakeven.storage.exchange.archives import USUAL_LIMITS, Limits, plain_parts, unpack
from breakeven.storage.index.folders import count_left_out

FIXED_FILE_TIME = (1980, 1, 1, 0, 0, 0)
"""Time stamp of all files in an archive, so that equal runs give equal archives."""
LOCK_PATIENCE_SECONDS = 10.0
INCOMING = ".incoming-"
CHUNK = 2**20
LABELS = "labels.json"
"""File of labels that users added later; it is not compared."""


@dataclass(frozen=True, kw_only=True)
class ImportedRuns:
    """The result of an import."""

    experiments: Sequence[str] = ()
    """Ids of the experiments in the archive, new or already known."""
    new_runs: Sequence[str] = ()
    known_runs: Sequence[str] = ()
    """Runs that already existed with the same content."""
    left_out: Sequence[str] = ()
    """Files that belong to no run, and compile caches."""


def pack(
    folders: Iterable[Path], max_artifact_bytes: int | None = None, max_bytes: int | None = None
) -> bytes:
    """A ZIP archive of whole run folders, without checkpoints, compile caches and artifacts larger
    than `max_artifact_bytes`.

    Raises `NotExportable` if the archive exceeds `max_bytes`, or if `import_run_folders` would
    refuse it: a sparse file may have terabytes.
    """
    archive, unpacked = io.BytesIO(), 0
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for folder in sorted(folders):
            for name in _files_of(RunDir(folder), max_artifact_bytes):
                entry = zipfile.ZipInfo(f"{folder.name}/{name}", FIXED_FILE_TIME)
                entry.compress_type = zipfile.ZIP_DEFLATED
                with RunDir(folder).open(name) as file, packed.open(entry, "w") as target:
                    unpacked += file.seek(0, os.SEEK_END)
                    file.seek(0)
                    if unpacked > USUAL_LIMITS.total_bytes:
                        raise _too_large("unpacked", USUAL_LIMITS.total_bytes)
                    shutil.copyfileobj(file, target, CHUNK)
                if max_bytes is not None and archive.tell() > max_bytes:
                    raise _too_large("packed", max_bytes)
    return archive.getvalue()


def _too_large(how: str, most: int) -> NotExportable:
    return NotExportable(
        f"{how}, these runs take more than {most / 2**20:,.0f} MiB, which no page should hold. "
        "Choose fewer experiments, or take their run folders, which are imported just as well"
    )


def import_run_folders(
    data_dir: DataDir, archive: Path, examples: Path | None = None, limits: Limits = USUAL_LIMITS
) -> ImportedRuns:
    """Unpacks an archive of run folders and adds them to the data folder.

    If it raises `ImportUnusable`, nothing has changed.
    """
    with _locked(data_dir), _staging(data_dir) as staging:
        names = unpack(archive, staging / "unpacked", limits)
        runs = _gathered(staging, names)
        if not runs:
            raise ImportUnusable("there is no run folder in it: one with a spec.json")
        _check(data_dir, runs, examples)
        known = {run.run_id: _known(data_dir, examples, run.run_id) for run in runs}
        existing = {run_id: path for run_id, path in known.items() if path is not None}
        for run_id, path in existing.items():
            _require_same(staging / "runs" / run_id, path)
        new = [run for run in runs if run.run_id not in existing]
        _put(data_dir, new)
        experiments = dict.fromkeys(run.run_id.partition(".")[0] for run in runs)
        unpacked_names = set(names)
        paths = [PurePosixPath(name) for name in names]
        left_out = [
            str(file)
            for file in paths
            if "compile-cache" in file.parts or not _is_within(file, unpacked_names)
        ]
        return ImportedRuns(
            experiments=tuple(experiments),
            new_runs=[run.run_id for run in new],
            known_runs=[*existing],
            left_out=left_out,
        )


def _files_of(run: RunDir, max_artifact_bytes: int | None) -> list[str]:
    """Relative paths of a run's files that an archive includes."""
    names = []
    for parent, folders, files in walk(run.path):
        here = Path(parent)
        folders[:] = sorted(
            folder
            for folder in folders
            if here / folder not in (run.checkpoints, run.compile_cache, run.workplace)
        )
        for name in sorted(files):
            path = here / name
            if path.is_symlink() or not path.is_file() or name.startswith("."):
                continue
            is_artifact = run.artifacts in path.parents
            most = path.stat().st_size if max_artifact_bytes is None else max_artifact_bytes
            if is_artifact and path.stat().st_size > most:
                continue
            inner = path.relative_to(run.path).as_posix()
            # Names may be from an unknown source: bytes that are no text, line ends and Windows
            # drives are refused by an import.
            with suppress(ImportUnusable):
                plain_parts(f"{run.path.name}/{inner}")
                names.append(inner)
    return names


def _gathered(staging: Path, names: Sequence[str]) -> list[RunDir]:
    """Moves each folder with a specification to a folder named after its run; returns them."""
    runs = []
    unpacked_names = set(names)
    (staging / "runs").mkdir()
    for name in names:
        path = PurePosixPath(name)
        if (
            path.name != "spec.json"
            or len(path.parts) < 2
            or _is_within(path.parent, unpacked_names)
        ):
            continue
        folder = RunDir(staging / "unpacked" / path.parent)
        try:
            run_id = folder.read_spec().run_id
        except RunnerError as error:
            raise ImportUnusable(f"no specification: {_as_in(staging, error)}") from None
        target = staging / "runs" / run_id
        if target.exists():
            raise ImportUnusable(f"run {run_id} is in it twice")
        for left_out in (folder.compile_cache, folder.workplace):
            shutil.rmtree(left_out, ignore_errors=True)
        os.rename(folder.path, target)
        runs.append(RunDir(target))
    return runs


def _is_within(path: PurePosixPath, names: set[str]) -> bool:
    """Whether a path is inside a run folder, like artifacts."""
    return any(f"{parent}/spec.json" in names for parent in path.parents)


def _check(data_dir: DataDir, runs: Sequence[RunDir], examples: Path | None) -> None:
    """Raises `ImportUnusable` for runs that have not ended, or if an experiment is incomplete."""
    together: dict[str, list[RunDir]] = {}
    for run in runs:
        together.setdefault(run.run_id.partition(".")[0], []).append(run)
    for experiment_id, unpacked in together.items():
        labels = {run.run_id.partition(".")[2] for run in unpacked}
        spec = agreed_spec(unpacked)
        assert spec is not None  # all of them were read
        others = [arm.label for arm in spec.arms if arm.label not in labels]
        paths = {label: _known(data_dir, examples, f"{experiment_id}.{label}") for label in others}
        present = [RunDir(path) for path in paths.values() if path is not None]
        spec = agreed_spec([*present, *unpacked])
        for run in unpacked:
            _check_run(run, spec)
        lacking = [label for label, path in paths.items() if path is None]
        if lacking:
            listed = ", ".join(lacking)
            raise ImportUnusable(f"of experiment {experiment_id} it lacks the runs {listed}")


def _known(data_dir: DataDir, examples: Path | None, run_id: str) -> Path | None:
    """The folder of an existing run, in the data folder or among the shipped examples."""
    shipped = [group.path for group in run_dirs(examples)] if examples else []
    places = [parent / run_id for parent in (data_dir.runs, *shipped)]
    return next((place for place in places if os.path.lexists(place)), None)


def _check_run(run: RunDir, spec: object) -> None:
    try:
        check_membership(run.read_spec(), spec)  # type: ignore[arg-type]
        run.read_claim()
        run.read_labels()
        ended = run.read_exit()
        left_out = count_left_out(run)
    except RunnerError as error:
        problem = _as_in(run.path.parents[1], error)
        raise ImportUnusable(f"run {run.run_id} cannot be used: {problem}") from None
    if ended is None:
        raise ImportUnusable(
            f"run {run.run_id} has not ended (it has no exit.json); it would go on here. Wait "
            "until it has, or copy its folder by hand"
        )

    if left_out:
        lines = "1 line" if left_out == 1 else f"{left_out:,} lines"
        raise ImportUnusable(
            f"{run.events_file.name} of run {run.run_id} holds {lines} whose seq does not follow "
            "that of the line before, as where a journal was copied into itself. Bring the file "
            "back from where the run was made"
        )


def _as_in(staging: Path, error: RunnerError) -> str:
    """The error's text with paths in the archive instead of the temporary folder."""
    return re.sub(f"{re.escape(printable(staging))}/(unpacked|runs)/", "", str(error))


def _require_same(new: Path, known: Path) -> None:
    """Raises `ImportUnusable` unless both folders are equal, apart from caches and checkpoints."""
    new_files, known_files = (
        {name for name in _files_of(RunDir(folder), None) if name != LABELS}
        for folder in (new, known)
    )
    # Artifacts may be missing on one side, but the run's own files may not.
    compared = {name for name in new_files | known_files if not name.startswith("artifacts/")}
    compared |= new_files & known_files
    differing = [
        name
        for name in sorted(compared)
        if name not in new_files & known_files
        or not filecmp.cmp(new / name, known / name, shallow=False)
    ]
    if differing:
        raise ImportUnusable(
            f"run {known.name} is there already with another content ({differing[0]}); nothing is "
            f"written over it. Delete the experiment first, or move {known} elsewhere"
        )


def _put(data_dir: DataDir, runs: Sequence[RunDir]) -> None:
    """Moves all runs into the data folder, or none if one fails."""
    data_dir.runs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as undo:
        for run in runs:
            target = data_dir.runs / run.run_id
            os.rename(run.path, target)
            undo.callback(shutil.rmtree, target, ignore_errors=True)
        undo.pop_all()


@contextmanager
def _locked(data_dir: DataDir) -> Iterator[None]:
    """Holds the lock that prevents other processes from changing the list of runs."""
    lock = FileLock(data_dir.library_lock)
    if not lock.acquire(LOCK_PATIENCE_SECONDS):
        raise ImportUnusable("something else changes the library of experiments; try again")
    with lock:
        yield


@contextmanager
def _staging(data_dir: DataDir) -> Iterator[Path]:
    """A temporary folder on the disk of the runs. Only the holder of the lock has one, so any other
    one is from a killed process and is deleted."""
    for left in data_dir.path.glob(f"{INCOMING}*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = data_dir.path / f"{INCOMING}{secrets.token_hex(6)}"
    (folder / "unpacked").mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
