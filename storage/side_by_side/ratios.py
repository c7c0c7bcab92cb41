"""Computes the ratio of two speedups, with interval and verdict, and scaling efficiency: an
experiment on several devices compared with one on a single device (docs/metrics.md)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from breakeven.storage.comparison.pairs import Timing
from breakeven.storage.side_by_side.sides import Side, comparable, labels, settings_of
from breakeven.storage.statistics.intervals import typical
from breakeven.storage.statistics.speedups import (
    MAX_MARGIN_OF_SAME,
    MIN_MARGIN,
    SIGNIFICANCE,
    Ratio,
    holm,
)

QUANTILE = 1.959964
"""Quantile of the normal distribution at the end of a 95 % interval."""
DifferenceVerdict = Literal["higher", "lower", "same", "unsure"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A speedup over the speedup of the same backend in the reference."""

    label: str
    letter: str
    """Letter of the side that is compared with the reference."""
    ratio: float
    low: float | None
    high: float | None
    p_holm: float | None
    """Corrected over all comparisons with the reference."""
    verdict: DifferenceVerdict


def ratio_of_speedups(reference: Ratio, other: Ratio) -> tuple[float, float | None, float | None]:
    """The other speedup over the reference's, and the ends of its 95 % interval; None if one of
    them has no interval.

    The two measurements are independent, each with its own interval. The interval of their quotient
    follows by the method of variance estimates recovery (Zou and Donner, 2008: Construction of
    confidence limits about effect measures), on logarithms: with estimates a, b and ends l, u, it
    is a - b - sqrt((a - l_a)^2 + (u_b - b)^2) to a - b + sqrt((u_a - a)^2 + (b - l_b)^2). The
    method needs only the two intervals, so it serves for rounds of one process (bootstrap) and for
    several processes (Student's t).
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
    """Two-sided p-value that corresponds to the interval: the distance of the quotient from 1 in
    standard errors, estimated from the interval's half on the side of 1. None without an interval.
    """
    if low is None or high is None:
        return None
    distance = math.log(quotient)
    half = distance - math.log(low) if distance > 0 else math.log(high) - distance
    if half <= 0:
        return 1.0 if distance == 0 else 0.0
    return math.erfc(abs(distance) * QUANTILE / half / math.sqrt(2))


def differences(sides: Sequence[Side]) -> list[Difference]:
    """Differences for every backend measured on both the first side and another one, if the speeds
    of these sides may be compared, and neither training is wrong."""
    reference, *others = sides
    ratios = []
    for side in others:
        if not comparable(reference, side).speed:
            continue
        for label in labels(sides):
            before, after = reference.result(label), side.result(label)
            if before and after and (before.is_wrong or after.is_wrong):
                continue  # The speed of another computation.
            if before and after and before.speedup and after.speedup:
                margin = _margin(reference, side)
                ratios.append(
                    (label, side.letter, margin, ratio_of_speedups(before.speedup, after.speedup))
                )
    corrected = holm([p_value(*ratio) for _, _, _, ratio in ratios])
    return [
        Difference(
            label=label,
            letter=letter,
            ratio=ratio[0],
            low=ratio[1],
            high=ratio[2],
            p_holm=p,
            verdict=verdict(*ratio, p, margin),
        )
        for (label, letter, margin, ratio), p in zip(ratios, corrected, strict=True)
    ]


def verdict(
    ratio: float, low: float | None, high: float | None, p_holm: float | None, margin: float
) -> DifferenceVerdict:
    """The verdict of a difference, as for a speedup: higher or lower only beyond chance and margin,
    same only inside the margin, and not on a noisy machine."""
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


def _margin(reference: Side, other: Side) -> float:
    """The margin of a verdict: the larger noise floor of both machines, at least `MIN_MARGIN`."""
    floors = [side.comparison.noise_floor or 0.0 for side in (reference, other)]
    return max(MIN_MARGIN, *floors)


ScalingKind = Literal["strong", "weak"]
"""Strong: all devices share the batch of the single device. Weak: each has a batch of that size."""
ScalingObstacle = Literal["work", "cpu", "device", "moved", "dropout", "setting", "batch"]
"""Reasons for no scaling efficiency: speeds are not comparable; the devices are processes on the
CPUs of one machine; the devices are different models; a run was resumed on another number of
devices; only one side has dropout; a setting that affects the work per sample differs; the batch is
neither that of one device nor that times the number of devices."""
SAME_WORK = (
    "settings",
    "data.sequence_length",
    "training.losses",
    "training.optimizer",
    "training.optimizer_options",
    "training.parameter_groups",
    "training.gradient_accumulation",
    "training.clip_norm",
    "training.clip_value",
    "training.record_gradient_norm",
    "training.gradient_statistics_every",
    "training.precision",
)
"""Settings that affect the work per sample."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """One backend, baseline or control on several devices, compared with itself on one device."""

    label: str
    letter: str
    """Letter of the side on several devices."""
    kind: ScalingKind
    num_devices: int
    efficiency: float
    """Samples per second of all devices, over the number of devices times those of one."""
    low: float | None
    """End of the 95 % interval; None if one of the two has too few blocks."""
    high: float | None

    @property
    def throughput(self) -> float:
        """Samples per second of all devices over those of one device."""
        return self.efficiency * self.num_devices


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a side on several devices is not compared with one device."""

    letter: str
    obstacle: ScalingObstacle
    names: tuple[str, ...] = ()
    """Settings that differ, or the samples of a step on one and on several devices."""


