"""Devices for the terminal: what each is, how noisy and fast it is, and what became worse."""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from breakeven.runner.texts import printable
from breakeven.storage.library.devices import QUANTITIES, DeviceHistory, Quantity, Worsening
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.numbers.recorded import NUMBERS
from breakeven.storage.numbers.sentences import Sentence, figure, said

BECAME: dict[Quantity, str] = {
    "device_noise": "noisier", "device_stray": "less steady", "device_pace": "slower",
}  # fmt: skip


def worsening_words(found: Worsening) -> Sentence:
    """`noisier since 3 November 2026: 1.2 % to 4.0 %, after the last 5 experiments`."""
    step, when = found.step, found.since.submitted
    day = "an experiment of unknown time" if pd.isna(when) else f"{when:%Y-%m-%d %H:%M}"
    count = step.after.last - step.after.first + 1
    return said("{became} since {day}: {before} to {after}, over its last {count} experiments",
                became=BECAME[found.quantity], day=day,
                before=figure(found.quantity, step.before.value),
                after=figure(found.quantity, step.after.value), count=str(count))  # fmt: skip


def noisy_words(found: DeviceHistory) -> Sentence:
    """What the noise of a device means for whoever compares on it."""
    noise = figure("device_noise", found.level("device_noise"))
    return said("two equal runs differ by up to {noise}, and speedups below that are not called "
                "faster or slower", noise=noise)  # fmt: skip


def verdict(found: Sequence[DeviceHistory]) -> str:
    """How many devices are noisy, and how many became worse: only what is known of any."""
    noisy, worse = sum(one.is_noisy for one in found), sum(bool(one.worsenings) for one in found)
    if noisy:
        told = f"{_devices(noisy)} {'is' if noisy == 1 else 'are'} noisy"
    elif any(one.level("device_noise") is not None for one in found):
        told = "No device is noisy"
    else:
        told = "How noisy the devices are is not known"
    if worse:
        return f"{told}, {_devices(worse)} became worse"
    return f"{told}, none became worse" if any(one.can_worsen for one in found) else told


def _devices(count: int) -> str:
    return f"{count:,} device" + "s" * (count != 1)


def report(found: Sequence[DeviceHistory]) -> str:
    """A line for each device, and one for each thing that became worse."""
    if not found:
        return "no device is known yet: an experiment that is over tells of the one it ran on"
    lines = []
    for one in found:
        told = ", ".join(
            f"{NUMBERS[quantity].title.lower()} "
            f"{DASH if value is None else NUMBERS[quantity].format(value)}"
            for quantity in QUANTITIES
            if (value := one.level(quantity)) is not None or quantity == QUANTITIES[0]
        )
        lines.append(f"{one.name}, {one.id} of {one.host}: {told} "
                     f"({len(one.moments)} experiments)")  # fmt: skip
        lines += [f"  noisy: {noisy_words(one)}"] if one.is_noisy else []
        lines += [f"  {worsening_words(worse)}" for worse in one.worsenings]
    return "\n".join(map(printable, lines))


def as_json(found: Sequence[DeviceHistory]) -> str:
    """A list of devices, each with its moments and what became worse."""
    return json.dumps([_told(one) for one in found], indent=1)


def _told(device: DeviceHistory) -> dict[str, Any]:
    newest = device.newest
    return {
        "host": device.host, "id": device.id, "name": device.name, "driver": newest.driver,
        "max_sm_clock_mhz": newest.max_sm_clock_mhz,
        "power_limit_watts": newest.power_limit_watts, "noisy": device.is_noisy,
        "worse": [
            {"quantity": one.quantity, "since": one.since.experiment_id,
             "from": one.step.before.value, "to": one.step.after.value,
             "p_value": one.step.p_value}
            for one in device.worsenings
        ],
        "experiments": [
            {"experiment_id": one.experiment_id,
             "submitted": None if pd.isna(one.submitted) else one.submitted.isoformat(),
             **{quantity: one.value(quantity) for quantity in QUANTITIES}}
            for one in device.moments
        ],
    }  # fmt: skip
