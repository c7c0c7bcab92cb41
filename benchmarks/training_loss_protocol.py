"""The results of two protocols for a backend that learns nothing.

Run from the project's root: `.venv/bin/python -m benchmarks.training_loss_protocol`

The same work (tiny BERT, generated reviews, Adam) under `eager`, which is correct, and under
`zeroed_gradients` (tests/faults), which sets all gradients to zero. First by the protocol of
PyTorch's benchmarks/dynamo/training_loss.py, rewritten from its description; then by Breakeven.
Prints a table in Markdown.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.parity_recording import quieten
from benchmarks.tables import markdown
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, TrainingSpec
from breakeven.runner.worker.model.loaded_workload import load_workload
from tests.faults.judging import judge_trial
from tests.faults.trial import train_arms

BACKENDS = ("eager", "zeroed_gradients")
EPOCHS, SAMPLES, BATCH, RATE, LENGTH = 3, 1000, 8, 5e-4, 64


def workload() -> ExperimentSpec:
    return ExperimentSpec(
        name="training_loss",
        backends=BACKENDS,
        data=DataSpec(num_train_samples=SAMPLES, num_eval_samples=400, sequence_length=LENGTH),
        training=TrainingSpec(learning_rate=RATE, batch_size=BATCH, epochs=EPOCHS),
        cpu_threads=1,
        profile_steps=0,
    )


def train_as_original(step: Callable[..., torch.Tensor], batches: list[Any]) -> list[float]:
    """Mean loss of every hundred iterations of an epoch; drops an incomplete last hundred."""
    history = []
    for _ in range(EPOCHS):
        running = 0.0
        for index, batch in enumerate(batches):
            running += step(batch).item()
            if index % 100 == 99:
                history.append(running / 100)
                running = 0.0
    return history


def original_protocol(backend: str) -> tuple[list[float], list[float], bool]:
    """Both loss histories, and whether the original check passes the backend.

    As in the original, the compiled run continues with the model and the optimizer that the native
    run has trained, and the sum of the last ten values is divided by ten, even if there are fewer.
    """
    spec = workload()
    loaded = load_workload(spec)
    data, model = loaded.data, loaded.model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    order = torch.split(torch.arange(len(data.train)), BATCH)
    batches = [data.train.batch(indices) for indices in order]

    def step(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = model(**batch).loss
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss

    torch._dynamo.reset()
    native = train_as_original(step, batches)
    compiled = train_as_original(torch.compile(step, backend=backend), batches)
    count = min(len(native), 10)
    passes = sum(compiled[-count:]) / 10 <= sum(native[-count:]) / 10 + 0.1
    return native, compiled, passes


def our_verdicts() -> Iterator[str]:
    """The parity of each backend after the same work."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in train_arms(Path(folder), workload()):
            pass
        for result in judge_trial(Path(folder)).results:
            if result.role == "backend" and result.parity is not None:
                step = result.parity.first_step_outside
                yield f"{result.parity.verdict}{'' if step is None else f' from step {step} on'}"


def row(backend: str, ours: str) -> dict[str, object]:
    native, compiled, passes = original_protocol(backend)
    return {
        "backend": backend,
        "native, per epoch": ", ".join(f"{loss:.3f}" for loss in native),
        "compiled, per epoch": ", ".join(f"{loss:.3f}" for loss in compiled),
        "original": "PASSED" if passes else "FAILED",
        "Breakeven": ours,
    }


def main() -> None:
    quieten()
    rows = [row(*both) for both in zip(BACKENDS, our_verdicts(), strict=True)]
    sys.stdout.write(f"{markdown(rows)}\n")


if __name__ == "__main__":
    main()