def alone_and_together(sides: Sequence[Side]) -> tuple[Side | None, list[Side]]:
    """The first side whose runs use one device each, and the sides whose runs use several."""
    single = [side for side in sides if devices_of(side) == 1]
    several = [side for side in sides if devices_of(side) > 1]
    return (single[0] if single else None), several


def devices_of(side: Side) -> int:
    """Number of devices of each run."""
    return side.spec.num_devices


def scalings(sides: Sequence[Side]) -> tuple[list[Scaling], list[Refusal]]:
    """Scaling of each run that was timed on one device and on several, and the reasons why other
    runs have none; both are empty if no side has one device or no side has several."""
    alone, together = alone_and_together(sides)
    measured: list[Scaling] = []
    refused: list[Refusal] = []
    if alone is None or not together:
        return measured, refused
    for side in together:
        obstacle = _obstacle(alone, side)
        if any(_has_moved(compared) for compared in (alone, side)):
            obstacle = Refusal(letter=side.letter, obstacle="moved")
        if isinstance(obstacle, Refusal):
            refused.append(obstacle)
        else:
            measured += _scalings_between(_timed(alone), _timed(side), side, obstacle)
    return measured, refused


def _obstacle(alone: Side, side: Side) -> Refusal | ScalingKind:
    """The obstacle to comparing the two sides, or the kind of scaling."""
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
    single, many = _samples(alone), _samples(side)
    kind = scaling_kind(single, many, devices_of(side))
    if kind is None:
        return Refusal(letter=side.letter, obstacle="batch", names=(f"{single:g}", f"{many:g}"))
    return kind


def scaling_kind(single: float, many: float, num_devices: int) -> ScalingKind | None:
    """The kind of scaling, from the samples per step on one and on several devices, or None."""
    if many == single:
        return "strong"
    return "weak" if many == num_devices * single else None


def _samples(side: Side) -> float:
    """Samples of a step or of a forward pass."""
    return float(side.spec.training.batch_size * side.spec.batches_per_step)


def _has_moved(side: Side) -> bool:
    return any(result.timing.has_moved for result in side.comparison.results)


def _timed(side: Side) -> dict[str, Ratio]:
    """Typical step time of steady blocks by label, with its interval."""
    times = ((result.label, _step_time(result.timing)) for result in side.comparison.results)
    return {label: time for label, time in times if time is not None}


def _step_time(timing: Timing) -> Ratio | None:
    blocks = timing.blocks[timing.blocks["seconds"] > 0]
    if blocks.empty:
        return None
    seconds = (blocks["seconds"] / blocks["num_steps"]).to_numpy()
    middle, low, high = typical(seconds, blocks["process"].to_numpy())
    return Ratio(median=middle, low=low, high=high, p_value=None, n=len(seconds))


def _scalings_between(
    alone: dict[str, Ratio], together: dict[str, Ratio], side: Side, kind: ScalingKind
) -> Iterator[Scaling]:
    """Scalings of runs on both sides, by samples per second. With strong scaling, each device
    processes a part of the batch; with weak scaling, a whole batch."""
    count = devices_of(side)
    share = 1 / count if kind == "strong" else 1.0
    for label, time_alone in alone.items():
        if label in together:
            ratio, low, high = ratio_of_speedups(together[label], time_alone)
            yield Scaling(
                label=label,
                letter=side.letter,
                kind=kind,
                num_devices=count,
                efficiency=ratio * share,
                low=None if low is None else low * share,
                high=None if high is None else high * share,
            )
