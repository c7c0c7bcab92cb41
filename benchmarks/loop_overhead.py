"""Overhead of our training loop over one written by hand.

From the project's root: `.venv/bin/python -m benchmarks.loop_overhead [device [model [rounds]]]`

Two trainings of one model without a compiler take turns block by block in one process: a bare
PyTorch loop that picks its samples, does forward, backward and optimizer step, and nothing else;
and ours, timed from the start of its turn to its end, recording included. Prints medians over the
rounds with their 95 % interval, per step:

* bare / ours;
* the difference apart from forward, backward, optimizer and waiting for the device, which are the
  same work and on a noisy host vary by more than all else takes;
* the time to record.
"""

import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.specs.experiment import (
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    RunSpec,
    TrainingSpec,
)
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.device.base import Device, EventClock, MemoryUse
from breakeven.runner.worker.device.device_kinds import open_device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.model.loaded_workload import Workload, load_workload
from breakeven.runner.worker.step.stepping import StepResult
from breakeven.runner.worker.training.blocks import Block
from breakeven.runner.worker.training.step_rows import BlockCost, BlockRecorder, Steps
from breakeven.runner.worker.training.training_loop import Trainer
from breakeven.runner.worker.turn_source import Turns
from breakeven.storage.statistics.intervals import median_interval

BLOCK_STEPS, WARM_UP_ROUNDS, ROUNDS_PER_EPOCH = 20, 5, 20
REPEATS = 250


class Work:
    """Sums up the time of work that both loops share."""

    def __init__(self, model: torch.nn.Module, device: Device) -> None:
        self.seconds = 0.0
        self.wait = self._timed(device.synchronize)
        """Waits until the device is idle."""
        self._wait_before(EventClock, "read")
        self._time(type(model), "__call__")
        self._time(torch.Tensor, "backward")
        self._time(torch.optim.Adam, "step")
        self._time(torch.optim.Adam, "zero_grad")

    def _time(self, owner: Any, name: str) -> None:
        setattr(owner, name, self._timed(getattr(owner, name)))

    def _wait_before(self, owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def after_waiting(*arguments: Any) -> Any:
            self.wait()
            return function(*arguments)

        setattr(owner, name, after_waiting)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **keywords: Any) -> Any:
            started = time.perf_counter()
            result = function(*arguments, **keywords)
            self.seconds += time.perf_counter() - started
            return result

        return timed


class Times:
    """Seconds of each block of a loop, and the part outside the shared work."""

    def __init__(self, work: Work) -> None:
        self.blocks: list[float] = []
        self.rest: list[float] = []
        self._work = work

    def start(self) -> None:
        self._work.wait()
        self._work.seconds = 0.0
        self._started = time.perf_counter()

    def end(self) -> None:
        self._work.wait()
        seconds = time.perf_counter() - self._started
        self.blocks.append(seconds)
        self.rest.append(seconds - self._work.seconds)


class BareLoop:
    """A training loop as a person would write it."""

    def __init__(self, workload: Workload, work: Work, batch: int, device: Device) -> None:
        self.times = Times(work)
        self._model = workload.model.to(device.torch_device).train()
        self._data = workload.data.train.to(device.torch_device)
        self._batch = batch
        self._device = device
        self._optimizer = torch.optim.Adam(
            self._model.parameters(), lr=1e-4, capturable=device.captures_graphs
        )

    def train_block(self) -> None:
        order = torch.randperm(len(self._data), device=self._device.torch_device)
        self.times.start()
        for index in range(BLOCK_STEPS):
            indices = order[index * self._batch : (index + 1) * self._batch]
            inputs = {name: tensor[indices] for name, tensor in self._data.inputs.items()}
            labels = self._data.labels[indices]
            loss = self._model(**inputs, labels=labels).loss
            loss.backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
        self.times.end()


class AlternatingTurns(Turns):
    """Gives our loop its turns, with a block of the bare loop before or after each."""

    def __init__(self, bare: BareLoop, work: Work) -> None:
        super().__init__()
        self.times = Times(work)
        self._bare = bare

    def wait(self) -> Turn:
        self._round += 1
        if self._round % 2 == 0:
            self._bare.train_block()
        self.times.start()
        return Turn(round=self._round, position=self._round % 2)

    def done(self, *, finished: bool) -> None:
        self.times.end()
        if self._round % 2 == 1:
            self._bare.train_block()


def recording_seconds(folder: Path, device: Device) -> float:
    """Time to record one step on the training thread, block by block as the loop does.

    From results on an idle device to lines in the journal.
    """
    log = EventLog(folder / "cost.jsonl")
    recorder = BlockRecorder(log, ("model",))
    cost = BlockCost(
        seconds=[0.0212345678912] * BLOCK_STEPS,
        memory=MemoryUse(peak_bytes=123_456_789, reserved_bytes=123_456_789),
    )
    result = StepResult(torch.rand((), device=device.torch_device), terms=None, gradient_norm=None)
    spent = []
    for number in range(REPEATS):
        steps = Steps()
        device.synchronize()
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
    device = open_device(name)
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
    workload = load_workload(spec)
    workload.model.to(device.torch_device)
    work = Work(workload.model, device)
    bare_loop = BareLoop(load_workload(spec), work, batch, device)
    turns = AlternatingTurns(bare_loop, work)
    with tempfile.TemporaryDirectory() as folder:
        run = RunSpec(experiment_id="x", experiment=spec, arm=spec.arms[0])
        log = EventLog(Path(folder) / "events.jsonl")
        Trainer(RunContext(run, RunDir(Path(folder)), device, log), workload).train(turns)
        cost = recording_seconds(Path(folder), device)
    bare, ours, bare_rest, our_rest = (
        np.array(seconds[WARM_UP_ROUNDS:]) / BLOCK_STEPS * 1e6
        for seconds in (
            bare_loop.times.blocks,
            turns.times.blocks,
            bare_loop.times.rest,
            turns.times.rest,
        )
    )
    sys.stdout.write(
        f"{name}, {model}, torch {torch.__version__}, "
        f"{len(ours)} rounds of {BLOCK_STEPS} steps of {np.median(ours) / 1e3:.2f} ms\n"
        f"bare / ours: {described(bare / ours, '.4f')}\n"
        f"beside the work: {described(our_rest - bare_rest, '.1f')} us per step\n"
        f"recording: {cost * 1e6:.1f} us per step\n"
    )


def described(values: NDArray[np.float64], form: str) -> str:
    low, high = median_interval(values)
    return f"{np.median(values):{form}} (95 % interval {low:{form}} to {high:{form}})"


if __name__ == "__main__":
    main()
