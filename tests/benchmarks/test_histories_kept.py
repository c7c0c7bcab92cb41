"""Histories that were played are kept: a later call goes on after them and tells of all."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.breaking.kept_lines import read_lines
from breakeven.runner.project import PROJECT_ROOT

pytestmark = pytest.mark.heavy


def play(records: Path, *more: str) -> str:
    command = [sys.executable, "-m", "benchmarks.simulation", "--jobs", "1", "--seed", "kept",
               "--records", str(records), *more]  # fmt: skip
    return subprocess.run(
        command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    ).stdout


def test_a_call_goes_on_after_what_is_recorded_and_begins_nothing_without_time(
    tmp_path: Path,
) -> None:
    records = tmp_path / "histories.jsonl"
    assert "No history was played" in play(records, "--histories", "50", "--seconds", "-1")
    assert ": 50 histories of seed kept, 0 of them" in play(records, "--histories", "50")
    first = records.read_text()
    with records.open("a") as file:
        file.write('{"seed": "kept", "fir')  # as a process that was killed leaves it
    assert ": 70 histories of seed kept" in play(records, "--histories", "70")
    assert records.read_text().startswith(first)
    assert [line["first"] for line in read_lines(records)] == [0, 50]
