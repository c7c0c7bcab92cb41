"""Fixtures shared by all tests, and the order: quick tests first."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.run_dir import DataDir

# Two threads on two cores make an Inductor step ten times slower, and tests share the machine.
os.environ["OMP_NUM_THREADS"] = "1"
# Whatever the tests start must never wait for a network.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[DataDir]:
    """An empty data folder."""
    yield DataDir(tmp_path / "data")
