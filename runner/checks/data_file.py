"""Checks a data file before training: finds it, reads its first rows, and decides whether an
experiment can use it.

All code that opens a data file or folder calls `locate`, which decides whether it may be opened and
takes every name literally. A separate process reads the content within `LIMIT_SECONDS`: a file may
be huge, damaged or malicious.
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

from breakeven.runner.errors import InvalidSpec, UnusableData
from breakeven.runner.machine.run_variables import run_variables
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec
from breakeven.runner.specs.workload import DATA_FILE_SUFFIXES, Task

HEAD_COMMAND = (sys.executable, "-m", "breakeven.runner.worker.data.file_head")
LIMIT_SECONDS = 30.0
KEPT_HEADS = 64
Kind = Literal["text", "number", "truth", "image", "other"]
"""Type of the cells of a column; `other` means lists, dates and so on."""


@dataclass(frozen=True, kw_only=True)
class DataColumn:
    """A column of a table; counts refer to the rows that were read."""

    name: str
    kind: Kind
    mean_length: float
    """Mean number of characters of a cell."""
    num_missing: int
    """Cells without a value."""
    num_blank: int
    """Cells without a value, or with blanks only."""
    multiplicities: tuple[tuple[int, int], ...]
    """The number of values that occur once, twice, and so on: (times, values)."""

    @property
    def num_distinct(self) -> int:
        return sum(values for _times, values in self.multiplicities)


@dataclass(frozen=True, kw_only=True)
class Head:
    """The beginning of a table, or all of a small one."""

    columns: tuple[DataColumn, ...]
    rows: tuple[tuple[str, ...], ...]
    """The first few rows; each cell is a text, cut if it is long."""
    num_read: int
    """Rows that were read for `columns`."""
    num_rows: int | None
    """Rows of the whole table; None if the file is too long to count them."""

    @property
    def is_whole(self) -> bool:
        return self.num_read == self.num_rows

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> DataColumn | None:
        return next((column for column in self.columns if column.name == name), None)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Head":
        # Not a `Spec`, which refuses some texts that a file may have.
        columns = (
            DataColumn(**{**column, "multiplicities": tuple(map(tuple, column["multiplicities"]))})
            for column in content["columns"]
        )
        rows = tuple(map(tuple, content["rows"]))
        return cls(**{**content, "columns": tuple(columns), "rows": rows})


def locate(source: str, *, may_be_folder: bool = False) -> Path:
    """The full path of the data file, or the folder of images, that a source names.

    Raises `UnusableData` if it is missing, is no regular file, cannot be read, or has a name that
    the library for reading data would not take literally.
    """
    path = _full_path(source)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        reason = "no such file or folder" if missing else f"it cannot be read ({error})"
        raise UnusableData(f"{reason}; give its full path") from None
    if "::" in str(path) or os.path.expandvars(path) != str(path):
        raise UnusableData(
            "has '::' or '$' in its path, which the data library interprets; rename it"
        )
    if stat.S_ISDIR(mode):
        if not may_be_folder:
            raise UnusableData("is a folder, but this task needs a file")
        return path
    if not stat.S_ISREG(mode):
        raise UnusableData("is not a regular file; copy its content to one")
    if not path.name.endswith(DATA_FILE_SUFFIXES):
        raise UnusableData(f"the file's name must end in {', '.join(DATA_FILE_SUFFIXES)}")
    if not os.access(path, os.R_OK):
        raise UnusableData("is not readable by this process; change its permissions")
    return path


def is_folder(source: str) -> bool:
    return _full_path(source).is_dir()


def _full_path(source: str) -> Path:
    """The absolute path; a relative path begins in the project folder, as for runs."""
    try:
        return Path(os.path.abspath(PROJECT_ROOT / Path(source).expanduser()))
    except RuntimeError as error:  # `~nobody`
        raise UnusableData(f"{error}; give its full path") from None


def read_head(source: str) -> Head:
    """The beginning of a file, cached until the file changes; raises `UnusableData`."""
    path = locate(source)
    status = path.stat()
    return _read_head(path, status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache(KEPT_HEADS)
def _read_head(path: Path, *version: int) -> Head:
    frugal_variables = {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
    try:
        answer = subprocess.run(
            [*HEAD_COMMAND, str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_SECONDS,
            cwd=PROJECT_ROOT,
            env={**run_variables(os.environ), **frugal_variables},
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
        reason = f": {tail[0][:200]}" if tail else f" (exit status {answer.returncode})"
        raise UnusableData(f"its first rows could not be read{reason}") from None
    if "error" in content:
        raise UnusableData(content["error"])
    return Head.from_dict(content)


CERTAIN = 7.0
"""Expected failures that count as certain: the probability of none is e^-7, one in a thousand."""
LABELS_OF_THEIR_OWN = 0.9
"""Largest accepted share of rows with a label that no other row has: these cannot be learned."""
MOST_FILES_LOOKED_AT = 10_000
IMAGE_LISTS = ("metadata.csv", "metadata.jsonl", "metadata.parquet")


def check_data(spec: ExperimentSpec, task: Task) -> None:
    """Raises `InvalidSpec` for data on which the experiment's task cannot train."""
    data = spec.data
    if not data.is_file or task.samples not in ("texts", "images"):
        return
    try:
        path = locate(data.source, may_be_folder=task.samples == "images")
        if path.is_dir():
            _check_image_folder(path)
            return
        head = read_head(data.source)
    except UnusableData as error:
        raise InvalidSpec("data.source", data.source, str(error)) from None
    check_columns(data, task, head)
    check_sizes(data, task, head)
    if task.labels == "sample":
        check_labels(data, head)


