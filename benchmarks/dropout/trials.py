"""How often parity is wrong about trainings with dropout whose random numbers differ.

Run from the project's root. Training the experiments takes torch alone:

    python -m benchmarks.dropout.trials --out FOLDER [--device cuda] [--size base] [--count 40]
        [--budget SECONDS]

It trains several at once (`--jobs`), starts none after the budget is spent, and leaves alone what
is in FOLDER already. Then, where the rest of the project can run:

    python -m benchmarks.dropout.trials --judge FOLDER

prints Markdown tables. Each experiment has weights, samples and dropout of its own and trains BERT
or GPT-2, tiny or in full size, in float32 or bf16: baseline, control, correct backends that draw
the baseline's numbers or their own, and some of the faults (tests/faults/dropout_faults.py).
"""

import argparse
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

from runner.specs.experiment import DataSpec, EvaluationSpec, ExperimentSpec, ModelSpec
from runner.specs.training import Precision, TrainingSpec

DONE = "done"
"""Marks an experiment that was trained to its end."""
NUM_STEPS = 120
LATE_STEP = 60
TOKENS = {"tiny": {"cpu": 16, "cuda": 256}, "base": {"cpu": 16, "cuda": 128}}
"""Enough on a GPU for attention's fused kernels."""
INDUCTOR_OWN = "inductor:fallback_random=false"
CORRECT = {
    "cpu": ("own_numbers", "own_numbers_decomposed", INDUCTOR_OWN),
    "cuda": ("own_numbers", "own_numbers_decomposed", "inductor", INDUCTOR_OWN, "cudagraphs"),
}
EVERY_INDUCTOR = {"cpu": 8, "cuda": 4}
"""Of so many experiments one has inductor, whose code takes longer to compile than all else."""
OWN_FORWARD = "own_numbers:scope=forward"
DECOMPOSED_FORWARD = "own_numbers_decomposed:scope=forward"
"""Random numbers are drawn forward; to compile the optimizer as well takes four times as long."""
IN_TURNS: tuple[tuple[str, ...], ...] = (
    ("own_numbers", "inductor"), ("own_numbers_decomposed",), ("own_numbers", "cudagraphs"),
    (DECOMPOSED_FORWARD,), (OWN_FORWARD,), (DECOMPOSED_FORWARD, INDUCTOR_OWN),
    (OWN_FORWARD,), (DECOMPOSED_FORWARD, "cudagraphs"), (OWN_FORWARD,), (DECOMPOSED_FORWARD,),
)  # fmt: skip
"""Correct backends of the experiments in full size with one model and precision, in their order:
all in each would take hours."""
MODELS = {
    "tiny": {
        "tiny BERT": ("text_classification", "builtin:bert-tiny"),
        "tiny GPT-2": ("causal_lm", "builtin:gpt2-tiny"),
    },
    "base": {
        "BERT-base": ("text_classification", "builtin:bert-base"),
        "GPT-2": ("causal_lm", "builtin:gpt2"),
    },
}
LEARNING_RATES = {"tiny": 3e-4, "base": 5e-5}
"""At the greater one BERT-base learns nothing in so few steps."""
PRECISIONS: tuple[Precision, ...] = ("float32", "bf16")


class Trial(NamedTuple):
    number: int
    size: str
    model: str
    task: str
    source: str
    learning_rate: float
    precision: Precision

    def folder(self, parent: Path) -> Path:
        return parent / f"{self.model.replace(' ', '_')}-{self.precision}" / str(self.number)

    def spec(self, device: str, backends: tuple[str, ...]) -> ExperimentSpec:
        return ExperimentSpec(
            name=self.model,
            task=self.task,
            model=ModelSpec(source=self.source, dropout="keep"),
            data=DataSpec(
                num_train_samples=1600,
                num_eval_samples=100,
                sequence_length=TOKENS[self.size][device],
            ),
            training=TrainingSpec(
                learning_rate=self.learning_rate,
                optimizer="AdamW",
                batch_size=16,
                epochs=40,
                max_steps=NUM_STEPS,
                seed=self.number,
                precision=self.precision,
            ),
            evaluation=EvaluationSpec(when="end", compiled=True),
            backends=backends,
            devices=("cpu" if device == "cpu" else "cuda:0",),
            block_steps=20,
            profile_steps=0,
        )


