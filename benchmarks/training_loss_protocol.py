"""The results of two protocols for a backend that learns nothing.

Run from the project's root: `.venv/bin/python -m benchmarks.training_loss_protocol`

The same work (tiny BERT, generated reviews, Adam) under `eager`, which is correct, and under
`zeroed_gradients` (tests/faults), which sets all gradients to zero. First by the protocol of
PyTorch's benchmarks/dynamo/training_loss.py, rewritten from its description; then by `breakeven
compare`. Prints a table in Markdown.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FAULTS = ROOT / "tests" / "faults"
os.environ["OMP_NUM_THREADS"] = "1"
sys.path.append(str(FAULTS))

import torch  # noqa: E402  (reads the number of threads from the environment)

from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, TrainingSpec  # noqa: E402
from breakeven.runner.worker.model.workload import load_workload  # noqa: E402

BACKENDS = ("eager", "zeroed_gradients")
EPOCHS, SAMPLES, BATCH, RATE, LENGTH = 3, 1000, 8, 5e-4, 64


def workload() -> ExperimentSpec:
    return ExperimentSpec(
        name="training_loss",
        backends=BACKENDS,
        data=DataSpec(num_train_samples=SAMPLES, num_eval_samples=400, sequence_length=LENGTH),
        training=TrainingSpec(learning_rate=RATE, batch_size=BATCH, epochs=EPOCHS),
        cpu_threads=1,
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


def our_protocol() -> str:
    """The terminal report of the same work."""
    with tempfile.TemporaryDirectory() as folder:
        spec_file = Path(folder) / "spec.json"
        spec_file.write_text(workload().to_json())
        command = [sys.executable, "-m", "breakeven", "compare", "--spec", str(spec_file)]
        answer = subprocess.run(
            [*command, "--data-folder", folder],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(FAULTS)},
            capture_output=True,
            text=True,
            check=False,
        )
    return answer.stdout + answer.stderr


def main() -> None:
    lines = [
        "| backend | native, per epoch | compiled, per epoch | original says |",
        "|---|---|---|---|",
    ]
    for backend in BACKENDS:
        native, compiled, passes = original_protocol(backend)
        histories = [", ".join(f"{loss:.3f}" for loss in losses) for losses in (native, compiled)]
        verdict = "PASSED" if passes else "FAILED"
        lines.append(f"| {backend} | {histories[0]} | {histories[1]} | {verdict} |")
    report = our_protocol()
    ours = [line for line in report.splitlines() if line.startswith(("parity of", "noise floor"))]
    sys.stdout.write("\n".join([*lines, "", *(ours or [report])]) + "\n")


if __name__ == "__main__":
    main()
