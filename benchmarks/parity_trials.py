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

from benchmarks.parity_recording import CORRECT, EARLY, GRAPHS, Trial, all_trials, quieten, record
from benchmarks.tables import markdown
from breakeven.storage.comparison.results import Result
from tests.faults.judging import judge_trial
from tests.faults.trial import FIRST_EFFECTS


def judged(trials: Iterable[Trial], folder: Path) -> Iterator[tuple[str, list[Result]]]:
    """The workload and the results of every experiment."""
    for trial in trials:
        yield trial.workload, list(judge_trial(record(trial, folder)).results)
        sys.stderr.write(f"\r{trial.workload}, seed {trial.seed} ")


def tables(results_by_workload: Iterable[tuple[str, list[Result]]]) -> str:
    """False alarms per workload and correct backend, and the result for each fault."""
    of_backend: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for workload, results in results_by_workload:
        for result in results:
            if result.role == "backend":
                of_backend[workload, result.label].append(result)
    correct, faulty = [], []
    for (workload, label), results in sorted(of_backend.items()):
        if label in (*CORRECT, GRAPHS):
            correct.append(_correct(workload, label, results))
        else:
            faulty.append(_faulty(workload, label, results))
    return f"{markdown(correct)}\n\n{markdown(faulty)}\n"


def _correct(workload: str, label: str, results: list[Result]) -> dict[str, object]:
    verdicts = [result.parity.verdict for result in results if result.parity]
    return {
        "workload": workload,
        "correct backend": label,
        "experiments": len(results),
        "called broken": verdicts.count("broken"),
        "largest share of the band": f"{max(_ratios(results)):.2f}",
    }


def _faulty(workload: str, label: str, results: list[Result]) -> dict[str, object]:
    broken = [r.parity for r in results if r.parity and r.parity.verdict == "broken"]
    steps = [p.first_step_outside for p in broken if p.first_step_outside is not None]
    return {
        "workload": workload,
        "fault": label,
        "experiments": len(results),
        "called broken": len(broken),
        "first effect at step": FIRST_EFFECTS[label],
        "outside the band at step": f"{min(steps)} to {max(steps)}" if steps else "never",
        "least excess": f"{min(_ratios(results)):.3g} x",
    }


def _ratios(results: Iterable[Result]) -> list[float]:
    """Largest difference over the band of each run, if known."""
    ratios = [result.parity.max_ratio_to_band for result in results if result.parity]
    return [ratio for ratio in ratios if ratio is not None]


def main() -> None:
    quieten()
    first_seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    numbers = {**EARLY, **dict(zip(EARLY, map(int, sys.argv[3:]), strict=False))}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        sys.stdout.write(tables(judged(all_trials(numbers, first_seed), folder)))


if __name__ == "__main__":
    main()
