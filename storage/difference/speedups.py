"""By how much two speedups differ, with an interval and a verdict; and scaling efficiency: an
experiment on several devices, compared with one on one device (docs/metrics.md)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from breakeven.storage.comparison.evidence import Evidence
from breakeven.storage.comparison.rounds import load_compared
from breakeven.storage.difference.sides import Side, comparable, labels, settings_of
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.intervals import typical
from breakeven.storage.statistics.speedups import (
    MAX_MARGIN_OF_SAME,
    MIN_MARGIN,
    SIGNIFICANCE,
    Ratio,
    holm,
)

QUANTILE = 1.959964
"""Of the normal distribution, at which a 95 % interval ends."""
DifferenceVerdict = Literal["higher", "lower", "same", "unsure"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A speedup over the speedup of the same backend in the reference."""

    label: str
    letter: str
    """Of the side that is compared with the first."""
    ratio: float
    low: float | None
    high: float | None
    p_holm: float | None
    """Corrected over everything that is compared with the reference."""
    verdict: DifferenceVerdict


def ratio_of_speedups(reference: Ratio, other: Ratio) -> tuple[float, float | None, float | None]:
    """The other speedup over the reference's, and the ends of its 95 % interval; None where one of
    them has no interval.

    The two were measured apart from each other, each has its own interval, and the interval of
    their quotient follows from those by the method of variance estimates recovery (Zou and Donner,
    2008: Construction of confidence limits about effect measures), on logarithms: with estimates
    a, b and ends l, u, it is a - b - sqrt((a - l_a)^2 + (u_b - b)^2) to
    a - b + sqrt((u_a - a)^2 + (b - l_b)^2). It asks for nothing but the two intervals, so it is the
    same for rounds of one process (bootstrap) and for several processes (Student's t).
    """
    quotient = other.median / reference.median
    if not (reference.low and reference.high and other.low and other.high):
        return quotient, None, None
    a, low_a, high_a = (math.log(x) for x in (other.median, other.low, other.high))
    b, low_b, high_b = (math.log(x) for x in (reference.median, reference.low, reference.high))
    low = a - b - math.hypot(a - low_a, high_b - b)
    high = a - b + math.hypot(high_a - a, b - low_b)
    return quotient, math.exp(low), math.exp(high)


def p_value(quotient: float, low: float | None, high: float | None) -> float | None:
    """Two-sided p-value that belongs to the interval: how far 1 lies from the quotient, in units of
    the standard error that the interval's half on that side stands for. None without an interval.
    """
    if low is None or high is None:
        return None
    distance = math.log(quotient)
    half = distance - math.log(low) if distance > 0 else math.log(high) - distance
    if half <= 0:
        return 1.0 if distance == 0 else 0.0
    return math.erfc(abs(distance) * QUANTILE / half / math.sqrt(2))


def differences(sides: Sequence[Side]) -> list[Difference]:
    """Of every backend that both the first side and another one have measured, where speeds of the
    two may be compared at all."""
    reference, *others = sides
    found = []
    for side in others:
        if not comparable(reference, side).speed:
            continue
        for label in labels(sides):
            before, after = reference.result(label), side.result(label)
            if before and after and before.speedup and after.speedup:
                margin = _margin(reference, side)
                found.append((label, side.letter, margin,
                              ratio_of_speedups(before.speedup, after.speedup)))  # fmt: skip
    corrected = holm([p_value(*ratio) for _, _, _, ratio in found])
    return [
        Difference(label=label, letter=letter, ratio=ratio[0], low=ratio[1], high=ratio[2],
                   p_holm=p, verdict=verdict(*ratio, p, margin))
        for (label, letter, margin, ratio), p in zip(found, corrected, strict=True)
    ]  # fmt: skip


def verdict(
    ratio: float, low: float | None, high: float | None, p_holm: float | None, margin: float
) -> DifferenceVerdict:
    """As of a speedup itself: higher or lower only beyond chance and margin, same only inside the
    margin, and on no machine that is noisier than that allows."""
    if low is None or high is None or p_holm is None:
        return "unsure"
    within = low >= 1 / (1 + margin) and high <= 1 + margin
    if within and margin <= MAX_MARGIN_OF_SAME:
        return "same"
    if p_holm < SIGNIFICANCE and low > 1 and ratio > 1 + margin:
        return "higher"
    if p_holm < SIGNIFICANCE and high < 1 and ratio < 1 / (1 + margin):
        return "lower"
    return "unsure"


def _margin(one: Side, other: Side) -> float:
    """What neither machine can tell apart."""
    floors = [side.comparison.noise_floor or 0.0 for side in (one, other)]
    return max(MIN_MARGIN, *floors)


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
