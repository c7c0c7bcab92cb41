"""What the operator was told already, by whichever process: each event once, for good."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from breakeven.runner.files import write_atomically
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.locks import FileLock
from breakeven.runner.texts import read_json

PATIENCE_SECONDS = 2.0


class Told:
    """Kept in `alerts.json` of the data folder, and here, should the disk be full."""

    def __init__(self, data_dir: DataDir) -> None:
        self._file = data_dir.alerts_file
        self._file_lock = data_dir.alerts_file.with_suffix(".lock")
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {}

    def turns(self, kind: str, is_wrong: bool) -> bool:
        """Whether that is news: what was wrong is not any more, or the other way round."""
        return self._change("wrong", kind, lambda before: bool(before) != is_wrong, is_wrong)

    def is_wrong(self, kind: str) -> bool:
        """Whether the last that was told of it is that it is wrong."""
        mine = self._known.get("wrong", {}).get(kind)
        kept = self._read().get("wrong", {})
        return bool(mine) or (isinstance(kept, dict) and bool(kept.get(kind)))

    def is_later(self, kind: str, event: str, mark: str) -> bool:
        """Whether something happened after what was last told of it; marks are in order of time.
        `event` is when it happened, `mark` what the next one must be later than."""
        return self._change(kind, "", lambda before: not before or event > before, mark)

    def sent(self, channel: str, error: str | None) -> None:
        """Notes what became of an alert."""
        said = {"time": time.time(), "error": error}
        self._change("channels", channel, lambda before: True, said)

    def last(self, channel: str) -> dict[str, Any] | None:
        """When an alert was last sent, and what kept it; None if none was."""
        found = self._read().get("channels", {}).get(channel)
        return found if isinstance(found, dict) else None

    def _change(
        self, kind: str, name: str, is_news: Callable[[Any], bool], value: Any
    ) -> bool:  # fmt: skip
        """Keeps a value if it is news, here too: a full disk must not tell it each second."""
        with self._lock:
            mine = self._known.setdefault(kind, {})
            if name in mine and not is_news(mine[name]):
                return False
            lock = FileLock(self._file_lock)
            with suppress(OSError):
                lock.acquire(PATIENCE_SECONDS)
            with lock:
                content = self._read()
                kept = content.get(kind)
                kept = kept if isinstance(kept, dict) else {}
                fresh = is_news(kept.get(name))
                # Where another process told of it, what that one told is what the next is held to.
                mine[name] = value if fresh else kept.get(name)
                if fresh:
                    content[kind] = {**kept, name: value}
                    with suppress(OSError):
                        write_atomically(self._file, json.dumps(content, indent=1) + "\n")
            return fresh

    def _read(self) -> dict[str, Any]:
        try:
            content = read_json(self._file.read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}
