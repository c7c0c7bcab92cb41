"""What our training loop costs over one written by hand.

Run from the project's root: `.venv/bin/python -m benchmarks.loop_overhead [device [model]]`

Two trainings of one model without a compiler take turns block by block in one process: a bare
PyTorch loop that does the forward, backward and optimizer step and nothing else, and ours, timed
from the start of its turn to its end, recording included. Prints the median over the rounds of
bare / ours, with its middle half, and the time that recording takes per step.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

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
from runner.worker.training import Trainer
from runner.worker.workload import Workload, load_workload

ROUNDS, BLOCK_STEPS, WARM_UP_ROUNDS = 60, 20, 5


class BareLoop:
    """A training as a person would write it."""

    def __init__(self, workload: Workload, batch: int, device: torch.device) -> None:
        self._model = workload.model.to(device).train()
        self._data = workload.data.train.to(device)
        self._batch = batch
        self._device = device
        capturable = {"capturable": True} if device.type == "cuda" else {}
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=1e-4, **capturable)

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


def recording_seconds(folder: Path) -> float:
    """Time to record one step, on the training thread, block by block as the loop does."""
    log = EventLog(folder / "cost.jsonl")
    started = time.perf_counter()
    for step in range(5000):
        log.append("step", step=step, epoch=0, round=0, loss=1.5, seconds=0.02, compiled=False,
                   learning_rate=1e-4, gradient_norm=None)  # fmt: skip
        if step % BLOCK_STEPS == 0:
            log.flush()
    log.close()
    return (time.perf_counter() - started) / 5000


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    model = sys.argv[2] if len(sys.argv) > 2 else "builtin:bert-tiny"
    device = torch.device(name)
    if device.type == "cpu":
        torch.set_num_threads(1)
    batch = 32
    samples = ROUNDS * BLOCK_STEPS * batch
    spec = ExperimentSpec(
        name="overhead",
        devices=(name,),
        backends=(),
        model=ModelSpec(source=model),
        data=DataSpec(num_train_samples=samples, num_eval_samples=10, sequence_length=64),
        training=TrainingSpec(batch_size=batch, learning_rate=1e-4),
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
        cost = recording_seconds(Path(folder))
    pairs = list(zip(turns.bare_seconds, turns.our_seconds, strict=True))[WARM_UP_ROUNDS:]
    ratios = [bare / ours for bare, ours in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4)
    step = statistics.median(ours for _, ours in pairs) / BLOCK_STEPS
    sys.stdout.write(
        f"{name}, {model}, torch {torch.__version__}, "
        f"{len(pairs)} rounds of {BLOCK_STEPS} steps of {step * 1e3:.2f} ms\n"
        f"bare / ours: {middle:.4f} (middle half {low:.4f} to {high:.4f})\n"
        f"recording: {cost * 1e6:.1f} us per step\n"
    )


if __name__ == "__main__":
    main()
