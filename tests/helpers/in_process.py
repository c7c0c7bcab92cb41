"""Answers questions in the process of a test that the product asks separate processes, because
starting one takes seconds. A few tests ask the real processes."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from breakeven.runner.checks import data_file, refused_experiments
from breakeven.runner.commands.waiting import Storage
from breakeven.runner.errors import UnusableData
from breakeven.runner.specs.experiment import ExperimentSpec


@contextmanager
def files_read_here() -> Iterator[None]:
    """The first rows of data files."""
    from breakeven.runner.worker.data import file_head

    def read(path: Path, *_version: int) -> data_file.Head:
        content = json.loads(json.dumps(file_head.read_head(path)))
        if "error" in content:
            raise UnusableData(content["error"])
        return data_file.Head.from_dict(content)

    with mock.patch.object(data_file, "_read_head", read):
        yield


@contextmanager
def torch_asked_here() -> Iterator[None]:
    """Whether torch accepts settings."""

    def first_refused(spec_json: str) -> dict[str, Any]:
        from breakeven.runner.worker import settings_check  # imports torch

        return settings_check.first_refused(ExperimentSpec.from_json(spec_json))

    with mock.patch.object(refused_experiments, "_first_refused", first_refused):
        yield


@contextmanager
def storage_asked_here() -> Iterator[None]:
    """What commands read from the database."""

    def run(storage: Storage, command: str, arguments: Sequence[str]) -> int:
        from breakeven.storage.__main__ import main  # imports pandas

        return main([command, f"--data-folder={storage._data_dir.path}", *arguments])

    with mock.patch.object(Storage, "start"), mock.patch.object(Storage, "run", run):
        yield
