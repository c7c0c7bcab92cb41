"""Trains the experiments that `parity_trials` and `late_trials` judge: correct backends and faults.

On a machine that lacks packages for judging, or to train in several processes at once, run from the
project's root:
`python -m benchmarks.parity_recording KIND FOLDER DEVICE PRECISION FIRST_SEED PART OF [TEXTS.csv]`
where KIND is `early` or `late`, and PART counts from 0 to OF - 1. Early trials have one fault from
the start, late ones have all late faults and more controls; with a file of texts (CSV with the
columns `text` and `label`) they train tiny BERT alone, on these. Skips trainings that are already
in FOLDER.
"""

import logging
import os
import random
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from breakeven.runner.specs.training import Precision
from tests.faults.late_faults import LATE_FAULTS
from tests.faults.trial import (
    FIRST_EFFECTS,
    LONG_WORKLOADS,
    TORCHS_OWN,
    train_long_trial,
    train_trial,
)

EARLY = {"relu net": 80, "tiny BERT": 20}
"""Experiments of each workload. Trainings of BERT take three times as long."""
LATE = {"noisy net": 40, "tiny BERT": 20, "small ViT": 20, "tiny GPT": 20}
CORRECT = ("eager", "aot_eager", "inductor")
LATE_CORRECT_ON_CPU = ("eager", "aot_eager")
"""Without inductor, whose C++ takes longer to compile than all trainings of an experiment."""
GRAPHS = "cudagraphs"
"""Also correct, where it can run. An early experiment then trains without dropout."""
NUM_CONTROLS = 4
"""Controls of a late trial."""
EARLIEST, LATEST = 0.1, 0.9
"""Shares of the training between which late faults begin."""
DONE = "done"
"""Marks a completely trained trial."""


class Trial(NamedTuple):
    workload: str
    seed: int

    @property
    def fault(self) -> str:
        """The fault of an early trial, one of those that are visible in its workload."""
        has_relu = self.workload == "relu net"
        faults = [fault for fault in FIRST_EFFECTS if has_relu or fault != TORCHS_OWN]
        return faults[self.seed % len(faults)]

    @property
    def fault_begins(self) -> int:
        """The first step of late faults, drawn uniformly from the seed."""
        share = random.Random(self.seed).uniform(EARLIEST, LATEST)
        return round(share * LONG_WORKLOADS[self.workload].num_steps)

    def folder(self, parent: Path) -> Path:
        return parent / self.workload.replace(" ", "_") / str(self.seed)


def all_trials(num_trials: Mapping[str, int], first_seed: int = 0) -> list[Trial]:
    """Trials with the workloads in turns, so that an interrupted recording has some of each."""
    rounds = [
        (number / count, workload, first_seed + number)
        for workload, count in num_trials.items()
        for number in range(count)
    ]
    return [Trial(workload, seed) for _, workload, seed in sorted(rounds)]


def record(
    trial: Trial,
    parent: Path,
    device: str = "cpu",
    precision: Precision = "float32",
    *,
    is_late: bool = False,
    texts: str | None = None,
) -> Path:
    """The folder of the trial, which is trained unless it is complete."""
    folder = trial.folder(parent)
    if (folder / DONE).exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    graphs = () if device == "cpu" else (GRAPHS,)
    if is_late:
        correct = LATE_CORRECT_ON_CPU if device == "cpu" else CORRECT
        train_long_trial(
            folder,
            *trial,
            (*correct, *graphs, *LATE_FAULTS),
            controls=NUM_CONTROLS,
            fault_begins=trial.fault_begins,
            device=device,
            precision=precision,
            data=texts,
        )
    else:
        backends = (*CORRECT, *graphs, trial.fault)
        train_trial(folder, *trial, backends, device=device, precision=precision)
    (folder / DONE).touch()
    return folder


def quieten() -> None:
    """Sets one thread, and silences warnings of compilers that planted faults confuse."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)


def main() -> None:
    quieten()
    kind, parent, device = sys.argv[1:4]
    first_seed, part, parts = map(int, sys.argv[5:8])
    texts = sys.argv[8] if len(sys.argv) > 8 else None
    is_late = kind == "late"
    num_trials = LATE if is_late else EARLY
    if texts is not None:
        num_trials = {"tiny BERT": LATE["tiny BERT"]}
    precision = cast(Precision, sys.argv[4])
    for trial in all_trials(num_trials, first_seed)[part::parts]:
        record(trial, Path(parent), device, precision, is_late=is_late, texts=texts)


if __name__ == "__main__":
    main()
