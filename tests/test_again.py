"""Tests that failed because they waited too long are repeated by themselves, and no others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.again import NUM_RUNS, recorded, why_not_repeated

ROOT = Path(__file__).parent.parent


def test_only_few_tests_of_processes_and_browsers_are_repeated() -> None:
    assert not why_not_repeated({"a": True, "b": True})
    assert "3 tests failed" in why_not_repeated({"a": True, "b": True, "c": True})
    assert "1 of the failed tests" in why_not_repeated({"a": True, "b": False})
    assert why_not_repeated({})


def test_the_same_test_in_two_of_ten_runs_is_told(tmp_path: Path) -> None:
    record = tmp_path / "state" / "record.jsonl"
    assert recorded(["a"], record) == []
    assert recorded(["b"], record) == []
    assert recorded(["c", "b"], record) == ["b"]
    for _ in range(NUM_RUNS - 3):
        assert recorded([], record) == []
    assert recorded(["a"], record) == [], "the first run is the eleventh from the end"
    assert recorded(["c"], record) == ["c"]
    assert len(record.read_text().splitlines()) == NUM_RUNS


TESTS = """
import pathlib, pytest
def fails_once(name):
    file = pathlib.Path(__file__).with_name(name)
    before = file.read_text() if file.exists() else ""
    file.write_text(before + "x")
    assert before, name

@pytest.mark.heavy
def test_impatient(): fails_once("impatient")
def test_sound(): fails_once("sound") if SOUND_FAILS else None
@pytest.mark.browser
def test_broken(): assert not BROKEN
@pytest.fixture
def patience(): fails_once("patience")
@pytest.mark.browser
@pytest.mark.parametrize("page", ["a b[1]"])
def test_whose_setup_is_impatient(patience, page): pass
"""


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("sound_fails", "broken", "workers", "statuses"),
    [
        pytest.param(False, False, 2, (0, 1), marks=pytest.mark.slow),
        (True, False, 0, (1,)),
        (False, True, 0, (1,)),
    ],
    ids=["two lose patience, twice in ten runs", "another fails", "three fail"],
)
def test_a_run_of_pytest(
    tmp_path: Path, sound_fails: bool, broken: bool, workers: int, statuses: tuple[int, ...]
) -> None:
    marks = "\n".join(["[pytest]", "markers =", "  heavy: x", "  browser: x"])
    (tmp_path / "pytest.ini").write_text(marks)
    (tmp_path / "test_it.py").write_text(f"SOUND_FAILS, BROKEN = {sound_fails}, {broken}\n{TESTS}")
    record = tmp_path / "record.jsonl"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BREAKEVEN_TEST_RECORD": str(record)}
    command = [sys.executable, "-m", "tests.again", "--numprocesses", str(workers)]
    are_repeated = not (sound_fails or broken)
    for status in statuses:
        for name in ("impatient", "sound", "patience"):
            (tmp_path / name).unlink(missing_ok=True)
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert (tmp_path / "impatient").read_text() == "x" * (1 + are_repeated)
    if are_repeated:
        lines = [sorted(json.loads(line)) for line in record.read_text().splitlines()]
        names = ["test_it.py::test_impatient", "test_it.py::test_whose_setup_is_impatient[a b[1]]"]
        assert lines == [names] * 2
        assert "Repeated twice in 10 runs, so mend:" in done.stdout
    else:
        assert not record.exists() and "No test is repeated" in done.stdout
