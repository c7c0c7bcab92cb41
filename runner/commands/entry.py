"""What every command line of Breakeven begins and ends with: which half runs a command, what
commands and options were called before, and readers that go away."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper

STORED = {
    "list": "list experiments and what they came to: search, filter, sort; or how runs stand",
    "show": "print what an experiment, a repetition or a suite run came to",
    "explain": "say why each backend is faster or slower, or which stage of the compiler is at "
    "fault",
    "diff": "compare experiments, the first with the others; or what the compiler did in two runs",
    "trend": "tell how the same training fared over time, and its steps",
    "devices": "list devices: how noisy and how fast each is, over time",
    "export": "write experiments as an HTML report, or in a format of PyTorch's benchmarks",
    "import": "take in reports, archives of run folders, and results of PyTorch's benchmarks",
    "team": "look after the store that a team shares (docs/operating.md)",
}
"""Commands that `storage/` runs; the runner's own `--help` lists them as well."""
NEEDS_NO_DATABASE = "--runs"
"""With this option `list` reads the run folders alone."""
FROM_INPUT = "-"
"""Instead of a command: `storage/` reads its arguments, a list as JSON, from standard input. Who
starts it with this lets it import its packages meanwhile."""
FORMER = {
    "status": "list --runs",
    "archive --undo": "label --no-archive",
    "archive": "label --archive",
    "restore": "delete --undo",
    "empty-trash": "clean --trash",
    "free": "clean",
    "retain": "clean",
    "join": "supervise --join",
    "ladder": "explain --ladder",
    "difference": "diff",
    "compile-diff": "diff",
    "report": "export",
    "alerts --test": "doctor --notify",
    "alerts": "doctor",
    "--no-control": "--controls=0",
    "--control": "--controls=1",
}
"""Commands and options of the release before this one, and what they are called now."""
HINT = "{0} is now {1}; the next release no longer accepts it"


def renamed(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments with former names replaced by the new ones, and a hint for each that was
    there."""
    words, hints = list(arguments), []
    for former, now in FORMER.items():
        command, *options = former.split()
        is_option = command.startswith("-")
        places = range(len(words)) if is_option else range(min(1, len(words)))
        if not any(words[place] == command for place in places) or not {*options} <= {*words}:
            continue
        words = [word for word in words if word not in options]
        replaced = [now.split() if word == command and (is_option or place == 0) else [word]
                    for place, word in enumerate(words)]  # fmt: skip
        words = [word for group in replaced for word in group]
        hints.append(HINT.format(former, now))
    return words, hints


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
