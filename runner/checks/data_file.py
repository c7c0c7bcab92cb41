"""A data file before anything is trained on it: where it is, and what its first rows hold.

Whoever opens a file or folder of data goes through `locate`, which says whether it may be opened
and takes every name literally. Its content is read by another process, for which this one waits no
longer than `LIMIT_SECONDS`: a file may be huge, broken or made to do harm.
"""

import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from breakeven.runner.errors import UnusableData
from breakeven.runner.machine.variables import for_runs
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.workload import DATA_FILE_SUFFIXES

HEAD_COMMAND = (sys.executable, "-m", "breakeven.runner.worker.data.head")
LIMIT_SECONDS = 30.0
KEPT_HEADS = 64
Kind = Literal["text", "number", "truth", "image", "other"]
"""What the cells of a column are; `other` are lists, dates and the like."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table, as far as its rows were read."""

    name: str
    kind: Kind
    mean_length: float
    """Characters of a cell."""
    num_missing: int
    """Cells without a value."""
    num_blank: int
    """Cells without a value, or with nothing but blanks in it."""
    multiplicities: tuple[tuple[int, int], ...]
    """How many values occur once, twice, and so on: (times, values)."""

    @property
    def num_distinct(self) -> int:
        return sum(values for _times, values in self.multiplicities)


@dataclass(frozen=True, kw_only=True)
class Head:
    """The beginning of a table, or all of a small one."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    """The first few, each cell as text that is cut where it is long."""
    num_read: int
    """Rows that the columns tell of."""
    num_rows: int | None
    """Rows of the whole table; None where the file is too long to count them."""

    @property
    def is_whole(self) -> bool:
        return self.num_read == self.num_rows

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Head":
        columns = (
            Column(**{**column, "multiplicities": tuple(map(tuple, column["multiplicities"]))})
            for column in content["columns"]
        )
        rows = tuple(map(tuple, content["rows"]))
        return cls(**{**content, "columns": tuple(columns), "rows": rows})


def locate(source: str, *, may_be_folder: bool = False) -> Path:
    """The full path of the file, or of the folder of images, that a source names.

    Raises `UnusableData` for what is not there, is no regular file, cannot be read, or has a name
    that the library which reads data would not take literally.
    """
    path = _full_path(source)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        reason = "no such file or folder" if missing else f"it cannot be looked at ({error})"
        raise UnusableData(f"{reason}; give its full path") from None
    if "::" in str(path) or os.path.expandvars(path) != str(path):
        raise UnusableData("has '::' or '$' in its path, which stand for other files; rename it")
    if stat.S_ISDIR(mode):
        if not may_be_folder:
            raise UnusableData("is a folder, and this task takes a file")
        return path
    if not stat.S_ISREG(mode):
        raise UnusableData("is no regular file; copy its content into one")
    if not path.name.endswith(DATA_FILE_SUFFIXES):
        raise UnusableData(f"the file's name must end in {', '.join(DATA_FILE_SUFFIXES)}")
    if not os.access(path, os.R_OK):
        raise UnusableData("may not be read by this process; change its permissions")
    return path


def is_folder(source: str) -> bool:
    return _full_path(source).is_dir()


def _full_path(source: str) -> Path:
    """Relative ones begin where runs do, in the project."""
    try:
        return Path(os.path.abspath(PROJECT_ROOT / Path(source).expanduser()))
    except RuntimeError as error:  # `~nobody`
        raise UnusableData(f"{error}; give its full path") from None


def read_head(source: str) -> Head:
    """The beginning of a file, kept until the file changes; raises `UnusableData`."""
    path = locate(source)
    found = path.stat()
    return _read_head(path, found.st_size, found.st_mtime_ns, found.st_ino)


@lru_cache(KEPT_HEADS)
def _read_head(path: Path, *version: int) -> Head:
    light = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
             "ARROW_DEFAULT_MEMORY_POOL": "system"}  # fmt: skip
    try:
        answer = subprocess.run(
            [*HEAD_COMMAND, str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_SECONDS,
            cwd=PROJECT_ROOT,
            env={**for_runs(os.environ), **light},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnusableData(
            f"its first rows could not be read within {LIMIT_SECONDS:.0f} s"
        ) from None
    try:
        content = json.loads(answer.stdout)
    except ValueError:
        tail = answer.stderr.decode(errors="replace").strip().splitlines()[-1:]
        said = f": {tail[0][:200]}" if tail else f" (exit status {answer.returncode})"
        raise UnusableData(f"its first rows could not be read{said}") from None
    if "error" in content:
        raise UnusableData(content["error"])
    return Head.from_dict(content)
