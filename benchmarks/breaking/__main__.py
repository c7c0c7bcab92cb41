"""Breaks real processes at random moments, and writes down what it cost: `make faults`.

    .venv/bin/python -m benchmarks.breaking [--times N] [--real-times N] [--seed N] [--only WORD]
                                            [--write docs/reliability.md]

The seed is printed; the same seed draws the same moments, as far as a machine repeats itself.
"""

import argparse
import platform
import random
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from benchmarks.breaking.faults import FAULTS
from benchmarks.breaking.trials import Fault
from benchmarks.breaking.world import FAKE, REAL, Outcome, World

BEGIN, END = "<!-- table: python -m benchmarks.breaking --write -->", "<!-- end of table -->"
HEAD = (
    "| fault | tried | rows lost | rows doubled | processes left | seconds until true "
    "(median, longest) | otherwise wrong |\n|---|---|---|---|---|---|---|\n"
)


def main() -> int:
    options = _options()
    print(f"seed {options.seed}", flush=True)  # noqa: T201
    begun = time.monotonic()
    found: dict[str, list[Outcome]] = defaultdict(list)
    for fault in FAULTS:
        if options.only in fault.name:
            for number in range(options.real_times if fault.is_real else options.times):
                outcome = attempt(fault, f"{options.seed}/{fault.name}/{number}")
                found[fault.name].append(outcome)
                print(row(fault.name, [outcome]), end="", flush=True)  # noqa: T201
    table = HEAD + "".join(row(name, outcomes) for name, outcomes in found.items())
    print(table)  # noqa: T201
    if options.write:
        rows = {name: row(name, outcomes) for name, outcomes in found.items()}
        write(options.write, rows, options.seed, time.monotonic() - begun)
    return 0 if all(is_well(one) for several in found.values() for one in several) else 1


def attempt(fault: Fault, seed: str) -> Outcome:
    """One trial in a folder of its own; what it leaves is removed."""
    with tempfile.TemporaryDirectory(prefix="breakeven-faults-") as folder:
        world = World(Path(folder, "data"), REAL if fault.is_real else FAKE)
        try:
            return fault.act(world, random.Random(seed))
        except Exception as error:  # a trial that fails itself is told, and the next one begun
            traceback.print_exc()
            return Outcome(problems=[f"{type(error).__name__}: {error}"])
        finally:
            with suppress(OSError):
                world.close()


def is_well(outcome: Outcome) -> bool:
    return not (outcome.lost or outcome.doubled or outcome.left or outcome.problems)


def row(name: str, outcomes: list[Outcome]) -> str:
    seconds = sorted(one.seconds for one in outcomes)
    wrong = "; ".join(sorted({text for one in outcomes for text in one.problems})) or "-"
    lost, doubled, left = (
        sum(getattr(one, field) for one in outcomes) for field in ("lost", "doubled", "left")
    )
    took = f"{seconds[len(seconds) // 2]:.1f}, {seconds[-1]:.1f}"
    return f"| {name} | {len(outcomes)} | {lost} | {doubled} | {left} | {took} | {wrong} |\n"


def write(file: Path, rows: Mapping[str, str], seed: int, seconds: float) -> None:
    """Puts the rows between the marks; those that are there of other faults stay, and so does what
    was told of the run that they are from."""
    head, rest = file.read_text().split(BEGIN)
    before, tail = rest.split(END)
    kept = {line.split("|")[1].strip(): line + "\n" for line in before.splitlines()
            if line.startswith("| ") and not line.startswith("| fault ")}  # fmt: skip
    told = (
        f"{time.strftime('%Y-%m-%d')}, {platform.system()}, Python {platform.python_version()}, "
        f"seed {seed}, {seconds / 60:.0f} minutes"
    )
    if kept.keys() <= rows.keys():
        said = f"{told}.\n"
    else:
        earlier = before.split("| fault ")[0].strip()
        said = f"{earlier}\n\nBy themselves since, {told}: {', '.join(rows)}.\n"
    both = {**kept, **rows}
    table = HEAD + "".join(both[one.name] for one in FAULTS if one.name in both)
    file.write_text(f"{head}{BEGIN}\n\n{said}\n{table}\n{END}{tail}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--times", type=int, default=20, help="trials of faults without torch")
    parser.add_argument("--real-times", type=int, default=2, help="those with real training")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", default="", help="faults whose name has this in it")
    parser.add_argument("--write", type=Path, help="the document whose table is replaced")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
