"""Values and orders of events that nobody thought of, drawn for as long as one likes.

    .venv/bin/python -m benchmarks.breaking.fuzz [--budget SECONDS] [--seed N]

Runs the tests that Hypothesis draws for (any value anywhere in specifications, records and
journals; people and supervisors who die between any two writes; any archive), each round with the
next seed, until the budget is spent or something fails; the seed of that round repeats it.
"""

import argparse
import os
import random
import subprocess
import sys
import time

FUZZED = (
    "tests/runner/folders/test_deaths_between_writes.py",
    "tests/runner/folders/test_broken_folders.py::test_any_value_may_stand_anywhere_in_a_folder",
    "tests/storage/test_archives.py::test_whatever_an_archive_holds_nothing_is_written_outside",
)
EXAMPLES = 40
"""Examples of each test per round."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--budget", type=float, default=600.0, help="seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    begun, rounds = time.monotonic(), 0
    environment = {**os.environ, "BREAKEVEN_FUZZ_EXAMPLES": str(EXAMPLES)}
    while rounds == 0 or time.monotonic() - begun < options.budget:
        seed = options.seed + rounds
        command = [sys.executable, "-m", "pytest", "-q", f"--hypothesis-seed={seed}", *FUZZED]
        answer = subprocess.run(command, env=environment, capture_output=True, text=True)
        if answer.returncode:
            print(f"{answer.stdout}\nseed {seed}: repeat it with --seed {seed} --budget 0")  # noqa: T201
            return 1
        rounds += 1
    minutes = (time.monotonic() - begun) / 60
    print(f"{rounds} rounds from seed {options.seed} in {minutes:.0f} minutes: nothing failed")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
