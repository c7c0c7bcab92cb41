"""Logs of the supervisor and the dashboard: a line of JSON each, masked, in files that rotate.

They lie in `logs/` of the data folder. A log that cannot be written stops nobody. What libraries
say on the terminal besides may quote a stranger's request, and does nothing there.
"""

import json
import logging
import logging.handlers
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from runner.masking import mask
from runner.texts import printable

MAX_BYTES = 5_000_000
"""Of one file; then another is begun."""
KEPT_FILES = 5
MAX_TEXT = 20_000
"""Characters of one message or traceback."""
TAIL_BYTES = 400_000
log = logging.getLogger("breakeven")
"""What parts of Breakeven say themselves. Fields beside the message are given as
`extra={"fields": {...}}`."""


class InertRecord(logging.LogRecord):
    """A record whose message is one line wherever it is printed: no line of somebody else's making
    stands beside it, and no character drives the terminal. A traceback keeps its lines alone."""

    def getMessage(self) -> str:
        return printable(super().getMessage(), MAX_TEXT)

    def __setattr__(self, name: str, value: object) -> None:
        if name == "exc_text" and isinstance(value, str):
            value = "\n".join(printable(line, MAX_TEXT) for line in value.split("\n"))
        super().__setattr__(name, value)


class JsonLines(logging.Formatter):
    """One line for each record; line ends and quotes in foreign text are JSON's to escape."""

    def format(self, record: logging.LogRecord) -> str:
        content: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "where": f"{record.module}.{record.funcName}",
            "pid": os.getpid(),
            # JSON's own escapes are enough.
            "message": logging.LogRecord.getMessage(record)[:MAX_TEXT],
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)[-MAX_TEXT:]
        return mask(json.dumps(content, default=str))


class _QuietHandler(logging.handlers.RotatingFileHandler):
    """A disk without room, or a folder that went away, must not end what is logged about."""

    def handleError(self, record: logging.LogRecord) -> None:
        return


def open_log(folder: Path, part: str) -> None:
    """From now on this process logs to `folder`/`part`.jsonl: what Breakeven says, and warnings of
    the libraries that it uses. Called again it changes nothing."""
    logging.setLogRecordFactory(InertRecord)
    file = folder / f"{part}.jsonl"
    root = logging.getLogger()
    known = [one for one in root.handlers if isinstance(one, _QuietHandler)]
    if any(Path(one.baseFilename) == file for one in known):
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        handler = _QuietHandler(file, maxBytes=MAX_BYTES, backupCount=KEPT_FILES, delay=True,
                                encoding="utf-8", errors="backslashreplace")  # fmt: skip
        handler.setFormatter(JsonLines())
        handler.addFilter(lambda record: record.name.startswith(log.name)
                          or record.levelno >= logging.WARNING)  # fmt: skip
        for old in known:
            root.removeHandler(old)
            old.close()
        root.addHandler(handler)
        log.setLevel(logging.INFO)


def read_log(folder: Path, most: int = 500) -> list[dict[str, Any]]:
    """The last lines of all logs, the latest first. A line that is none is passed over."""
    entries: list[dict[str, Any]] = []
    for file in sorted(folder.glob("*.jsonl")):
        entries += [{"part": file.stem, **entry} for entry in _tail(file)]
    entries.reverse()  # The later of two lines of one millisecond comes first, too.
    return sorted(entries, key=lambda entry: str(entry.get("time")), reverse=True)[:most]


def _tail(file: Path) -> Iterator[dict[str, Any]]:
    with suppress(OSError), file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - TAIL_BYTES))
        for line in opened.read(TAIL_BYTES).splitlines():
            with suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    yield entry