def check_columns(data: DataSpec, task: Task, head: Head) -> None:
    """Requires that the columns exist and contain the types that the task takes."""
    named = {"text_column": data.text_column}
    if task.labels == "sample":
        named["label_column"] = data.label_column
    for field, name in named.items():
        rule = f"is not a column of {Path(data.source).name}; it has {', '.join(head.names)}"
        data.require(field, name in head.names, rule)
    samples = _column(head, data.text_column)
    is_image = samples.kind == "image"
    rule = "contains images, but this task needs texts"
    data.require("text_column", task.samples == "images" or not is_image, rule)
    may_be_image = is_image or samples.kind == "text"  # or paths of images
    rule = "contains neither images nor paths of images"
    data.require("text_column", task.samples == "texts" or may_be_image, rule)
    rule = "contains lists or objects, but each row must have a text or a number"
    for field, name in named.items():
        plain = _column(head, name).kind != "other" or task.samples == "images"
        data.require(field, plain, rule)
    rule = "is also the text column, so each sample would be its own label"
    differ = task.labels != "sample" or data.label_column != data.text_column
    data.require("label_column", differ, rule)


def check_sizes(data: DataSpec, task: Task, head: Head) -> None:
    """Requires that the file has enough rows for the samples."""
    if head.num_rows is None:
        return
    blank = _column(head, data.text_column).num_blank if task.labels != "sample" else 0
    usable = head.num_rows - (blank if head.is_whole else 0)
    parts = {
        "train": data.num_train_samples,
        "evaluation": data.num_eval_samples,
        "test": data.num_test_samples,
    }
    wanted = " + ".join(f"{count:,} {part}" for part, count in parts.items() if count)
    rows = "rows with text" if blank else "rows"
    rule = f"{wanted} samples are more than the {usable:,} {rows} of {Path(data.source).name}; "
    rule += "take fewer"
    data.require("num_train_samples", data.num_samples <= usable, rule)


def check_labels(data: DataSpec, head: Head) -> None:
    """Requires that labels exist, differ and recur; refuses only data that is certain to fail."""
    labels = _column(head, data.label_column)
    share = labels.num_missing / head.num_read
    rule = f"{labels.num_missing:,} of {head.num_read:,} rows have no label; remove these rows"
    data.require("label_column", share * data.num_samples < CERTAIN, rule)
    rule = "every row has the same label, so nothing can be learned; choose another column"
    data.require("label_column", labels.num_distinct > 1 or not head.is_whole, rule)
    rule = (
        f"{labels.num_distinct:,} different labels in {head.num_read:,} rows: held-out samples "
        "would have labels that no training sample has; choose another column"
    )
    data.require("label_column", not _never_come_back(labels, data, head), rule)


def _never_come_back(labels: DataColumn, data: DataSpec, head: Head) -> bool:
    """Whether held-out samples are certain to have labels that no training sample has.

    A label with c of N rows is in none of T training rows with about (1 - T/N)^c probability. Then
    it is in one of H held-out rows with probability 1 - (1 - H/(N - T))^c.
    """
    unshared_labels = dict(labels.multiplicities).get(1, 0)
    if not head.is_whole:
        return unshared_labels > max(100, LABELS_OF_THEIR_OWN * head.num_read)
    rows, train = head.num_read, data.num_train_samples
    held_out = data.num_samples - train
    if rows <= train:
        return False
    if unshared_labels == rows:
        return True
    expected = sum(
        values * (1 - train / rows) ** times * (1 - (1 - held_out / (rows - train)) ** times)
        for times, values in labels.multiplicities
    )
    return expected > CERTAIN


def _column(head: Head, name: str) -> DataColumn:
    return head.columns[head.names.index(name)]


def _check_image_folder(folder: Path) -> None:
    """Raises `UnusableData` unless the images are in folders with the names of their labels."""
    labels, looked_at = set(), 0
    for parent, _folders, files in os.walk(folder):
        if any(name in IMAGE_LISTS for name in files):
            return
        if files and Path(parent) != folder:
            labels.add(Path(parent).name)
        looked_at += len(files)
        if len(labels) > 1 or looked_at > MOST_FILES_LOOKED_AT:
            return
    contents = f"only images of {labels.pop()!r}" if labels else "no folder with images"
    raise UnusableData(f"contains {contents}; it must contain a folder of images for each label")
