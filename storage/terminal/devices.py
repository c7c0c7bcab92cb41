"""Devices for the terminal: what each is, how noisy and fast it is, and what became worse."""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from runner.texts import printable
from storage.library.devices import QUANTITIES, Device, Quantity, Worsening
from storage.numbers.formats import DASH
from storage.numbers.recorded import NUMBERS
from storage.numbers.sentences import Sentence, figure, said

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


def level(device: Device, quantity: Quantity) -> float | None:
    """That of the newest experiment that tells."""
    known = device.series(quantity)
    return known[-1].value(quantity) if known else None


def report(found: Sequence[Device]) -> str:
    """A line for each device, and one for each thing that became worse."""
    if not found:
        return "no device is known yet: an experiment that is over tells of the one it ran on"
    lines = []
    for one in found:
        told = ", ".join(
            f"{NUMBERS[quantity].title.lower()} "
            f"{DASH if value is None else NUMBERS[quantity].format(value)}"
            for quantity in QUANTITIES
            if (value := level(one, quantity)) is not None or quantity == QUANTITIES[0]
        )
        lines.append(f"{one.name}, {one.id} of {one.host}: {told} "
                     f"({len(one.moments)} experiments)")  # fmt: skip
        lines += [f"  {worsening_words(worse)}" for worse in one.worsenings]
    return "\n".join(map(printable, lines))


def as_json(found: Sequence[Device]) -> str:
    """A list of devices, each with its moments and what became worse."""
    return json.dumps([_told(one) for one in found], indent=1)


def _told(device: Device) -> dict[str, Any]:
    newest = device.newest
    return {
        "host": device.host, "id": device.id, "name": device.name, "driver": newest.driver,
        "max_sm_clock_mhz": newest.max_sm_clock_mhz,
        "power_limit_watts": newest.power_limit_watts,
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
