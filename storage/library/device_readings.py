"""What an experiment tells of the devices that it ran on: how noisy each was, and how fast."""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.evidence import Evidence
from breakeven.storage.comparison.repeats import load_compared
from breakeven.storage.comparison.roles import of_role
from breakeven.storage.comparison.rounds import paired_blocks
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.statistics.speedups import noise_floor, paired_ratio


@dataclass(frozen=True, kw_only=True)
class DeviceReading:
    """One device in one experiment, by its baseline and its controls. None is not known."""

    id: str
    """As specifications call it: `cuda:1`, `cpu`."""
    name: str
    host: str
    driver: str | None
    max_sm_clock_mhz: float | None
    power_limit_watts: float | None
    torch: str | None
    noise: float | None
    """`device_noise` in `docs/metrics.md`."""
    stray: float | None
    """`device_stray` in `docs/metrics.md`."""
    step_seconds: float | None
    """Of the baseline, over its steady blocks."""


def device_readings(store: Store, experiment_id: str) -> tuple[DeviceReading, ...]:
    """One for each device that runs had to themselves; none of devices that share every batch."""
    spec, runs = load_compared(store, experiment_id)
    if spec.num_devices > 1:
        return ()
    return tuple(_readings(spec, runs))


def _readings(spec: ExperimentSpec, runs: list[Evidence]) -> Iterator[DeviceReading]:
    baseline = of_role(runs, "baseline")
    if baseline is None or not baseline.environment.get("device_name"):
        return
    controls = [paired_blocks(baseline, run) for run in runs if run.role == "control"]
    placed = baseline.environment.get("devices") or spec.devices
    told = baseline.environment
    for number, id in enumerate(placed[: spec.num_places], start=1):
        blocks = _on(baseline.steady_blocks, spec, number)
        here = [_on(pairs, spec, number) for pairs in controls]
        steps = blocks["seconds"] / blocks["num_steps"]
        middle = float(steps.median()) if len(steps) >= MIN_PAIRS else None
        yield DeviceReading(
            id=str(id),
            name=str(told["device_name"]),
            host=str(told.get("host") or ""),
            driver=told.get("driver"),
            max_sm_clock_mhz=told.get("max_sm_clock_mhz"),
            power_limit_watts=told.get("power_limit_watts"),
            torch=(told.get("versions") or {}).get("torch"),
            noise=noise_floor([paired_ratio(pairs["baseline"], pairs["other"]) for pairs in here]),
            stray=float(steps.quantile(0.75) - steps.quantile(0.25)) / middle if middle else None,
            step_seconds=middle,
        )


def _on(blocks: pd.DataFrame, spec: ExperimentSpec, number: int) -> pd.DataFrame:
    """Those of the processes on one of the places."""
    return blocks[(blocks["process"] - 1) % spec.num_places + 1 == number]
