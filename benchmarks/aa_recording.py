"""Trials with known truth: runs of equal work, and one that takes 3 % longer.

Each trial records four runs in one process, in turns with a new random order each round:
`baseline`, `control`, `same` (the baseline's work again) and `slower`. Work is either fake steps or
the training of a tiny model by the product's own loop. All times are wall clock times of real work
on this machine, with all its disturbances.
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

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.specs.experiment import EvaluationSpec, ExperimentSpec, RunSpec
from breakeven.runner.worker.callbacks import Callback, TrainingState
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.device.device_kinds import open_device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.model.loaded_workload import Workload, load_workload
from breakeven.runner.worker.training.training_loop import Trainer
from breakeven.runner.worker.turn_source import Turns
from tests.faults.trial import FOLDER, WORKLOADS

NAMES = ("baseline", "control", "same", "slower")
SLOWDOWN = 0.03
NUM_SWEEPS = 100
NUM_ROUNDS = {"fake steps": 200, "tiny trainings": 400}
BLOCK_STEPS = 2
PATIENCE_SECONDS = 120.0
JOURNALS_OWN = ("v", "seq", "kind", "time")
"""Fields of an event that its journal adds."""


def take_turns(blocks: Mapping[str, Callable[[Turn], None]], num_rounds: int, seed: int) -> None:
    """One block of each run per round, as the supervisor does."""
    chance = random.Random(seed)
    for number in range(num_rounds):
        order = chance.sample(sorted(blocks), len(blocks))
        for position, name in enumerate(order):
            blocks[name](Turn(round=number, position=position))


class FakeRun:
    """Steps that compute sines of a small array: real work without training."""

    # Shared by all runs, because its address in memory can make an array permanently 2 % slower.
    _values = np.linspace(0.0, 1.0, 512)
    _out = np.empty_like(_values)

    def __init__(self, journal: Path, num_sweeps: int) -> None:
        self._log = EventLog(journal)
        self._num_sweeps = num_sweeps
        self._blocks: list[tuple[Turn, list[float]]] = []

    def block(self, turn: Turn) -> None:
        ends = [time.perf_counter()]
        for _ in range(BLOCK_STEPS):
            for _ in range(self._num_sweeps):
                np.sin(self._values, out=self._out)
            ends.append(time.perf_counter())
        self._blocks.append((turn, list(np.diff(ends))))

    def write(self) -> None:
        """Writes the journal after all measurements, so that writing disturbs no step."""
        for turn, durations in self._blocks:
            first = turn.round * len(durations)
            for index, seconds in enumerate(durations):
                self._log.append(
                    "step",
                    step=first + index,
                    epoch=0,
                    round=turn.round,
                    loss=1.0,
                    seconds=seconds,
                    compiled=False,
                )
            self._log.append(
                "block",
                round=turn.round,
                position=turn.position,
                first_step=first,
                num_steps=len(durations),
                seconds=sum(durations),
                compiled=False,
            )
        self._log.close()


def record_fake(folder: Path, seed: int) -> None:
    """One trial of fake steps: a journal `<name>.jsonl` for each run. The slower run makes more
    sweeps."""
    more = round(NUM_SWEEPS * (1 + SLOWDOWN))
    runs = {
        name: FakeRun(folder / f"{name}.jsonl", more if name == "slower" else NUM_SWEEPS)
        for name in NAMES
    }
    take_turns({name: run.block for name, run in runs.items()}, NUM_ROUNDS["fake steps"], seed)
    for run in runs.values():
        run.write()


def role(training: int, round: int) -> str:
    """The run that one of the four trainings plays in a round.

    They alternate, because trainings in one process differ permanently by up to 1 %, by their
    addresses in memory, and permanent differences are what the trial measures.
    """
    return NAMES[(training + round) % len(NAMES)]


class Dawdler(Callback):
    """Makes each step 3 % longer while its training plays the slower run, by busy waiting."""

    def batch_begin(self, state: TrainingState) -> None:
        self._began = time.perf_counter()

    def batch_end(self, state: TrainingState) -> None:
        now = time.perf_counter()
        round = state.step // BLOCK_STEPS - 1  # the first block comes before all rounds
        number = int(state.model.number)  # type: ignore[arg-type]  # a plain attribute, set below
        share = SLOWDOWN if role(number, round) == "slower" else 0.0
        end = now + share * (now - self._began)
        while time.perf_counter() < end:
            pass


class ThreadTurns(Turns):
    """Passes turns to a training in a thread, which waits outside of them."""

    def __init__(self) -> None:
        super().__init__()
        self._turns: queue.Queue[Turn] = queue.Queue()
        self._replies: queue.Queue[bool] = queue.Queue()

    def wait(self) -> Turn:
        return self._turns.get()

    def done(self, *, finished: bool) -> None:
        self._replies.put(finished)

    def block(self, turn: Turn) -> None:
        """Returns when the block is over; raises `queue.Empty` if it does not end in time."""
        self._turns.put(turn)
        self._replies.get(timeout=PATIENCE_SECONDS)


def training_spec(seed: int) -> ExperimentSpec:
    """A network with Adam, 16 samples per step: small enough for the CPU cache, because other
    processes affect the speed of memory."""
    net = WORKLOADS["relu net"]
    epochs = NUM_ROUNDS["tiny trainings"] * BLOCK_STEPS // net.steps_per_epoch
    return replace(
        net,
        backends=("eager",),
        training=replace(net.training, seed=seed, epochs=epochs, max_steps=None),
        evaluation=EvaluationSpec(when="never"),
        callbacks=(f"{Path(__file__).resolve()}:Dawdler",),
        block_steps=BLOCK_STEPS,
        cpu_threads=1,
    )


def record_training(folder: Path, seed: int) -> None:
    """One trial of four trainings of a tiny network without a compiler, each in its own thread, of
    which one runs at a time."""
    torch.set_num_threads(1)
    spec = training_spec(seed)
    turns = [ThreadTurns() for _ in NAMES]
    threads = []
    with mock.patch.dict(os.environ, {CODE_VARIABLE: str(FOLDER.parent.parent)}):
        workload = load_workload(spec)
        for number in range(len(NAMES)):
            own_workload = replace(workload, model=copy.deepcopy(workload.model))
            setattr(own_workload.model, "number", number)  # noqa: B010  # mypy takes it for a parameter
            journal = folder / f"training-{number}.jsonl"
            job = threading.Thread(
                target=_train, args=(spec, own_workload, journal, turns[number]), daemon=True
            )
            threads.append(job)
            job.start()
            turns[number].block(Turn(round=-1, position=0))
    blocks = {str(number): turn_source.block for number, turn_source in enumerate(turns)}
    take_turns(blocks, NUM_ROUNDS["tiny trainings"] - 1, seed)
    for job in threads:
        job.join(PATIENCE_SECONDS)
    _write_by_role(folder)


def _write_by_role(folder: Path) -> None:
    """Writes the journals of the runs from those of the trainings that played them."""
    logs = {name: EventLog(folder / f"{name}.jsonl") for name in NAMES}
    journals = [read_events(folder / f"training-{number}.jsonl")[0] for number in range(len(NAMES))]
    of_rounds = [
        (event["round"], number, event)
        for number, events in enumerate(journals)
        for event in events
        if event.get("round", -1) >= 0
    ]
    for round, number, event in sorted(of_rounds, key=lambda row: row[0]):
        fields = {name: value for name, value in event.items() if name not in JOURNALS_OWN}
        logs[role(number, round)].append(event["kind"], **fields)
    for log in logs.values():
        log.close()


def _train(spec: ExperimentSpec, workload: Workload, journal: Path, turns: ThreadTurns) -> None:
    log = EventLog(journal)
    run = RunSpec(experiment_id="aa", experiment=spec, arm=spec.arms[0])
    context = RunContext(run, RunDir(journal.parent), open_device("cpu"), log)
    Trainer(context, workload).train(turns)
    log.close()
