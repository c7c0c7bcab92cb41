"""How several devices scale against one, in words: for the command and for pages."""

from collections.abc import Sequence

from breakeven.storage.difference.scaling import (
    Refusal,
    Scaling,
    ScalingKind,
    ScalingObstacle,
    alone_and_together,
    devices_of,
)
from breakeven.storage.difference.sides import Side
from breakeven.storage.numbers.formats import format_ratio, format_share

KINDS: dict[ScalingKind, str] = {
    "strong": "strong scaling: all devices share the batch of the one",
    "weak": "weak scaling: each device has a batch as large as that of the one",
}
WHY: dict[ScalingObstacle, str] = {
    "work": "their speeds may not be compared",
    "cpu": "processes that share the CPUs of a machine are not several devices",
    "device": "the devices are of different models",
    "moved": "a run went on on another number of devices than it began on",
    "dropout": "one of them trains with dropout, the other without",
    "setting": "these settings decide how much work a sample is, and are other ones: {}",
    "batch": "steps of {} samples are neither as large as those of one device, {}, nor as many "
    "times that as there are devices",
}


def efficiency_text(found: Scaling) -> str:
    """`81.3 % (79.0 % to 83.5 %)`; without an interval where none is claimed."""
    text = format_share(found.efficiency)
    if found.low is None or found.high is None:
        return text
    return f"{text} ({format_share(found.low)} to {format_share(found.high)})"


def scaling_rows(found: Sequence[Scaling]) -> list[list[str]]:
    """A header, and a row for each run on several devices."""
    rows = [["scaling efficiency", "", "devices", "efficiency", "times one device"]]
    for one in found:
        rows.append([one.label, one.letter, str(one.num_devices), efficiency_text(one),
                     format_ratio(one.throughput)])  # fmt: skip
    return rows


def scaling_notes(
    sides: Sequence[Side], found: Sequence[Scaling], refused: Sequence[Refusal]
) -> list[str]:
    """Which kind of scaling it is, and which sides are not held against one device, and why."""
    alone, together = alone_and_together(sides)
    if alone is None:
        return []
    kinds = {one.letter: one.kind for one in found}
    told = [
        f"{side.letter} on {devices_of(side)} devices beside {alone.letter} on one, "
        f"{KINDS[kinds[side.letter]]}."
        for side in together if side.letter in kinds
    ]  # fmt: skip
    return told + [
        f"{one.letter} is not held against one device ({alone.letter}): {why_text(one)}."
        for one in refused
    ]


def why_text(one: Refusal) -> str:
    """Why nothing is said of it."""
    names = reversed(one.names) if one.obstacle == "batch" else [", ".join(one.names)]
    return WHY[one.obstacle].format(*names)
