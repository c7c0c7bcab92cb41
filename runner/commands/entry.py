"""Start and end of every command: which package runs it, and closed pipes."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from io import TextIOWrapper

Add = Callable[[str, Callable[..., int], str], argparse.ArgumentParser]
"""Adds a command: its name, the function that runs it, and its text."""
BAD_INPUT = 2
STORED = {
    "list": "search, filter and sort experiments and their results; or list the states of runs",
    "show": "print the result of an experiment or a suite run",
    "explain": "explain why each backend is faster or slower, or name the compiler stage at fault",
    "diff": "compare the first experiment with others, or the compiler's work in two runs",
    "trend": "show a number of the same training over time, and its lasting changes",
    "export": "write experiments as an HTML report, or in a format of PyTorch's benchmarks",
    "import": "read reports, archives of run folders, and results of PyTorch's benchmarks",
    "team": "maintain the store that a team shares (docs/operating.md)",
}
"""Commands that `storage/` runs; `--help` of the runner lists them, too."""
NEEDS_NO_DATABASE = "--runs"
"""With this option `list` reads the run folders alone."""
FROM_INPUT = "-"
"""Stands in place of a command: `storage/` imports its packages, then reads its arguments as a JSON
list from standard input."""
PLAN_INVESTIGATION = "plan-investigation"
"""A command of `storage/` for `investigate` alone, which needs the verdicts on a run."""


def tell(text: str) -> None:
    """Prints a line of a command's answer."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def ends_quietly(main: Callable[[], int]) -> int:
    """Exit status of a command. If its reader closes the pipe, as `| head` does, the command prints
    nothing and has the exit status of a program that SIGPIPE ends."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            return main()
        finally:  # also after --help, which ends otherwise
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at the end, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
