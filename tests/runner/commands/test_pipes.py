"""Command lines whose output is piped into something that stops reading, as `head` does."""

import os
import subprocess
import sys

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.project import PROJECT_ROOT
from tests.helpers.journals import EXPERIMENT_ID, record_experiment

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize(
    ("command", "status"),
    [
        # What a shell says of a program that SIGPIPE ended: 128 + 13.
        (("breakeven", "list", "--runs", "--data-folder", "{data}"), 141),
        (("breakeven", "show", EXPERIMENT_ID, "--data-folder", "{data}"), 141),
        # argparse itself says nothing of a help that nobody reads.
        (("breakeven", "compare", "--help"), 0),
        (("breakeven", "export", "--help"), 0),
    ],
)
def test_a_command_line_whose_reader_is_gone_ends_quietly(
    data_dir: DataDir, command: tuple[str, ...], status: int
) -> None:
    record_experiment(data_dir.runs)
    reads, writes = os.pipe()
    os.close(reads)
    arguments = [part.format(data=data_dir.path) for part in command]
    ended = subprocess.run([sys.executable, "-m", *arguments], stdout=writes,
                           stderr=subprocess.PIPE, cwd=PROJECT_ROOT)  # fmt: skip
    os.close(writes)
    assert (ended.returncode, ended.stderr) == (status, b"")
