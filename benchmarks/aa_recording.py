"""Trials whose truth is known: runs that do equal work, and one that takes 3 % longer.

Each trial records four runs in one process, by turns in an order drawn anew each round: `baseline`,
`control`, `same` (the baseline's work once more) and `slower`. Work is either fake steps or the
training of a tiny model by the product's own loop. All times are wall clock times of real work on
this machine, with whatever disturbs it.
"""

import copy
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from runner.events import EventLog
from runner.run_dir import RunDir
from runner.spec import DataSpec, EvaluationSpec, ExperimentSpec, RunSpec, TrainingSpec
from runner.turns import Turn
from runner.user_code import CODE_VARIABLE
from runner.worker.callbacks import Callback, TrainingState
from runner.worker.training import Trainer
from runner.worker.workload import Workload, load_workload

NAMES = ("baseline", "control", "same", "slower")
SLOWDOWN = 0.03
NUM_ROUNDS, NUM_SWEEPS = 200, 100
BLOCK_STEPS = {"fake steps": 2, "tiny trainings": 1}
BATCH = 2
PATIENCE_SECONDS = 120.0


def take_turns(blocks: Mapping[str, Callable[[Turn], None]], num_rounds: int, seed: int) -> None:
    """One block of each a round, as the supervisor has it."""
    chance = random.Random(seed)
    for number in range(num_rounds):
        order = chance.sample(sorted(blocks), len(blocks))
        for position, name in enumerate(order):
            blocks[name](Turn(round=number, position=position))


class FakeRun:
    """Steps that compute sines of a small array: real work that teaches nobody anything."""

    def __init__(self, journal: Path, num_sweeps: int) -> None:
        self._log = EventLog(journal)
        self._num_sweeps = num_sweeps
        self._values = np.linspace(0.0, 1.0, 512)
        self._out = np.empty_like(self._values)
        self._blocks: list[tuple[Turn, list[float]]] = []

    def block(self, turn: Turn) -> None:
        ends = [time.perf_counter()]
        for _ in range(BLOCK_STEPS["fake steps"]):
            for _ in range(self._num_sweeps):
                np.sin(self._values, out=self._out)
            ends.append(time.perf_counter())
        self._blocks.append((turn, list(np.diff(ends))))

    def write(self) -> None:
        """The journal, once all is measured: writing disturbs no step."""
        for turn, durations in self._blocks:
            first = turn.round * len(durations)
            for index, seconds in enumerate(durations):
                self._log.append("step", step=first + index, epoch=0, round=turn.round, loss=1.0,
                                 seconds=seconds, compiled=False)  # fmt: skip
            self._log.append("block", round=turn.round, position=turn.position, first_step=first,
                             num_steps=len(durations), seconds=sum(durations),
                             compiled=False)  # fmt: skip
        self._log.close()


def record_fake(folder: Path, seed: int) -> None:
    """One trial of fake steps: a journal `<name>.jsonl` for each run. The slower one sweeps more
    often."""
    more = round(NUM_SWEEPS * (1 + SLOWDOWN))
    runs = {
        name: FakeRun(folder / f"{name}.jsonl", more if name == "slower" else NUM_SWEEPS)
        for name in NAMES
    }
    take_turns({name: run.block for name, run in runs.items()}, NUM_ROUNDS, seed)
    for run in runs.values():
        run.write()


class Dawdler(Callback):
    """Makes each step of a training 3 % longer, by staying awake for so much of what it took."""

    def batch_begin(self, state: TrainingState) -> None:
        self._began = time.perf_counter()

    def batch_end(self, state: TrainingState) -> None:
        now = time.perf_counter()
        end = now + SLOWDOWN * (now - self._began)
        while time.perf_counter() < end:
            pass


class ThreadTurns:
    """Passes turns to a training in a thread, which holds still outside of them."""

    stop_requested = False

    def __init__(self) -> None:
        self._turns: queue.Queue[Turn] = queue.Queue()
        self._replies: queue.Queue[bool] = queue.Queue()

    def ready(self) -> None:
        pass

    def wait(self) -> Turn:
        return self._turns.get()

    def done(self, *, finished: bool) -> None:
        self._replies.put(finished)

    def block(self, turn: Turn) -> None:
        """Returns when the block is over; raises `queue.Empty` if it never is."""
        self._turns.put(turn)
        self._replies.get(timeout=PATIENCE_SECONDS)


def training_spec(seed: int) -> ExperimentSpec:
    """As small as a training of a transformer can be: two texts of 16 tokens a step."""
    steps = NUM_ROUNDS * BLOCK_STEPS["tiny trainings"]
    return ExperimentSpec(
        name="aa",
        backends=("eager",),
        data=DataSpec(num_train_samples=steps * BATCH, num_eval_samples=10, sequence_length=16),
        training=TrainingSpec(batch_size=BATCH, learning_rate=1e-4, seed=seed),
        evaluation=EvaluationSpec(when="never"),
        block_steps=BLOCK_STEPS["tiny trainings"],
        cpu_threads=1,
    )


def record_training(folder: Path, seed: int) -> None:
    """One trial of trainings of a tiny BERT without a compiler, each in a thread of its own, one of
    which runs at a time."""
    torch.set_num_threads(1)
    spec = training_spec(seed)
    workload = load_workload(spec)
    turns = {name: ThreadTurns() for name in NAMES}
    threads = []
    for name in NAMES:
        mine = replace(workload, model=copy.deepcopy(workload.model))
        dawdles = (f"{Path(__file__).resolve()}:Dawdler",) if name == "slower" else ()
        job = threading.Thread(
            target=_train,
            args=(replace(spec, callbacks=dawdles), mine, folder / f"{name}.jsonl", turns[name]),
            daemon=True,
        )
        threads.append(job)
        with mock.patch.dict(os.environ, {CODE_VARIABLE: str(Path(__file__).parent)}):
            job.start()
            turns[name].block(Turn(round=-1, position=0))
    take_turns({name: each.block for name, each in turns.items()}, NUM_ROUNDS - 1, seed)
    for job in threads:
        job.join(PATIENCE_SECONDS)


def _train(spec: ExperimentSpec, workload: Workload, journal: Path, turns: ThreadTurns) -> None:
    log = EventLog(journal)
    run = RunSpec(experiment_id="aa", experiment=spec, variant=spec.variants[0])
    Trainer(run, workload, RunDir(journal.parent), torch.device("cpu"), log).train(turns)
    log.close()
