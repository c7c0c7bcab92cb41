"""Fixtures shared by all tests, and the order: quick tests first."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.folders.run_dir import DataDir

# Two threads on two cores make an Inductor step ten times slower, and tests share the machine.
os.environ["OMP_NUM_THREADS"] = "1"
# Whatever the tests start must never wait for a network.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[DataDir]:
    """An empty data folder."""
    yield DataDir(tmp_path / "data")


@pytest.fixture
def fresh_torch() -> Iterator[None]:
    """One thread, and a compiler that knows nothing: a run has its process to itself."""
    import torch  # takes seconds, and most tests do without
    from torch._dynamo.callback import callback_handler
    from torch._dynamo.utils import clear_compilation_metrics

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    callback_handler.clear()
    clear_compilation_metrics()
    yield
    torch.set_num_threads(before)
