"""What our training loop costs over one written by hand.

From the project's root: `.venv/bin/python -m benchmarks.loop_overhead [device [model [rounds]]]`

Two trainings of one model without a compiler take turns block by block in one process: a bare
PyTorch loop that does the forward, backward and optimizer step and nothing else, and ours, timed
from the start of its turn to its end, recording included. Prints the median over the rounds of
bare / ours with its 95 % interval and the middle half of the rounds, the same for the difference in
microseconds, and the time that recording takes per step.
"""

import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from runner.events import EventLog
from runner.run_dir import RunDir
from runner.spec import (
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    RunSpec,
    TrainingSpec,
)
from runner.turns import Turn
from runner.worker.callbacks import TrainingState
from runner.worker.measuring import MemoryUse
from runner.worker.plan import Block
from runner.worker.recording import BlockCost, BlockRecorder, Steps
from runner.worker.stepping import StepResult
from runner.worker.training import Trainer
from runner.worker.workload import Workload, load_workload
from storage.resampling import median_interval

BLOCK_STEPS, WARM_UP_ROUNDS, ROUNDS_PER_EPOCH = 20, 5, 20
RECORDED_BLOCKS = 250


class BareLoop:
    """A training as a person would write it."""

    def __init__(self, workload: Workload, batch: int, device: torch.device) -> None:
        self._model = workload.model.to(device).train()
        self._data = workload.data.train.to(device)
        self._batch = batch
        self._device = device
        self._optimizer = torch.optim.Adam(
            self._model.parameters(), lr=1e-4, capturable=device.type == "cuda"
        )

    def block_seconds(self) -> float:
        order = torch.randperm(len(self._data), device=self._device)
        wait_for(self._device)
        started = time.perf_counter()
        for index in range(BLOCK_STEPS):
            indices = order[index * self._batch : (index + 1) * self._batch]
            batch = {name: tensor[indices] for name, tensor in self._data.inputs.items()}
            loss = self._model(**batch, labels=self._data.labels[indices]).loss
            loss.backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
        wait_for(self._device)
        return time.perf_counter() - started


class AlternatingTurns:
    """Gives our loop its turns, with a block of the bare loop before or after each."""

    stop_requested = False

    def __init__(self, bare: BareLoop, device: torch.device) -> None:
        self.bare_seconds: list[float] = []
        self.our_seconds: list[float] = []
        self._bare = bare
        self._device = device
        self._round = -1
        self._started = 0.0

    def ready(self) -> None:
        pass

    def wait(self) -> Turn:
        self._round += 1
        if self._round % 2 == 0:
            self.bare_seconds.append(self._bare.block_seconds())
        wait_for(self._device)
        self._started = time.perf_counter()
        return Turn(round=self._round, position=self._round % 2)

    def done(self, *, finished: bool) -> None:
        self.our_seconds.append(time.perf_counter() - self._started)
        if self._round % 2 == 1:
            self.bare_seconds.append(self._bare.block_seconds())


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def recording_seconds(folder: Path, device: torch.device) -> float:
    """Time to record one step, on the training thread, block by block as the loop does.

    From results that wait on an idle device to lines in the journal.
    """
    log = EventLog(folder / "cost.jsonl")
    state = TrainingState(model=torch.nn.Identity(), optimizers=())
    recorder = BlockRecorder(log, ("model",), state)
    cost = BlockCost(
        seconds=[0.0212345678912] * BLOCK_STEPS,
        memory=MemoryUse(peak_bytes=123_456_789, reserved_bytes=123_456_789),
    )
    result = StepResult(torch.rand((), device=device), terms=None, gradient_norm=None)
    spent = []
    for number in range(RECORDED_BLOCKS):
        steps = Steps()
        wait_for(device)
        started = time.perf_counter()
        for _ in range(BLOCK_STEPS):
            steps.add(result, 1e-4, copy=False)
            steps.compiled.append(False)
        block = Block(
            first_step=number * BLOCK_STEPS,
            num_steps=BLOCK_STEPS,
            epoch=0,
            window=0,
            evaluate=False,
            ends_epoch=False,
            warm_up=False,
        )
        recorder.write(block, Turn(round=number, position=0), steps, cost)
        log.flush()
        spent.append(time.perf_counter() - started)
    log.close()
    return statistics.median(spent) / BLOCK_STEPS


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    model = sys.argv[2] if len(sys.argv) > 2 else "builtin:bert-tiny"
    device = torch.device(name)
    if device.type == "cpu":
        torch.set_num_threads(1)
    batch = 32
    epochs = math.ceil(int(sys.argv[3]) / ROUNDS_PER_EPOCH) if len(sys.argv) > 3 else 3
    samples = ROUNDS_PER_EPOCH * BLOCK_STEPS * batch
    spec = ExperimentSpec(
        name="overhead",
        devices=(name,),
        backends=(),
        model=ModelSpec(source=model),
        data=DataSpec(num_train_samples=samples, num_eval_samples=10, sequence_length=64),
        training=TrainingSpec(batch_size=batch, epochs=epochs, learning_rate=1e-4),
        evaluation=EvaluationSpec(when="never"),
        block_steps=BLOCK_STEPS,
    )
    turns = AlternatingTurns(BareLoop(load_workload(spec), batch, device), device)
    workload = load_workload(spec)
    workload.model.to(device)
    with tempfile.TemporaryDirectory() as folder:
        run = RunSpec(experiment_id="x", experiment=spec, variant=spec.variants[0])
        log = EventLog(Path(folder) / "events.jsonl")
        Trainer(run, workload, RunDir(Path(folder)), device, log).train(turns)
        cost = recording_seconds(Path(folder), device)
    pairs = list(zip(turns.bare_seconds, turns.our_seconds, strict=True))[WARM_UP_ROUNDS:]
    bare, ours = np.array(pairs).T
    step = np.median(ours) / BLOCK_STEPS
    sys.stdout.write(
        f"{name}, {model}, torch {torch.__version__}, "
        f"{len(pairs)} rounds of {BLOCK_STEPS} steps of {step * 1e3:.2f} ms\n"
        f"bare / ours: {described(bare / ours, '.4f')}\n"
        f"ours - bare: {described((ours - bare) / BLOCK_STEPS * 1e6, '.1f')} us per step\n"
        f"recording: {cost * 1e6:.1f} us per step\n"
    )


def described(values: NDArray[np.float64], form: str) -> str:
    low, high = median_interval(values)
    first, last = np.quantile(values, (0.25, 0.75))
    return (
        f"{np.median(values):{form}} (95 % interval {low:{form}} to {high:{form}}, "
        f"middle half {first:{form}} to {last:{form}})"
    )


if __name__ == "__main__":
    main()
