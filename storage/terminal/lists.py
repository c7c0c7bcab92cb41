"""The list of experiments and that of devices, with sentences about devices, for the terminal."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import pandas as pd

from breakeven.runner.commands.filters import Filter
from breakeven.runner.texts import printable
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog, chosen, compute
from breakeven.storage.library.devices import QUANTITIES, DeviceHistory, Quantity, Worsening
from breakeven.storage.numbers.formats import DASH, aligned_table, count_of
from breakeven.storage.numbers.metrics import METRICS, NUMBERS
from breakeven.storage.numbers.sentences import Sentence, figure, fill
from breakeven.storage.statistics.speedups import Ratio, ratio_text
from breakeven.storage.terminal.as_json import NEVER, plain

STEP_SECONDS = 5.0
"""Seconds before the command shows the progress of computing summaries."""
LONGEST_NAME = 40
HEADER = ("experiment", "name", "state", "when (UTC)", "model", "device", "torch", "best",
          "speedup (95 %)", "speed", "parity", "compile", "break-even", "tags")  # fmt: skip
LEFT_OUT = ("text", "known")


def listed(store: Store, wanted: Filter) -> pd.DataFrame:
    """The rows that match a filter, after computing their summaries, which may take some time."""
    candidates = chosen(catalog(store), wanted.before_comparing)["experiment_id"].dropna()
    while left := compute(store, STEP_SECONDS, only=list(candidates)):
        sys.stderr.write(f"comparing; {left} experiments to go\n")
    return chosen(catalog(store), wanted)


def list_json(frame: pd.DataFrame) -> str:
    """A list of objects, one per line; undefined values are null, infinite ones are "never"."""
    rows = plain(frame.drop(columns=list(LEFT_OUT)), NEVER)
    return "[" + ",\n ".join(map(json.dumps, rows)) + "]"


def list_table(frame: pd.DataFrame) -> str:
    """One line per experiment."""
    if frame.empty:
        return "no experiment fits"
    cells = [_cells(row) for row in frame.to_dict("records")]
    return "\n".join(aligned_table([list(HEADER), *cells], len(HEADER)))


def _cells(row: dict[str, Any]) -> list[str]:
    speedup = None
    if row["speedup"] is not None:
        low, high = row["speedup_low"], row["speedup_high"]
        speedup = Ratio(median=row["speedup"], low=low, high=high, p_value=None, n=0)
    when = row["submitted"]
    pays = row["break_even_verdict"]
    words = (
        row["experiment_id"] or "(imported)",
        printable(row["name"], LONGEST_NAME),
        row["state"].replace("_", " "),
        DASH if pd.isna(when) else when.strftime("%Y-%m-%d %H:%M"),
        row["model"],
        row["device"],
        row["torch"],
        row["best"],
        ratio_text(speedup),
        METRICS["speed_verdict"].format(row["verdict"]),
        METRICS["parity"].format(row["parity"]),
        METRICS["compile_seconds"].format(row["compile_seconds"]),
        METRICS["break_even_verdict"].format(pays)
        if pays in ("never", "unsure")
        else METRICS["break_even_steps"].format(row["break_even_steps"]),
        " ".join(f"#{tag}" for tag in row["tags"]),
    )
    return [DASH if word is None else printable(word) for word in words]


BECAME: dict[Quantity, str] = {
    "device_noise": "noisier", "device_stray": "less steady", "device_pace": "slower",
}  # fmt: skip


def worsening_words(found: Worsening) -> Sentence:
    """`noisier since 3 November 2026: 1.2 % to 4.0 %, after the last 5 experiments`."""
    step, when = found.step, found.since.submitted
    day = "an experiment of unknown time" if pd.isna(when) else f"{when:%Y-%m-%d %H:%M}"
    return fill("{became} since {day}: {before} to {after}, over its last {count:d} experiments",
                became=BECAME[found.quantity], day=day,
                before=figure(found.quantity, step.before.value),
                after=figure(found.quantity, step.after.value),
                count=step.after.last - step.after.first + 1)  # fmt: skip


def noisy_words(found: DeviceHistory) -> Sentence:
    """The effect of a device's noise on comparisons."""
    return fill("two equal runs differ by up to {noise:device_noise}, and speedups below that are "
                "not called faster or slower", noise=found.level("device_noise"))  # fmt: skip


def devices_verdict(found: Sequence[DeviceHistory]) -> str:
    """The numbers of noisy devices and of devices that became worse, as far as known."""
    noisy, worse = sum(one.is_noisy for one in found), sum(bool(one.worsenings) for one in found)
    if noisy:
        words = f"{count_of(noisy, 'device')} {'is' if noisy == 1 else 'are'} noisy"
    elif any(one.level("device_noise") is not None for one in found):
        words = "No device is noisy"
    else:
        words = "How noisy the devices are is not known"
    if worse:
        return f"{words}, {count_of(worse, 'device')} became worse"
    return f"{words}, none became worse" if any(one.can_worsen for one in found) else words


def devices_report(found: Sequence[DeviceHistory]) -> str:
    """A line for each device, and one for each worsening."""
    if not found:
        return "no device is known yet: an experiment that is over adds the device that it ran on"
    lines = []
    for one in found:
        levels = ", ".join(
            f"{NUMBERS[quantity].title.lower()} "
            f"{DASH if value is None else NUMBERS[quantity].format(value)}"
            for quantity in QUANTITIES
            if (value := one.level(quantity)) is not None or quantity == QUANTITIES[0]
        )
        lines.append(f"{one.name}, {one.id} of {one.host}: {levels} "
                     f"({len(one.moments)} experiments)")  # fmt: skip
        lines += [f"  noisy: {noisy_words(one)}"] if one.is_noisy else []
        lines += [f"  {worsening_words(worse)}" for worse in one.worsenings]
    return "\n".join(map(printable, lines))


def devices_json(found: Sequence[DeviceHistory]) -> str:
    """A list of devices, each with its experiments and worsenings."""
    return json.dumps(plain([_as_dict(one) for one in found]), indent=1)


def _as_dict(device: DeviceHistory) -> dict[str, Any]:
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
            {"experiment_id": one.experiment_id, "submitted": one.submitted,
             **{quantity: one.value(quantity) for quantity in QUANTITIES}}
            for one in device.moments
        ],
    }  # fmt: skip
