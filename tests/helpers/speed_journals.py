"""Journals of speed experiments, as runs and supervisor write them."""

from typing import Any

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec, SpeedSpec
from tests.helpers.journals import Recording, experiment_spec, falling_losses

ENOUGH = "every interval is narrower than 2 %"
NUM_ROUNDS = 8


def speed_spec(part: str = "training", **changes: Any) -> ExperimentSpec:
    """Blocks of 2 steps, one of them warm-up, then 6 to 30 rounds."""
    fields = {"warm_up_blocks": 1, "min_rounds": 6, "max_rounds": 30, "batches": 2, **changes}
    return experiment_spec(
        scenario="speed",
        backends=("eager",),
        block_steps=2,
        num_steps=40,
        speed=SpeedSpec(part=part, **fields),
    )


def record_speed(
    data_dir: DataDir,
    label: str,
    spec: ExperimentSpec,
    step_seconds: float,
    *,
    compile_seconds: float = 0.0,
    reason: str = ENOUGH,
    num_rounds: int = NUM_ROUNDS,
    ending: dict[str, Any] | None = None,
    captures: bool = True,
) -> Recording:
    """A finished run: its warm-up is twice as slow as its later steps; only training has losses.
    `captures`: whether a backend captures something."""
    recording = Recording(data_dir.runs, label, spec).claim().start()
    recording.captures = recording.captures and captures
    losses = falling_losses(2 * num_rounds + 2)
    shown = [None if spec.is_inference else loss for loss in losses]
    first = [2 * step_seconds + compile_seconds, 2 * step_seconds]
    compiled = [0] if compile_seconds else []
    recording.block(first, shown[:2], compiled=compiled, warm_up=True)
    for number in range(1, num_rounds + 1):
        recording.block([step_seconds] * 2, shown[2 * number : 2 * number + 2])
    recording.stop(reason, **(ending or {})).end()
    return recording


def record_repeats(data_dir: DataDir, ratios: tuple[float, ...]) -> None:
    """Baseline and control take 0.2 s in every repeat; eager is faster by these ratios."""
    spec = speed_spec(repeats=len(ratios))
    for repeat, ratio in enumerate(ratios, start=1):
        record_speed(data_dir, f"baseline-{repeat}", spec, 0.2)
        record_speed(data_dir, f"control-{repeat}", spec, 0.2)
        record_speed(data_dir, f"eager-{repeat}", spec, 0.2 / ratio, compile_seconds=float(repeat))
