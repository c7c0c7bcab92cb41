"""How often parity calls correct backends broken, and whether it catches every planted fault.

Run from the project's root:
`.venv/bin/python -m benchmarks.parity_trials [folder [first seed [number for each workload ...]]]`

Each experiment has its own seed (weights, samples, their order, dropout). It trains baseline,
control, the correct backends and one planted fault (tests/faults/trial.py), one after another, in
this process on one thread. A given folder keeps the trainings; those that it already has
(`parity_recording` makes them on another machine or device) are only judged. Prints Markdown
tables.
"""

import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.parity_recording import (
    CORRECT,
    GRAPHS,
    NUM_TRIALS,
    Trial,
    all_trials,
    quieten,
    record,
)
from breakeven.storage.comparison.results import Result
from tests.faults.judging import judge_trial
from tests.faults.trial import FIRST_EFFECTS


def judged(trials: Iterable[Trial], folder: Path) -> Iterator[tuple[str, list[Result]]]:
    """The workload and the results of every experiment."""
    for trial in trials:
        place = record(trial, folder, "cpu", "float32")
        yield trial.workload, list(judge_trial(place).results)
        sys.stderr.write(f"\r{trial.workload}, seed {trial.seed} ")


def tables(found: Iterable[tuple[str, list[Result]]]) -> str:
    """False alarms per workload and correct backend, and the result for each fault."""
    correct: dict[tuple[str, str], list[Result]] = defaultdict(list)
    faulty: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for workload, results in found:
        for result in results:
            kind = correct if result.label in (*CORRECT, GRAPHS) else faulty
            if result.role == "backend":
                kind[workload, result.label].append(result)
    lines = [
        "| workload | correct backend | experiments | called broken | largest share of the band |",
        "|---|---|---|---|---|",
    ]
    for (workload, label), results in sorted(correct.items()):
        verdicts = [result.parity.verdict for result in results if result.parity]
        lines.append(
            f"| {workload} | {label} | {len(results)} | {verdicts.count('broken')} "
            f"| {max(_ratios(results)):.2f} |"
        )
    lines += [
        "",
        "| workload | fault | experiments | called broken | first effect at step "
        "| outside the band at step | least excess |",
        "|---|---|---|---|---|---|---|",
    ]
    for (workload, label), results in sorted(faulty.items()):
        broken = [r.parity for r in results if r.parity and r.parity.verdict == "broken"]
        steps = [p.first_step_outside for p in broken if p.first_step_outside is not None]
        seen = f"{min(steps)} to {max(steps)}" if steps else "never"
        lines.append(
            f"| {workload} | {label} | {len(results)} | {len(broken)} | {FIRST_EFFECTS[label]} "
            f"| {seen} | {min(_ratios(results)):.3g} x |"
        )
    return "\n".join(lines) + "\n"


def _ratios(results: Iterable[Result]) -> list[float]:
    """Largest difference over the band of each run, if known."""
    ratios = [result.parity.max_ratio_to_band for result in results if result.parity]
    return [ratio for ratio in ratios if ratio is not None]


def main() -> None:
    quieten()
    first_seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    numbers = {**NUM_TRIALS, **dict(zip(NUM_TRIALS, map(int, sys.argv[3:]), strict=False))}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        sys.stdout.write(tables(judged(all_trials(numbers, first_seed), folder)))


if __name__ == "__main__":
    main()
