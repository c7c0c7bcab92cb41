"""The audit log in the data folder: one line of JSON for every action of a user.

Every function that acts for a user calls `record`, so actions on pages and on the command line are
recorded alike. Lines are only added. After `MAX_BYTES` a new file begins, and the last `KEPT_FILES`
are kept. The files are not indexed, so a rebuild does not lose them.
"""

import json
import os
import pwd
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from breakeven.runner.files import FileLock
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.logs import log
from breakeven.runner.masking import mask
from breakeven.runner.texts import json_lines, printable

MAX_BYTES = 5_000_000
KEPT_FILES = 9
"""Earlier files in addition to the current one: about 200,000 actions in 50 MB."""
MAX_TEXT = 300
"""Characters of a name or a detail."""
LOCK_PATIENCE_SECONDS = 2.0
FIELDS = ("time", "who", "subject", "from", "via", "action", "about", "details")


@dataclass(frozen=True, kw_only=True)
class Actor:
    """The user who acts."""

    name: str
    subject: str = ""
    """The user's id at the sign-in provider, if users sign in."""
    source_address: str = ""
    via: str
    """`page` or `command line`."""


_actor: ContextVar[Actor | None] = ContextVar("actor", default=None)


def acts(actor: Actor) -> None:
    """Sets the user for whom this thread acts from now on."""
    _actor.set(actor)


def of_this_process() -> Actor:
    """The user of the operating system who started this process."""
    with suppress(KeyError):
        return Actor(name=pwd.getpwuid(os.getuid()).pw_name, via="command line")
    return Actor(name=f"user {os.getuid()}", via="command line")


def record(data_dir: DataDir, action: str, about: str = "", **details: object) -> None:
    """Records a completed action: its actor and its object (an id or a name). A full disk must not
    prevent the stop of a run, so a failed record only goes to the log.
    """
    actor = _actor.get() or of_this_process()
    line = {
        "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime())}Z",
        "who": _short(actor.name), "subject": _short(actor.subject),
        "from": _short(actor.source_address), "via": actor.via, "action": action,
        "about": _short(about), "details": {name: _short(value) for name, value in details.items()},
    }  # fmt: skip
    try:
        _append(data_dir.audit_file, f"{json.dumps(line)}\n".encode())
    except OSError as error:
        log.error("not written down who did what: %s", error, extra={"fields": line})


def entries(data_dir: DataDir, most: int | None = None) -> list[dict[str, Any]]:
    """The recorded actions, the latest first; invalid lines are skipped."""
    found: list[dict[str, Any]] = []
    for file in _files(data_dir.audit_file):
        found += reversed(list(_read(file)))
        if most is not None and len(found) >= most:
            break
    return found[:most]


def flat(entry: Mapping[str, Any]) -> dict[str, str]:
    """An entry as a row of a table; its details in one cell."""
    details = entry.get("details")
    pairs = details.items() if isinstance(details, dict) else ()
    details = ", ".join(f"{name}: {value}" for name, value in pairs)
    return {name: str(entry.get(name, "")) for name in FIELDS[:-1]} | {"details": details}


def _append(file: Path, line: bytes) -> None:
    """Appends a line in one write; first ends an earlier line that a full disk cut off."""
    file.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with FileLock(file.with_name(f".{file.name}.lock")) as lock:
        is_alone = lock.acquire(LOCK_PATIENCE_SECONDS)
        descriptor = os.open(file, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, b"\n" + line if is_torn else line)
        finally:
            os.close(descriptor)
        if is_alone and size + len(line) > MAX_BYTES:
            _rotate(file)


def _files(file: Path) -> list[Path]:
    """The current file and the earlier ones, the latest first."""
    return [file, *(file.with_name(f"{file.name}.{number}") for number in range(1, KEPT_FILES + 1))]


def _rotate(file: Path) -> None:
    files = _files(file)
    for newer, older in reversed(list(pairwise(files))):
        if newer.exists():
            os.replace(newer, older)


def _read(file: Path) -> Iterator[dict[str, Any]]:
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            yield from json_lines(opened.read(2 * MAX_BYTES))


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
    return printable(mask(text), MAX_TEXT)
