"""Trains the experiments for `trials`: late faults, correct backends, and additional controls.

Run from the project's root, in several processes at once if there are CPUs for them:
`python -m benchmarks.late_faults.recording FOLDER DEVICE PRECISION FIRST_SEED PART OF [DATA.csv]`
where PART counts from 0 to OF - 1. Skips trainings that are already in FOLDER. With a file of texts
(columns `text` and `label`) tiny BERT is trained on these instead of built-in reviews.
"""

import random
import shutil
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, cast

from benchmarks.parity_recording import CORRECT, DONE, GRAPHS, quieten
from breakeven.runner.specs.training import Precision
from tests.faults.late_faults import LATE_FAULTS
from tests.faults.trial import LONG_WORKLOADS, train_long_trial

NUM_TRIALS = {"noisy net": 40, "tiny BERT": 20, "small ViT": 20, "tiny GPT": 20}
"""Experiments of each workload: a hundred in all."""
CORRECT_ON_CPU = ("eager", "aot_eager")
"""Without inductor, whose C++ takes longer to compile than all trainings of an experiment."""
CORRECT_ON_CUDA = (*CORRECT, GRAPHS)
NUM_CONTROLS = 4
EARLIEST, LATEST = 0.1, 0.9
"""Shares of the training between which faults begin."""


class LateTrial(NamedTuple):
    workload: str
    seed: int

    @property
    def fault_begins(self) -> int:
        """The first step of the fault, drawn uniformly from the seed."""
        share = random.Random(self.seed).uniform(EARLIEST, LATEST)
        return round(share * LONG_WORKLOADS[self.workload].num_steps)

    def folder(self, parent: Path) -> Path:
        return parent / self.workload.replace(" ", "_") / str(self.seed)


def all_trials(first_seed: int = 0, data: str | None = None) -> Iterator[LateTrial]:
    """Trials with the workloads in turns, so that an interrupted recording has some of each; only
    workloads on texts if a file of texts is given."""
    rounds = [
        (number / count, workload, first_seed + number)
        for workload, count in NUM_TRIALS.items()
        for number in range(count)
        if data is None or LONG_WORKLOADS[workload].task == "text_classification"
    ]
    for _, workload, seed in sorted(rounds):
        yield LateTrial(workload, seed)


def record(
    trial: LateTrial, parent: Path, device: str, precision: Precision, data: str | None = None
) -> Path:
    """The folder of the trial, which is trained unless it is complete."""
    folder = trial.folder(parent)
    if not (folder / DONE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        train_long_trial(
            folder,
            trial.workload,
            trial.seed,
            (*(CORRECT_ON_CPU if device == "cpu" else CORRECT_ON_CUDA), *LATE_FAULTS),
            controls=NUM_CONTROLS,
            fault_begins=trial.fault_begins,
            device=device,
            precision=precision,
            data=data,
        )
        (folder / DONE).touch()
    return folder


def main() -> None:
    quieten()
    parent, device, precision = Path(sys.argv[1]), sys.argv[2], cast(Precision, sys.argv[3])
    first_seed, part, parts = map(int, sys.argv[4:7])
    data = sys.argv[7] if len(sys.argv) > 7 else None
    for trial in islice(all_trials(first_seed, data), part, None, parts):
        record(trial, parent, device, precision, data)


if __name__ == "__main__":
    main()
