"""Command lines whose output is piped into something that stops reading, as `head` does."""

import os
import subprocess
import sys

import pytest

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from tests.helpers.journals import EXPERIMENT_ID, record_experiment

pytestmark = pytest.mark.heavy


@pytest.mark.slow
def test_command_lines_whose_reader_is_gone_end_quietly(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs)
    reads, writes = os.pipe()
    os.close(reads)
    place = f"--data-folder={data_dir.path}"
    # What a shell says of a program that SIGPIPE ended: 128 + 13; argparse itself says nothing of a
    # help that nobody reads.
    expected = {
        ("list", "--runs", place): 141,
        ("show", EXPERIMENT_ID, place): 141,
        ("compare", "--help"): 0,
    }
    for arguments, status in expected.items():
        ended = subprocess.run(
            [sys.executable, "-m", "breakeven", *arguments],
            stdout=writes,
            stderr=subprocess.PIPE,
            cwd=PROJECT_ROOT,
        )
        assert (ended.returncode, ended.stderr) == (status, b""), arguments
    os.close(writes)
