"""Plays histories of the supervisor's protocol: `python -m benchmarks.simulation`.

    .venv/bin/python -m benchmarks.simulation [--histories N] [--seed TEXT] [--jobs N]
                                              [--seconds N] [--only N] [--write FILE]
                                              [--records FILE.jsonl]

Prints the number of each history that fails; `--only NUMBER` plays it again and prints its events.
`--records` keeps records of played histories: the next call continues after them, also on another
machine, and its report covers all of them.
"""

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from multiprocessing import Pool
from pathlib import Path
from typing import Self

from benchmarks.breaking.kept_lines import append, appending, read_lines
from benchmarks.simulation.history import Result, play
from benchmarks.tables import write

MEMORY = Path("/dev/shm")
"""A folder in memory, whose files take no disk."""
AT_ONCE = 50
BEGIN = "<!-- histories: python -m benchmarks.simulation --write -->"
END = "<!-- end of histories -->"


@dataclass(frozen=True, kw_only=True)
class Part:
    """The result of some consecutive histories."""

    seed: str
    first: int
    count: int
    calls: int
    days: float
    """Days of the histories' virtual time."""
    took: float
    """Seconds of processor time."""
    ended: float
    """Seconds since the epoch."""
    events: dict[str, int]
    failed: list[str]
    """Failures: each names its history and its violation."""

    @classmethod
    def from_results(cls, seed: str, first: int, results: Sequence[Result], took: float) -> Self:
        events: Counter[str] = sum((result.events for result in results), Counter())
        return cls(
            seed=seed,
            first=first,
            count=len(results),
            calls=sum(result.calls for result in results),
            days=sum(result.seconds for result in results) / 86_400,
            took=took,
            ended=time.time(),
            events=dict(events),
            failed=[f"{result.seed}: {result.violation}" for result in results if result.violation],
        )


def main() -> int:
    options = _options()
    if options.only is not None:
        with _own_folder() as folder:
            result = play(folder, f"{options.seed}/{options.only}")
        print("\n".join([*result.story, str(result.violation)]))  # noqa: T201
        return result.violation is not None
    deadline = time.monotonic() + options.seconds
    kept = read_lines(options.records) if options.records else []
    parts = [Part(**line) for line in kept if line["seed"] == options.seed]
    done = {part.first for part in parts}
    todo = [
        (options.seed, number, min(number + AT_ONCE, options.histories), deadline)
        for number in range(0, options.histories, AT_ONCE)
        if number not in done
    ]
    # Only the main process handles Ctrl-C; it then reports the histories played so far.
    with (
        appending(options.records) if options.records else nullcontext() as file,
        suppress(KeyboardInterrupt),
        Pool(options.jobs, _hear_no_interrupt) as pool,
    ):
        for part in filter(None, pool.imap_unordered(play_some, todo)):
            parts.append(part)
            for failure in part.failed:
                print(failure, flush=True)  # noqa: T201
            if file:
                append(file, asdict(part))
    text = summary(parts)
    print(text)  # noqa: T201
    if options.write:
        write(options.write, BEGIN, END, text)
    return any(part.failed for part in parts)


def summary(parts: Sequence[Part]) -> str:
    """A paragraph about the played histories."""
    if not parts:
        return "No history was played.\n"
    events: Counter[str] = sum((Counter(part.events) for part in parts), Counter())
    return (
        f"{time.strftime('%Y-%m-%d', time.gmtime(max(part.ended for part in parts)))}: "
        f"{sum(part.count for part in parts):,} histories of seed {parts[0].seed}, "
        f"{sum(len(part.failed) for part in parts)} of them with a broken promise; "
        f"{sum(part.calls for part in parts):,} calls of the system and "
        f"{sum(part.days for part in parts):,.0f} days of their own time, in "
        f"{sum(part.took for part in parts) / 60:.0f} minutes of processor time. In them: "
        + ", ".join(f"{name} {count:,}" for name, count in events.most_common())
        + ".\n"
    )


def _hear_no_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def play_some(given: tuple[str, int, int, float]) -> Part | None:
    """Plays a range of a seed's histories; None after the deadline."""
    seed, first, end, deadline = given
    if time.monotonic() > deadline:
        return None
    begun = time.process_time()
    with _own_folder() as folder:
        results = [play(folder, f"{seed}/{number}") for number in range(first, end)]
    return Part.from_results(seed, first, results, time.process_time() - begun)


@contextmanager
def _own_folder() -> Iterator[Path]:
    parent = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="breakeven-histories-", dir=parent) as folder:
        yield Path(folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", default="20261122")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="after which no further ones are begun"
    )
    parser.add_argument("--records", type=Path, help="where what was played is appended")
    parser.add_argument("--only", type=int, help="the number of one history, printed call by call")
    parser.add_argument("--write", type=Path, help="the document whose paragraph is replaced")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
