"""Runs the tests, and those that failed for want of patience once more, by themselves.

    python -m tests.again [arguments of pytest]

A test that is marked `heavy` or `browser` shares the machine with two other processes full of tests
and may lose its patience. Repeated at once, it would meet the same neighbours; so it is repeated
after all others, in a process that has the machine to itself. That is no licence to be unreliable:
a run is red if any other test failed, if more than `MAX_REPEATED` tests had to be repeated, or if a
test had to be repeated in two of the last `NUM_RUNS` runs of this machine. For the last rule the
record is a file outside of the checkout, because CI tests a clean clone each time.

Also a plugin of pytest, which writes down what failed.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

PATIENT = ("browser", "heavy")
"""Marks of tests that may be repeated."""
MAX_REPEATED = 2
NUM_RUNS = 10
OPTION = "--failures-to"
Failures = dict[str, bool]
"""Each failed test, and whether it may be repeated."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, metavar="FILE", help="a file for the names of the tests that failed")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    path = config.getoption(OPTION)
    if path is None:
        return
    failures: Failures = {}
    for outcome in ("failed", "error"):
        for report in terminalreporter.getreports(outcome):
            # A file that cannot be collected and a worker that crashed have no marks.
            marks = getattr(report, "keywords", {})
            failures[report.nodeid] = any(mark in marks for mark in PATIENT)
    Path(path).write_text(json.dumps(failures))


def record_file() -> Path:
    """The record of the last runs: `BREAKEVEN_TEST_RECORD`, or a file in the user's folder."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = os.environ.get("BREAKEVEN_TEST_RECORD")
    return Path(path) if path else Path(state) / "breakeven" / "repeated-tests.jsonl"


def why_not_repeated(failures: Failures) -> str:
    """Why the run fails without a repetition; empty if the failed tests are to be repeated."""
    if not failures:
        return "pytest failed without a failed test"
    others = [test for test, may_repeat in failures.items() if not may_repeat]
    if others:
        return f"{len(others)} of the failed tests are neither `heavy` nor `browser`"
    if len(failures) > MAX_REPEATED:
        return f"{len(failures)} tests failed, and at most {MAX_REPEATED} are repeated"
    return ""


def recorded(repeated: Sequence[str], path: Path) -> list[str]:
    """Adds a run to the record; returns its repeated tests that one of the last `NUM_RUNS` runs
    repeated, too."""
    lines = path.read_text().splitlines() if path.exists() else []
    before = lines[-(NUM_RUNS - 1) :]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in [*before, json.dumps(repeated)]))
    return [test for test in repeated if any(test in json.loads(line) for line in before)]


def run_pytest(arguments: Sequence[str]) -> tuple[int, Failures]:
    """Runs pytest; returns its exit status and the failed tests."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "failures.json"
        command = [sys.executable, "-m", "pytest", "-p", "tests.again", f"{OPTION}={file}"]
        status = subprocess.run([*command, *arguments]).returncode
        return status, json.loads(file.read_text()) if file.exists() else {}


def main(arguments: Sequence[str]) -> int:
    """The exit status: that of pytest, but 0 if all failed tests passed when they were repeated."""
    status, failures = run_pytest(arguments)
    if status == pytest.ExitCode.OK:
        recorded([], record_file())
        return 0
    if status != pytest.ExitCode.TESTS_FAILED:
        return status
    if reason := why_not_repeated(failures):
        return _red(f"No test is repeated: {reason}.", status)
    _say(f"Repeating by themselves: {', '.join(failures)}")
    again, _ = run_pytest([*failures, "-m", " or ".join(PATIENT), "--numprocesses=0"])
    if again != pytest.ExitCode.OK:
        return _red("The repeated tests failed again.", again)
    if often := recorded([*failures], record_file()):
        return _red(f"Repeated twice in {NUM_RUNS} runs, so mend: {', '.join(often)}", status)
    _say(f"Passed when repeated by themselves: {', '.join(failures)}")
    return 0


def _say(text: str) -> None:
    print(f"\n{text}", flush=True)  # noqa: T201


def _red(text: str, status: int) -> int:
    _say(text)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
