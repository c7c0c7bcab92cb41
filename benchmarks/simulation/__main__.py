"""Plays histories of the supervisor's protocol: `make histories`.

    .venv/bin/python -m benchmarks.simulation [--histories N] [--seed TEXT] [--first N]
                                              [--processes N] [--only N] [--write FILE]

A history that fails is told with its number; `--only NUMBER` plays it again and tells its story.
"""

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pool
from pathlib import Path

from benchmarks.simulation.history import Result, play

MEMORY = Path("/dev/shm")
"""Where files cost no disk."""
AT_ONCE = 50
BEGIN = "<!-- histories: python -m benchmarks.simulation --write -->"
END = "<!-- end of histories -->"


def main() -> int:
    options = _options()
    if options.only is not None:
        (result,) = play_some((options.seed, options.only, options.only + 1))
        print("\n".join([*result.story, str(result.violation)]))  # noqa: T201
        return result.violation is not None
    begun = time.monotonic()
    end = options.first + options.histories
    parts = [(options.seed, number, min(number + AT_ONCE, end))
             for number in range(options.first, end, AT_ONCE)]  # fmt: skip
    failed: list[Result] = []
    events: Counter[str] = Counter()
    played, calls, virtual = 0, 0, 0.0
    # Ctrl-C is for whoever counts, who then tells of those that were played.
    with suppress(KeyboardInterrupt), Pool(options.processes, _hear_no_interrupt) as pool:
        for results in pool.imap_unordered(play_some, parts):
            for result in results:
                played += 1
                events += result.events
                calls += result.calls
                virtual += result.seconds
                if result.violation:
                    failed.append(result)
                    print(f"{result.seed}: {result.violation}", flush=True)  # noqa: T201
    minutes = (time.monotonic() - begun) / 60
    told = (
        f"{time.strftime('%Y-%m-%d')}: {played:,} histories of seed {options.seed}, "
        f"{len(failed)} of them with a broken promise; {calls:,} calls of the system and "
        f"{virtual / 86_400:,.0f} days of their own time, in {minutes:.0f} minutes of "
        f"{options.processes} processes. In them: "
        + ", ".join(f"{name} {count:,}" for name, count in events.most_common())
        + ".\n"
    )
    print(told)  # noqa: T201
    if options.write:
        head, rest = options.write.read_text().split(BEGIN)
        options.write.write_text(f"{head}{BEGIN}\n\n{told}\n{END}{rest.split(END)[1]}")
    return bool(failed)


def _hear_no_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def play_some(given: tuple[str, int, int]) -> list[Result]:
    """The histories of a seed from one number to another."""
    seed, first, end = given
    with _own_folder() as folder:
        return [play(folder, f"{seed}/{number}") for number in range(first, end)]


@contextmanager
def _own_folder() -> Iterator[Path]:
    parent = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="breakeven-histories-", dir=parent) as folder:
        yield Path(folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", default="20261122")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, help="the number of one history, told call by call")
    parser.add_argument("--write", type=Path, help="the document whose paragraph is replaced")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
