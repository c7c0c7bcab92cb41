"""Trains the experiments that `parity_trials` judges: correct backends and a planted fault.

On a machine that lacks packages for judging, or to train in several processes at once, run from the
project's root: `python -m benchmarks.parity_recording FOLDER DEVICE PRECISION FIRST_SEED PART OF`
where PART counts from 0 to OF - 1. Skips trainings that are already in FOLDER.
"""

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, cast

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from breakeven.runner.specs.training import Precision
from tests.faults.trial import FIRST_EFFECTS, TORCHS_OWN, train_trial

NUM_TRIALS = {"relu net": 80, "tiny BERT": 20}
"""Trainings of BERT take three times as long."""
CORRECT = ("eager", "aot_eager", "inductor")
GRAPHS = "cudagraphs"
"""Also correct, where it can run. The experiment then trains without dropout."""
DONE = "done"
"""Marks a completely trained trial."""


class Trial(NamedTuple):
    workload: str
    seed: int
    fault: str

    def folder(self, parent: Path) -> Path:
        return parent / self.workload.replace(" ", "_") / str(self.seed)


def all_trials(num_trials: dict[str, int], first_seed: int = 0) -> Iterator[Trial]:
    """Every experiment, each with one of the faults that are visible in its workload."""
    for workload, number in num_trials.items():
        has_relu = workload == "relu net"
        faults = [fault for fault in FIRST_EFFECTS if has_relu or fault != TORCHS_OWN]
        for seed in range(first_seed, first_seed + number):
            yield Trial(workload, seed, faults[seed % len(faults)])


def record(trial: Trial, parent: Path, device: str, precision: Precision) -> Path:
    """The folder of the trial, which is trained unless it is complete."""
    folder = trial.folder(parent)
    if not (folder / DONE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        backends = (*CORRECT, *([] if device == "cpu" else [GRAPHS]), trial.fault)
        train_trial(
            folder, trial.workload, trial.seed, backends, device=device, precision=precision
        )
        (folder / DONE).touch()
    return folder


def quieten() -> None:
    """Sets one thread, and silences warnings of compilers that planted faults confuse."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)


def main() -> None:
    quieten()
    parent, device, precision = Path(sys.argv[1]), sys.argv[2], cast(Precision, sys.argv[3])
    first_seed, part, parts = map(int, sys.argv[4:7])
    for trial in islice(all_trials(NUM_TRIALS, first_seed), part, None, parts):
        record(trial, parent, device, precision)


if __name__ == "__main__":
    main()
