"""Suite runs, recorded cell by cell, and files of PyTorch's own benchmarks to import."""

from collections.abc import Sequence
from typing import Any

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunState
from breakeven.runner.specs.experiment import ExperimentSpec, ModelSpec
from tests.helpers.journals import Recording, falling_losses

NUM_BLOCKS = 8


STEPS = 10


LOSSES = falling_losses(NUM_BLOCKS * STEPS)
HARNESS = """\
dev,name,batch_size,speedup,abs_latency,compilation_latency,compression_ratio
cuda,BertForMaskedLM,32,1.5,41.25,18.72,1.11
cuda,OPTForCausalLM,4,0.0,0.0,0,0
"""


def bring(data_dir: DataDir, content: str, name: str = "inductor.csv") -> None:
    folder = data_dir.path / "imports"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content)


def spec(scenario: str, model: str, suite_run: str = "now", **changes: Any) -> ExperimentSpec:
    return ExperimentSpec.from_dict(
        {
            "name": f"{model}, {scenario}",
            "scenario": scenario,
            "task": "suite",
            "model": ModelSpec(source=f"huggingface:{model}").__dict__,
            "data": {"source": "builtin:random", "num_train_samples": 64},
            "suite_run": suite_run,
            "block_steps": STEPS,
            **changes,
        }
    )


class SuiteRecorder:
    """Writes the experiments of suite runs, one after another."""

    def __init__(self, data_dir: DataDir) -> None:
        self.data_dir = data_dir
        self.count = 0

    def _recording(self, label: str, spec: ExperimentSpec) -> Recording:
        experiment_id = f"20261121-1000{self.count:02d}-000000-aaaa"
        return Recording(self.data_dir.runs, label, spec, experiment_id).claim().start()

    def speed(
        self,
        model: str,
        seconds: Sequence[float] | float,
        *,
        compile: float = 3.0,
        memory: int = 100,
        state: RunState = RunState.FINISHED,
        suite_run: str = "now",
        losses: Sequence[float] = LOSSES,
    ) -> None:
        """A baseline of 0.2 s a step and 100 bytes; a backend whose steps take `seconds`, with
        these `losses`."""
        self.count += 1
        cell = spec("speed", model, suite_run, controls=0)
        times = [seconds] * NUM_BLOCKS if isinstance(seconds, float) else list(seconds)
        for label, steps, peak in (
            ("baseline", [0.2] * NUM_BLOCKS, 100),
            ("inductor", times, memory),
        ):
            recording = self._recording(label, cell)
            for number, duration in enumerate(steps):
                block = [duration] * STEPS
                compiles = label == "inductor" and number == 0
                block[0] += compile if compiles else 0.0
                run_losses = losses if label == "inductor" else LOSSES
                part = run_losses[number * STEPS : (number + 1) * STEPS]
                recording.block(block, part, [0] if compiles else (), peak_memory_bytes=peak)
            recording.end(state if label == "inductor" else RunState.FINISHED)

    def queued(self, model: str) -> None:
        """Runs that have not begun."""
        self.count += 1
        waiting = spec("accuracy", model, accuracy={"parts": ("training",)})
        for label in ("baseline", "inductor"):
            Recording(self.data_dir.runs, label, waiting, f"20261121-1000{self.count:02d}-000000-a")

    def accuracy(self, model: str, status: str | None, suite_run: str = "now") -> None:
        self.count += 1
        cell = spec("accuracy", model, suite_run, accuracy={"parts": ("training",)})
        for label in ("baseline", "inductor"):
            recording = self._recording(label, cell)
            word = "pass" if label == "baseline" else status
            if word is not None:
                recording.log.append(
                    "accuracy_status",
                    part="training",
                    status=word,
                    message=None,
                    tolerance=0.01,
                    iterations=2,
                    notes=[],
                )
            recording.end()
