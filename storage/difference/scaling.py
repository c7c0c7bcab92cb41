"""Scaling efficiency: an experiment on several devices, compared with one on one device.

`docs/metrics.md` defines the number under `scaling_efficiency`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from breakeven.storage.comparison.evidence import Evidence
from breakeven.storage.comparison.rounds import load_compared
from breakeven.storage.difference.sides import Side, comparable, settings_of
from breakeven.storage.difference.speedups import ratio_of_speedups
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.intervals import typical
from breakeven.storage.statistics.speedups import Ratio

ScalingKind = Literal["strong", "weak"]
"""Strong: all devices work on the batch of the one. Weak: each has a batch as large as that."""
ScalingObstacle = Literal["work", "cpu", "device", "moved", "dropout", "setting", "batch"]
"""Reasons for no scaling efficiency: speeds are not comparable at all; the devices are processes on
the CPUs of one machine; the devices are of different models; a run was resumed on another number of
devices; one side trains with dropout; a setting that decides how much work a sample is differs; the
batch is neither that of one device nor that times the number of devices."""
SAME_WORK = (
    "settings", "data.sequence_length", "training.losses", "training.optimizer",
    "training.optimizer_options", "training.parameter_groups", "training.gradient_accumulation",
    "training.clip_norm", "training.clip_value", "training.record_gradient_norm",
    "training.gradient_statistics_every", "training.precision",
)  # fmt: skip
"""Settings that decide how much work a sample is."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """One backend, baseline or control on several devices, compared with itself on one."""

    label: str
    letter: str
    """Of the side on several devices."""
    kind: ScalingKind
    num_devices: int
    efficiency: float
    """Samples per second of all devices, over as many times those of one."""
    low: float | None
    """End of the 95 % interval; None where one of the two has too few blocks."""
    high: float | None

    @property
    def throughput(self) -> float:
        """Times the samples per second of one device."""
        return self.efficiency * self.num_devices


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a side on several devices is not held against one device."""

    letter: str
    obstacle: ScalingObstacle
    names: tuple[str, ...] = ()
    """Settings that are other ones, or the samples of a step on one and on several devices."""


def alone_and_together(sides: Sequence[Side]) -> tuple[Side | None, list[Side]]:
    """The first side whose runs have one device each, and those whose runs have several."""
    single = [side for side in sides if devices_of(side) == 1]
    several = [side for side in sides if devices_of(side) > 1]
    return (single[0] if single else None), several


def devices_of(side: Side) -> int:
    """Devices that each run has; of an experiment that is spread, one."""
    return side.spec.num_devices


def scalings(store: Store, sides: Sequence[Side]) -> tuple[list[Scaling], list[Refusal]]:
    """Scaling of each run that was timed on one device and on several, and the reasons why other
    runs have none; both are empty if no side has one device or no side has several."""
    alone, together = alone_and_together(sides)
    found: list[Scaling] = []
    refused: list[Refusal] = []
    if alone is None or not together:
        return found, refused
    runs_alone = _runs(store, alone)
    for side in together:
        runs = _runs(store, side)
        obstacle = _obstacle(alone, side)
        if any(run.moved_at for run in (*runs_alone, *runs)):
            obstacle = Refusal(letter=side.letter, obstacle="moved")
        if isinstance(obstacle, Refusal):
            refused.append(obstacle)
        else:
            found += _held_against(_timed(runs_alone), _timed(runs), side, obstacle)
    return found, refused


def _obstacle(alone: Side, side: Side) -> Refusal | ScalingKind:
    """What stands between the two, or how they scale."""
    if not comparable(alone, side).speed:
        return Refusal(letter=side.letter, obstacle="work")
    if side.spec.device == "cpu":
        return Refusal(letter=side.letter, obstacle="cpu")
    if alone.environment.get("device_name") != side.environment.get("device_name"):
        return Refusal(letter=side.letter, obstacle="device")
    if alone.spec.has_dropout != side.spec.has_dropout:
        return Refusal(letter=side.letter, obstacle="dropout")
    before, after = settings_of(alone.spec), settings_of(side.spec)
    others = tuple(name for name in SAME_WORK if before[name] != after[name])
    if others:
        return Refusal(letter=side.letter, obstacle="setting", names=others)
    one, many = _samples(alone), _samples(side)
    kind = scaling_kind(one, many, devices_of(side))
    if kind is None:
        return Refusal(letter=side.letter, obstacle="batch", names=(f"{one:g}", f"{many:g}"))
    return kind


def scaling_kind(one: float, many: float, num_devices: int) -> ScalingKind | None:
    """By the samples of a step on one device and on several; None for neither."""
    if many == one:
        return "strong"
    return "weak" if many == num_devices * one else None


def _samples(side: Side) -> float:
    """Of a step; of a forward pass as many."""
    return float(side.spec.training.batch_size * side.spec.batches_per_step)


def _runs(store: Store, side: Side) -> list[Evidence]:
    return load_compared(store, side.experiment_id)[1]


def _timed(runs: Sequence[Evidence]) -> dict[str, Ratio]:
    """Seconds of a step by label, as typical of steady blocks, with the ends of the interval."""
    times = ((run.label, _step_time(run)) for run in runs)
    return {label: time for label, time in times if time is not None}


def _step_time(run: Evidence) -> Ratio | None:
    blocks = run.steady_blocks[run.steady_blocks["seconds"] > 0]
    if blocks.empty:
        return None
    seconds = (blocks["seconds"] / blocks["num_steps"]).to_numpy()
    middle, low, high = typical(seconds, blocks["process"].to_numpy())
    return Ratio(median=middle, low=low, high=high, p_value=None, n=len(seconds))


def _held_against(
    alone: dict[str, Ratio], together: dict[str, Ratio], side: Side, kind: ScalingKind
) -> Iterator[Scaling]:
    """By samples per second: of one batch each device does a part, of batches as large as that of
    one device each does one."""
    count = devices_of(side)
    share = 1 / count if kind == "strong" else 1.0
    for label, one in alone.items():
        if label in together:
            ratio, low, high = ratio_of_speedups(together[label], one)
            yield Scaling(
                label=label, letter=side.letter, kind=kind, num_devices=count,
                efficiency=ratio * share, low=None if low is None else low * share,
                high=None if high is None else high * share,
            )  # fmt: skip
