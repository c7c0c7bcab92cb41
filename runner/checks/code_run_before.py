"""What this account ran itself: code that it named in a command may run again for commands that
name only the experiment, such as `breakeven investigate RUN`.

The record is outside of data folders, which may come from anybody. A specification that names other
code, another folder or other arguments than one command did gets nothing from it.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from breakeven.runner.specs.arms import pythons
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.workload import USER_CODE

MAX_BYTES = 2**22
"""Size of the record after which it begins again."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def remember(spec: ExperimentSpec, folders: Sequence[Path]) -> None:
    """Records that this account runs the code of a specification and allows these folders for it.
    Without a place for the record nothing is remembered."""
    code = code_hashes(spec)
    allowed = sorted({str(folder.expanduser().resolve()) for folder in folders})
    if not code or not allowed or set(map(Path, allowed)) <= set(folders_for(spec)):
        return
    line = json.dumps({"code": sorted(code), "folders": allowed})
    with suppress(OSError, RuntimeError):  # `Path.home` raises the latter
        file = record_file()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.exists() and file.stat().st_size > MAX_BYTES:
            file.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with os.fdopen(os.open(file, flags, 0o600), "w") as record:
            record.write(f"{line}\n")


def folders_for(spec: ExperimentSpec) -> list[Path]:
    """The folders that this account allowed in the latest command that named all code of the
    specification; empty if none did."""
    code = code_hashes(spec)
    folders: list[Path] = []
    for line in _lines():
        with suppress(ValueError, KeyError, TypeError):  # a line may be torn
            entry = json.loads(line)
            if code and code <= set(entry["code"]):
                folders = [Path(folder) for folder in entry["folders"]]
    return folders


def record_file() -> Path:
    """The record, in the account's state folder (XDG Base Directory Specification)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state) / "breakeven" / "own-code.jsonl"


def code_hashes(spec: ExperimentSpec) -> set[str]:
    """A hash for each piece of code that the specification names: scripts with their folder and
    arguments, which may have secrets, files, backends by path, and Pythons."""
    folder = spec.script.folder and str(_resolved(spec.script.folder))
    pieces = [["file", _resolved(path), name] for path, name in map(_path_and_name, spec.user_code)]
    if spec.model.script is not None:
        script = spec.script
        pieces.append(["script", _resolved(spec.model.script), folder, *script.arguments])
        pieces += [["module", script.module]] if script.module else []
        pieces += [["variables", *script.variables]] if script.variables else []
    pieces += [["arm", text] for text in (*spec.named_arms, spec.baseline) if text]
    pieces += [["backend", path] for path in spec.paths_of_backends]
    pieces += [["python", python] for python in pythons(spec.environments).values()]
    texts = (json.dumps(piece, default=str) for piece in pieces)
    return {hashlib.sha256(text.encode()).hexdigest() for text in texts}


def _path_and_name(source: str) -> tuple[str, str]:
    """The path and the name of `path.py:name`; a script has no name."""
    path, _, name = source.rpartition(":") if USER_CODE.fullmatch(source) else (source, "", "")
    return path, name


def _resolved(path: str) -> Path:
    return Path(path).expanduser().resolve()


def _lines() -> Iterator[str]:
    """The lines of the record, if nobody but this account can have written them."""
    flags = os.O_RDONLY | os.O_NOFOLLOW
    with suppress(OSError, RuntimeError), open(os.open(record_file(), flags)) as record:
        status = os.fstat(record.fileno())
        if status.st_uid == os.geteuid() and not status.st_mode & OTHERS_WRITE:
            yield from record
