"""Logs of the supervisor, the dashboard and commands that act: masked JSON lines in files that
rotate.

They are in `logs/` of the data folder. A log that cannot be written does not stop the program.
Libraries also print to the terminal; their texts may quote untrusted requests, so control
characters are escaped.
"""

import json
import logging
import logging.handlers
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from breakeven.runner.masking import mask
from breakeven.runner.texts import json_lines, printable

MAX_BYTES = 5_000_000
"""Size of a file after which a new one begins."""
KEPT_FILES = 5
DASHBOARD = "dashboard"
"""The part that handles requests from other machines."""
COMMANDS = "commands"
"""The part with the actions of the command line."""
AT_ONCE, A_MINUTE = 300, 6.0
"""Records kept from one place in the code: in a burst, and then per minute."""
MAX_TEXT = 20_000
"""Characters of one message or traceback."""
MAX_DETAIL = 300
"""Characters of the object and of each detail of an action."""
TAIL_BYTES = 400_000
log = logging.getLogger("breakeven")
"""Messages of Breakeven's own modules. Further fields of a message are given as `extra={"fields":
{...}}`."""


class AtMost(logging.Filter):
    """Limits the records from one place in the code: `at_once` in a burst, then `a_minute` per
    minute. The next record counts the omitted ones. Without the limit, a user who makes a page fail
    repeatedly could rotate all earlier records away within minutes."""

    def __init__(self, at_once: int = AT_ONCE, a_minute: float = A_MINUTE) -> None:
        super().__init__()
        self._at_once, self._a_minute = at_once, a_minute
        self._left: dict[tuple[str, int], tuple[float, float, int]] = {}
        """By place: records still allowed, the time of this count, and omitted records."""

    def filter(self, record: logging.LogRecord) -> bool:
        place, now = (record.pathname, record.lineno), time.monotonic()
        left, since, left_out = self._left.get(place, (float(self._at_once), now, 0))
        left = min(self._at_once, left + (now - since) * self._a_minute / 60)
        is_kept = left >= 1
        self._left[place] = (left - 1, now, 0) if is_kept else (left, now, left_out + 1)
        if is_kept and left_out:
            fields = getattr(record, "fields", {})
            record.__dict__["fields"] = {**fields, "left_out_before": left_out}
        return is_kept


_tracebacks = AtMost()
"""Limits tracebacks on the terminal, whose output may go to a file."""
LEFT_OUT = "    (its traceback was printed often enough)"


class InertRecord(logging.LogRecord):
    """A record whose message is one line without control characters: untrusted text cannot add a
    line or control the terminal. A traceback keeps its lines, indented further than any message,
    and is omitted when it repeats too often."""

    def getMessage(self) -> str:
        return printable(super().getMessage(), MAX_TEXT)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "exc_text" and isinstance(value, str):
            lines = (f"    {printable(line, MAX_TEXT)}" for line in value.split("\n"))
            value = "\n".join(lines) if _tracebacks.filter(self) else LEFT_OUT
        super().__setattr__(name, value)


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON, which escapes line ends and quotes."""

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "where": f"{record.module}.{record.funcName}",
            "pid": os.getpid(),
            # JSON escapes the raw message.
            "message": logging.LogRecord.getMessage(record)[:MAX_TEXT],
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)[-MAX_TEXT:]
        return mask(json.dumps(content, default=str))


class _QuietHandler(logging.handlers.RotatingFileHandler):
    """A file handler that ignores errors: a full disk or a removed folder must not stop work."""

    def handleError(self, record: logging.LogRecord) -> None:
        return


def open_log(folder: Path, part: str) -> None:
    """Makes this process log to `folder`/`part`.jsonl: Breakeven's messages and warnings of
    libraries. A second call changes nothing."""
    logging.setLogRecordFactory(InertRecord)
    file = folder / f"{part}.jsonl"
    root, known = logging.getLogger(), _open_files()
    if any(Path(known_handler.baseFilename) == file for known_handler in known):
        return
    with suppress(OSError):
        handler = _file_handler(file)
        handler.addFilter(
            lambda record: record.name.startswith(log.name) or record.levelno >= logging.WARNING
        )
        if part == DASHBOARD:
            handler.addFilter(AtMost())
        for old in known:
            root.removeHandler(old)
            old.close()
        root.addHandler(handler)
        log.setLevel(logging.INFO)


def _open_files() -> list[_QuietHandler]:
    return [
        handler for handler in logging.getLogger().handlers if isinstance(handler, _QuietHandler)
    ]


def _file_handler(file: Path) -> _QuietHandler:
    """Raises `OSError` if the folder cannot be made."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handler = _QuietHandler(
        file,
        maxBytes=MAX_BYTES,
        backupCount=KEPT_FILES,
        delay=True,
        encoding="utf-8",
        errors="backslashreplace",
    )
    handler.setFormatter(JsonLines())
    return handler


_acting = threading.Lock()


def log_action(folder: Path, action: str, about: str = "", **details: object) -> None:
    """Logs a completed action of a user on `about` (an id or a name): in the log of `folder` that
    this process has open, or in `COMMANDS`. A log that cannot be written stops nothing."""
    fields = {"about": about, **details}
    short = {name: printable(_text(value), MAX_DETAIL) for name, value in fields.items()}
    with _acting, suppress(OSError), _opened(folder):
        log.info(action, extra={"fields": short}, stacklevel=2)


def _text(value: object) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


@contextmanager
def _opened(folder: Path) -> Iterator[None]:
    """Opens the log of commands if this process has no log in the folder open."""
    if any(Path(file.baseFilename).parent == folder for file in _open_files()):
        yield
        return
    handler, level = _file_handler(folder / f"{COMMANDS}.jsonl"), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        handler.close()


def read_log(folder: Path, most: int = 500) -> list[dict[str, Any]]:
    """The last records of all logs, the latest first; invalid lines are skipped."""
    entries: list[dict[str, Any]] = []
    for file in sorted(folder.glob("*.jsonl")):
        entries += [{"part": file.stem, **entry} for entry in _tail(file)]
    entries.reverse()  # Of two lines in one millisecond, too, the later comes first.
    return sorted(entries, key=lambda entry: str(entry.get("time")), reverse=True)[:most]


def _tail(file: Path) -> Iterator[dict[str, Any]]:
    with suppress(OSError), file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - TAIL_BYTES))
        yield from json_lines(opened.read(TAIL_BYTES))
