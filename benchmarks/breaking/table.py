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
    text = summary(read(options.records))
    print(text)  # noqa: T201
    if options.write:
        write(options.write, BEGIN, END, text)


def summary(records: Sequence[Record]) -> str:
    """Places and dates of the records, and a row for each fault and device."""
    where = {(record.fault, record.device) for record in records}
    devices = sorted({device for _, device in where})
    rows = [
        row(
            f"{fault.name}{', on ' + device if device not in ('', 'cpu') else ''}",
            [
                record.outcome
                for record in records
                if (record.fault, record.device) == (fault.name, device)
            ],
        )
        for fault in FAULTS
        for device in devices
        if (fault.name, device) in where
    ]
    return f"{_origin(records)}\n\n{HEAD}{''.join(rows)}"


def _origin(records: Sequence[Record]) -> str:
    lines = []
    for machine, count in Counter(record.machine for record in records).most_common():
        trials = [record for record in records if record.machine == machine]
        days = sorted({time.strftime("%Y-%m-%d", time.gmtime(record.began)) for record in trials})
        seeds = ", ".join(str(seed) for seed in sorted({record.seed for record in trials}))
        without = " without the index" * (not all(record.outcome.is_indexed for record in trials))
        minutes = sum(record.took for record in trials) / 60
        lines.append(
            f"* {' to '.join(dict.fromkeys((days[0], days[-1])))}, {machine}: {count:,} trials"
            f"{without}, seed {seeds}, {minutes:.0f} minutes one after another."
        )
    return "\n".join(lines)


def is_well(outcome: Outcome) -> bool:
    return not (outcome.lost or outcome.doubled or outcome.left or outcome.problems)


def row(name: str, outcomes: Sequence[Outcome]) -> str:
    seconds = sorted(outcome.seconds for outcome in outcomes)
    wrong = "; ".join(sorted({text for outcome in outcomes for text in outcome.problems})) or "-"
    lost, doubled, left = (
        sum(getattr(outcome, field) for outcome in outcomes)
        for field in ("lost", "doubled", "left")
    )
    late = sum(outcome.was_late for outcome in outcomes)
    tried = f"{len(outcomes)}" + f" ({late} too late)" * bool(late)
    took = f"{seconds[len(seconds) // 2]:.1f}, {seconds[-1]:.1f}"
    return f"| {name} | {tried} | {lost} | {doubled} | {left} | {took} | {wrong} |\n"


if __name__ == "__main__":
    main()