def all_trials(count: int, size: str) -> Iterator[Trial]:
    """Models and precisions in turns."""
    rate = LEARNING_RATES[size]
    models = [(name, *source, rate) for name, source in MODELS[size].items()]
    for number in range(count):
        yield Trial(number, size, *models[number % 2], PRECISIONS[number // 2 % 2])


def faults_of(number: int, each: int) -> tuple[str, ...]:
    from tests.faults.dropout_faults import DROPOUT_FAULTS, OTHER_FAULTS, SUFFIX

    faults = (*DROPOUT_FAULTS, *(name + SUFFIX for name in OTHER_FAULTS))
    first = number * each
    return tuple(faults[(first + i) % len(faults)] for i in range(each))


def backends_of(trial: Trial, device: str, faults_each: int) -> tuple[str, ...]:
    number = trial.number
    if trial.size == "base":
        correct = IN_TURNS[number // (len(MODELS["base"]) * len(PRECISIONS)) % len(IN_TURNS)]
    else:
        leave_out = () if number % EVERY_INDUCTOR[device] == 0 else ("inductor", INDUCTOR_OWN)
        correct = tuple(name for name in CORRECT[device] if name not in leave_out)
    return (*correct, *faults_of(number, faults_each))


def record(trial: Trial, parent: Path, device: str, faults_each: int, until: float) -> None:
    """Trains an experiment unless another process has; leaves it unmarked if time ran out in it."""
    import torch

    from tests.faults import late_faults
    from tests.faults.trial import train_variants

    folder = trial.folder(parent)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:  # Done before, or another process is at it.
        return
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    os.environ[late_faults.BEGINS] = str(LATE_STEP)
    spec = trial.spec(device, backends_of(trial, device, faults_each))
    for _ in train_variants(folder, spec):
        torch.cuda.empty_cache()  # Others train beside this one.
        if time.monotonic() > until:
            return
    (folder / DONE).touch()


def record_all(arguments: argparse.Namespace) -> None:
    """In several processes, each of which trains the next experiment that none is at; once more
    those that an earlier recording did not finish."""
    trials = list(chosen(arguments))
    for trial in trials:
        folder = trial.folder(arguments.out)
        if not (folder / DONE).exists():
            shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "benchmarks.dropout.trials", *sys.argv[1:], "--child"]
    children = [subprocess.Popen(command) for _ in range(arguments.jobs)]
    codes = [child.wait() for child in children]
    done = sum((trial.folder(arguments.out) / DONE).exists() for trial in trials)
    sys.stdout.write(f"{done} experiments are there; exit codes {codes}\n")


def chosen(arguments: argparse.Namespace) -> Iterator[Trial]:
    """The experiments that the command line asks for."""
    every = all_trials(arguments.first + arguments.count, arguments.size)
    return islice(every, arguments.first, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--size", choices=tuple(MODELS), default="tiny")
    parser.add_argument("--faults", type=int, default=3, help="of each experiment, in turns")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--budget", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--child", action="store_true", help="for processes that it starts itself")
    parser.add_argument("--judge", type=Path)
    arguments = parser.parse_args()
    if arguments.judge is not None:
        from benchmarks.dropout.verdicts import tables

        sys.stdout.write(tables(arguments.judge))
    elif arguments.out is None:
        parser.error("name a folder: --out FOLDER or --judge FOLDER")
    elif not arguments.child:
        record_all(arguments)
    else:
        until = time.monotonic() + arguments.budget
        for trial in chosen(arguments):
            if time.monotonic() > until:
                break
            record(trial, arguments.out, arguments.device, arguments.faults, until)


if __name__ == "__main__":
    main()
