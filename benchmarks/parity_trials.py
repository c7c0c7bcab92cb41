"""How often parity calls correct backends broken, and whether it catches every planted fault.

Run from the project's root: `make parity-trials`, or
`.venv/bin/python -m benchmarks.parity_trials [folder [relu net's experiments [tiny BERT's]]]`

Each experiment has a seed of its own (weights, samples, their order, dropout) and trains baseline,
control, the correct backends and one of the planted faults (tests/faults/trial.py), one after
another, in this process on one thread. In a folder that is named, trainings are kept, and those it
has already are only judged again. Prints Markdown tables.
"""

import logging
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from storage.results import Result
from tests.faults.trial import FIRST_EFFECTS, TORCHS_OWN, judge_trial, run_trial

NUM_TRIALS = {"relu net": 80, "tiny BERT": 20}
"""The trainings of BERT take three times as long."""
CORRECT = ("eager", "aot_eager", "inductor")
DONE = "done"
"""Marks a trial that was trained to its end."""
Trial = tuple[str, list[Result]]


def trials(num_trials: dict[str, int], folder: Path) -> Iterator[Trial]:
    """The workload and the results of every experiment."""
    for workload, number in num_trials.items():
        has_relu = workload == "relu net"
        faults = [fault for fault in FIRST_EFFECTS if has_relu or fault != TORCHS_OWN]
        for seed in range(number):
            place = folder / workload.replace(" ", "_") / str(seed)
            if (place / DONE).exists():
                comparison = judge_trial(place)
            else:
                shutil.rmtree(place, ignore_errors=True)
                fault = faults[seed % len(faults)]
                comparison = run_trial(place, workload, seed, (*CORRECT, fault))
                (place / DONE).touch()
            yield workload, list(comparison.results)
            sys.stderr.write(f"\r{workload}: {seed + 1} of {number} experiments ")


def tables(found: Iterable[Trial]) -> str:
    """False alarms per workload and correct backend, and what became of each fault."""
    correct: dict[tuple[str, str], list[Result]] = defaultdict(list)
    faulty: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for workload, results in found:
        for result in results:
            kind = correct if result.label in CORRECT else faulty
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
    """Largest difference over the band, of each run that has one."""
    ratios = [result.parity.max_ratio_to_band for result in results if result.parity]
    return [ratio for ratio in ratios if ratio is not None]


def main() -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    numbers = dict(zip(NUM_TRIALS, map(int, sys.argv[2:]), strict=False))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        sys.stdout.write(tables(trials({**NUM_TRIALS, **numbers}, folder)))


if __name__ == "__main__":
    main()
