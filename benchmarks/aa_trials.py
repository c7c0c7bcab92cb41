"""How often the verdicts of speed are right, in trials with known truth.

Run from the project's root: `.venv/bin/python -m benchmarks.aa_trials FOLDER [FAKE [TRAININGS]]`

Records 200 trials of fake steps and 50 of tiny trainings (`aa_recording`) in FOLDER. The product's
own comparison judges each twice: a run of the baseline's work, and one of 3 % more, each as a
backend with baseline and control. Prints the counts in Markdown. Trials that are already in FOLDER
are judged again, but not measured again.
"""

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.aa_recording import BLOCK_STEPS, NUM_ROUNDS, SLOWDOWN, record_fake, record_training
from benchmarks.tables import markdown
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import RunSpec
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.statistics.speedups import SIGNIFICANCE
from tests.helpers.journals import experiment_spec

KINDS: dict[str, tuple[Callable[[Path, int], None], int]] = {
    "fake steps": (record_fake, 200),
    "tiny trainings": (record_training, 50),
}
"""The function that records one trial, and the usual number of trials."""
TRUTHS = {"same": 1.0, "slower": 1 / (1 + SLOWDOWN)}
"""True speedup of the trial's third run."""


def record(folder: Path, kind: str, count: int) -> list[Path]:
    """The trials' folders; records those that are not complete."""
    take, _ = KINDS[kind]
    trials = [folder / f"{number:03d}" for number in range(count)]
    for seed, trial in enumerate(trials):
        if not (trial / "complete").exists():
            shutil.rmtree(trial, ignore_errors=True)
            trial.mkdir(parents=True)
            take(trial, seed)
            (trial / "complete").touch()
    return trials


def judge(trials: Sequence[Path], kind: str, third: str, folder: Path) -> list[Comparison]:
    """Each trial as an experiment: baseline, control and a backend with the journal of `third`."""
    shutil.rmtree(folder, ignore_errors=True)
    data_dir = DataDir(folder)
    spec = experiment_spec(NUM_ROUNDS[kind] * BLOCK_STEPS, BLOCK_STEPS, backends=("eager",))
    for trial in trials:
        for arm in spec.arms:
            run_spec = RunSpec(experiment_id=trial.name, experiment=spec, arm=arm)
            run = data_dir.run_dir(run_spec.run_id)
            run.write_spec(run_spec)
            name = third if arm.role == "backend" else arm.role
            shutil.copyfile(trial / f"{name}.jsonl", run.events_file)
            run.write_exit(Exit.now(RunState.FINISHED, "training is over", 0))
    with Store.in_memory(data_dir) as store:
        return [compare(store, trial.name) for trial in trials]


def row(kind: str, third: str, comparisons: Sequence[Comparison]) -> dict[str, object]:
    """Counts of verdicts, and the actual error rates of interval and p-value."""
    backends = [comparison.results[-1] for comparison in comparisons]
    verdicts = Counter(result.speed_verdict for result in backends)
    speedups = [result.speedup for result in backends if result.speedup]
    covers = [
        speedup.low <= TRUTHS[third] <= speedup.high
        for speedup in speedups
        if speedup.low and speedup.high
    ]
    low_p = [speedup.p_value < SIGNIFICANCE for speedup in speedups if speedup.p_value is not None]
    floors = [floor for shown in comparisons if (floor := shown.noise_floor) is not None]
    return {
        "trials": kind,
        "truth": "equal" if third == "same" else f"{SLOWDOWN:.0%} slower",
        "n": len(backends),
        **{
            format_verdict(verdict): verdicts[verdict]
            for verdict in ("faster", "slower", "same", "unsure")
        },
        "p < 0.05": f"{np.mean(low_p):.1%}",
        "interval holds the truth": f"{np.mean(covers):.1%}",
        "median speedup": f"{np.median([speedup.median for speedup in speedups]):.4f}",
        "median noise floor": f"{np.median(floors):.2%}",
    }


def main() -> None:
    folder = Path(sys.argv[1])
    usual = {kind: count for kind, (_, count) in KINDS.items()}
    counts = {**usual, **dict(zip(KINDS, map(int, sys.argv[2:]), strict=False))}
    rows = []
    for kind, count in counts.items():
        trials = record(folder / kind, kind, count)
        for third in TRUTHS:
            comparisons = judge(trials, kind, third, folder / "judged")
            rows.append(row(kind, third, comparisons))
    sys.stdout.write(f"{markdown(rows)}\n")


if __name__ == "__main__":
    main()
