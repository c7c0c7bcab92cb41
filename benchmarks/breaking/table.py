"""The table of `benchmarks/results/faults.md`, from the records of trials.

python -m benchmarks.breaking.table RECORDS.jsonl ... [--write benchmarks/results/faults.md]
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.breaking.faults import FAULTS
from benchmarks.breaking.records import Record, read
from benchmarks.breaking.world import Outcome
from benchmarks.tables import write

BEGIN = "<!-- table: python -m benchmarks.breaking.table RECORDS --write -->"
END = "<!-- end of table -->"
HEAD = (
    "| fault | tried | rows lost | rows doubled | processes left | seconds until true "
    "(median, longest) | otherwise wrong |\n|---|---|---|---|---|---|---|\n"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--write", type=Path, help="the document whose table is replaced")
    options = parser.parse_args()
    told = told_of(read(options.records))
    print(told)  # noqa: T201
    if options.write:
        write(options.write, BEGIN, END, told)


def told_of(records: Sequence[Record]) -> str:
    """Places and dates of the records, and a row for each fault and device."""
    where = {(one.fault, one.device) for one in records}
    devices = sorted({device for _, device in where})
    rows = [
        row(
            f"{fault.name}{', on ' + device if device not in ('', 'cpu') else ''}",
            [one.outcome for one in records if (one.fault, one.device) == (fault.name, device)],
        )
        for fault in FAULTS
        for device in devices
        if (fault.name, device) in where
    ]
    return f"{_origin(records)}\n\n{HEAD}{''.join(rows)}"


def _origin(records: Sequence[Record]) -> str:
    lines = []
    for machine, count in Counter(one.machine for one in records).most_common():
        mine = [one for one in records if one.machine == machine]
        days = sorted({time.strftime("%Y-%m-%d", time.gmtime(one.began)) for one in mine})
        seeds = ", ".join(str(seed) for seed in sorted({one.seed for one in mine}))
        without = " without the index" * (not all(one.outcome.is_indexed for one in mine))
        lines.append(
            f"* {' to '.join(dict.fromkeys((days[0], days[-1])))}, {machine}: {count:,} trials"
            f"{without}, seed {seeds}, {sum(one.took for one in mine) / 60:.0f} minutes one after "
            "another."
        )
    return "\n".join(lines)


def is_well(outcome: Outcome) -> bool:
    return not (outcome.lost or outcome.doubled or outcome.left or outcome.problems)


def row(name: str, outcomes: Sequence[Outcome]) -> str:
    seconds = sorted(one.seconds for one in outcomes)
    wrong = "; ".join(sorted({text for one in outcomes for text in one.problems})) or "-"
    lost, doubled, left = (
        sum(getattr(one, field) for one in outcomes) for field in ("lost", "doubled", "left")
    )
    late = sum(one.was_late for one in outcomes)
    tried = f"{len(outcomes)}" + f" ({late} too late)" * bool(late)
    took = f"{seconds[len(seconds) // 2]:.1f}, {seconds[-1]:.1f}"
    return f"| {name} | {tried} | {lost} | {doubled} | {left} | {took} | {wrong} |\n"


if __name__ == "__main__":
    main()
