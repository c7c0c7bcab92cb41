"""Live progress of an experiment on a terminal: one line per run, redrawn in place."""

import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from io import TextIOWrapper

from breakeven.runner.commands.progress import RunProgress
from breakeven.runner.folders.queue import Experiment
from breakeven.runner.folders.states import RunState
from breakeven.runner.texts import duration, printable

REFRESH_SECONDS = 0.5
PLAIN_REFRESH_SECONDS = 5.0
BAR_WIDTH = 20
MAX_ERROR_CHARACTERS = 100


def ends_quietly(main: Callable[[], int]) -> int:
    """Exit status of a command whose reader may close the pipe, as `| head` does: then that of
    programs which SIGPIPE ends, and not a word."""
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


def watch(experiment: Experiment) -> None:
    """Shows the runs of an experiment until all have ended."""
    labels = [variant.label for variant in experiment.variants]
    runs = [RunProgress(run, experiment.spec) for run in experiment.runs]
    width = max(map(len, labels))
    padded = [label.ljust(width) for label in labels]
    is_terminal = sys.stdout.isatty()
    drawn = 0
    shown: list[str] = []
    last_print = 0.0
    while True:
        for run in runs:
            run.update()
        lines = [_line(label, run) for label, run in zip(padded, runs, strict=True)]
        over = all(run.state.is_final for run in runs)
        if is_terminal:
            drawn = _redraw(lines, drawn)
        elif over or time.monotonic() - last_print > PLAIN_REFRESH_SECONDS:
            _print_changed(lines, shown)
            shown, last_print = lines, time.monotonic()
        if over:
            return
        time.sleep(REFRESH_SECONDS)


def _redraw(lines: Sequence[str], drawn: int) -> int:
    up = f"\x1b[{drawn}A" if drawn else ""
    sys.stdout.write(up + "".join(f"\x1b[2K{line}\n" for line in lines))
    sys.stdout.flush()
    return len(lines)


def _print_changed(lines: Sequence[str], shown: Sequence[str]) -> None:
    for line in lines:
        if line not in shown:
            sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _line(label: str, run: RunProgress) -> str:
    filled = round(BAR_WIDTH * run.steps_done / run.num_steps) if run.num_steps else 0
    bar = "#" * filled + "." * (BAR_WIDTH - filled)
    of_all = f"/{run.num_steps}" if run.num_steps else " steps"
    parts = [f"{label} [{bar}] {run.steps_done:>5}{of_all}", f"{_doing(run):<16}"]
    if run.loss is not None:
        parts.append(f"loss {run.loss:.4f}")
    if run.step_seconds is not None:
        parts.append(f"{run.step_seconds * 1e3:.1f} ms/step")
    if run.held_out is not None:
        name, value = run.held_out
        parts.append(
            f"accuracy {100 * value:.1f} %" if name == "accuracy" else f"held-out {value:.4f}"
        )
    if said := run.waits or run.error or run.stopped:
        short = textwrap.shorten(said, MAX_ERROR_CHARACTERS, placeholder=" ...")
        parts.append(printable(short))
    return "  ".join(parts)


def _doing(run: RunProgress) -> str:
    if run.state is not RunState.RUNNING:
        return run.state.replace("_", " ")
    if run.compiling_since is not None:
        going = max(0.0, time.time() - run.compiling_since)
        return f"compiling {duration(run.compiled_seconds + going)}"
    return printable(run.phase, limit=16) or "starting"
