"""Records as lines of JSON that survive a killed writer and can be continued."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from breakeven.runner.texts import json_lines


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The records; empty without a file. Skips a line that a killed process left incomplete."""
    return list(json_lines(file.read_bytes())) if file.exists() else []


@contextmanager
def appending(path: Path) -> Iterator[TextIO]:
    """The file, open for appending from a new line on."""
    with path.open("a+") as file:
        file.seek(0)
        if not file.read().endswith("\n") and file.tell():
            file.write("\n")
        yield file


def append(file: TextIO, content: Mapping[str, Any]) -> None:
    file.write(json.dumps(content) + "\n")
    file.flush()
