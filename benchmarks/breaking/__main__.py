"""Breaks real processes at random moments, and writes down what it cost.

    .venv/bin/python -m benchmarks.breaking [--times N] [--real-times N] [--jobs N] [--seconds N]
        [--share 1/4] [--device cuda:0] [--seed N] [--only WORD] --records FILE.jsonl

The first trials of all faults come first, then the second, so that all faults share a budget. The
seed is printed; the same seed draws the same moments, if the machine behaves the same. Several
machines can take shares of the same trials. A share continues after the last of its records;
`benchmarks.breaking.table` combines the files.
"""

import argparse
import os
import random
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.breaking.faults import FAULTS, lacks
from benchmarks.breaking.kept_lines import append, appending
from benchmarks.breaking.records import Record, read, this_machine
from benchmarks.breaking.side_by_side import Trial, outcomes
from benchmarks.breaking.table import is_well, row


def main() -> int:
    options = _options()
    wanted = [fault for fault in FAULTS if options.only in fault.name]
    left_out = [fault.name for fault in wanted if lacks(fault.needs, options.device)]
    print(f"seed {options.seed}; cannot be tried here: {', '.join(left_out) or 'none'}", flush=True)  # noqa: T201
    trials = [
        Trial(fault=fault, number=number, seed=options.seed, device=options.device)
        for number in range(max(options.times, options.real_times))
        for fault in wanted
        if number < (options.real_times if fault.is_real else options.times)
        and fault.name not in left_out
    ]
    share, shares = map(int, options.share.split("/"))
    done = {record.trial for record in read([options.records])}
    todo = [
        trial
        for trial in trials[share - 1 :: shares]
        if (trial.fault.name, trial.on, trial.seed, trial.number) not in done
    ]
    machine, begun = this_machine(options.device), time.monotonic()
    all_well = True
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends active trials
    with appending(options.records) as file:
        for trial, took, outcome in outcomes(
            todo, options.jobs, lambda: time.monotonic() - begun < options.seconds
        ):
            record = Record(
                fault=trial.fault.name,
                number=trial.number,
                seed=trial.seed,
                device=trial.on,
                machine=machine,
                began=time.time() - took,
                took=took,
                outcome=outcome,
            )
            append(file, asdict(record))
            all_well &= is_well(outcome)
            print(f"{took:5.1f} s {row(trial.fault.name, [outcome])}", end="", flush=True)  # noqa: T201
    return 0 if all_well else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--times", type=int, default=20, help="trials of faults without torch")
    parser.add_argument("--real-times", type=int, default=2, help="those with real training")
    parser.add_argument("--jobs", type=int, default=1, help="trials side by side")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="after which no further trial begins"
    )
    parser.add_argument("--share", default="1/1", help="which of how many parts of the trials")
    parser.add_argument("--device", default="cpu", help="where real trainings take place")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", default="", help="faults whose name has this in it")
    parser.add_argument(
        "--records",
        type=Path,
        default=Path(f"faults-{os.getpid()}.jsonl"),
        help="where each trial's outcome is appended",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
