"""Histories of all devices in finished experiments: noise and speed over time, and lasting changes
for the worse.

`docs/metrics.md` defines the numbers. Steps are computed as in trends, with the same rate of false
alarms.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from breakeven.storage.caches import memo
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog, catalog_version, summaries
from breakeven.storage.library.summary import DeviceReading
from breakeven.storage.statistics.speedups import MIN_MARGIN
from breakeven.storage.statistics.steps import FEWEST, Step, divide

Quantity = Literal["device_noise", "device_stray", "device_pace"]
QUANTITIES: tuple[Quantity, ...] = ("device_noise", "device_stray", "device_pace")
LEAST_WORSE: dict[Quantity, float] = {
    "device_noise": 1.5, "device_stray": 1.5, "device_pace": 1.03,
}  # fmt: skip
"""The smallest reported ratio of the present level to the earlier one: smaller changes affect no
verdict."""
SMALLEST = 1e-4
"""Smaller noise counts as this value, because logarithms would show steps in negligible noise."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A device in one experiment. None means unknown."""

    experiment_id: str
    name: str
    submitted: Any
    """A UTC timestamp, or NaT."""
    reading: DeviceReading
    pace: float | None
    """The baseline's step time over the median for the same workload on this device."""

    def value(self, quantity: Quantity) -> float | None:
        readings = {"device_noise": self.reading.noise, "device_stray": self.reading.stray,
                "device_pace": self.pace}[quantity]  # fmt: skip
        return None if readings is None or not math.isfinite(readings) else max(readings, SMALLEST)


@dataclass(frozen=True, kw_only=True)
class Worsening:
    """A present level of a device that is worse than the level before."""

    quantity: Quantity
    since: Moment
    step: Step


@dataclass(frozen=True)
class DeviceHistory:
    """One device of one machine, with its experiments in the order of time."""

    host: str
    id: str
    name: str
    moments: tuple[Moment, ...]

    @property
    def newest(self) -> DeviceReading:
        return self.moments[-1].reading

    def series(self, quantity: Quantity) -> list[Moment]:
        """The moments with a known value of this quantity."""
        return [one for one in self.moments if one.value(quantity) is not None]

    def level(self, quantity: Quantity) -> float | None:
        """The newest known value."""
        known = self.series(quantity)
        return known[-1].value(quantity) if known else None

    @property
    def is_noisy(self) -> bool:
        """Whether equal runs differed by more than the smallest margin, in the newest comparison
        with known noise."""
        return (self.level("device_noise") or 0.0) > MIN_MARGIN

    @property
    def can_worsen(self) -> bool:
        """Whether there are enough values to find a worsening."""
        return any(len(self.series(quantity)) >= FEWEST for quantity in QUANTITIES)

    @cached_property
    def worsenings(self) -> tuple[Worsening, ...]:
        """Quantities whose present level is worse than the level before."""
        found = (self._worsening(quantity) for quantity in QUANTITIES)
        return tuple(one for one in found if one is not None)

    def _worsening(self, quantity: Quantity) -> Worsening | None:
        known = self.series(quantity)
        _, steps = divide([one.value(quantity) or SMALLEST for one in known])
        if not steps or steps[-1].ratio < LEAST_WORSE[quantity]:
            return None
        return Worsening(quantity=quantity, since=known[steps[-1].index], step=steps[-1])


DEVICE = ["host", "id", "device"]
"""Columns that identify a device."""


@memo(catalog_version, shared=True)
def devices(store: Store) -> tuple[DeviceHistory, ...]:
    """All devices, those with the newest experiments first."""
    read = pd.DataFrame([
        {"experiment_id": experiment_id, "host": one.host, "id": one.id, "device": one.name,
         "work": f"{summary.workload} {one.torch}", "seconds": one.step_seconds, "reading": one}
        for experiment_id, summary in reversed(summaries(store).items())
        for one in summary.devices
    ])  # fmt: skip
    if read.empty:
        return ()
    own = catalog(store).dropna(subset="experiment_id").set_index("experiment_id")
    read = read.join(own[["name", "submitted"]], on="experiment_id")
    # Compared with the usual time of the same work, if that ran more than once.
    seconds = read["seconds"].astype(float).where(lambda times: times > 0)
    same = seconds.groupby([read[name] for name in (*DEVICE, "work")])
    pace = (seconds / same.transform("median")).where(same.transform("count") > 1)
    read["pace"] = pace.astype(object).where(pace.notna(), None)
    of_moment = ["experiment_id", "name", "submitted", "reading", "pace"]
    found = [
        DeviceHistory(host, id, name, tuple(
            Moment(**{str(key): value for key, value in one.items()})
            for one in mine[of_moment].to_dict("records")
        ))
        for (host, id, name), mine in read.groupby(DEVICE, sort=False)
    ]  # fmt: skip
    return tuple(reversed(sorted(found, key=_last_seen)))


def _last_seen(device: DeviceHistory) -> tuple[float, str, str]:
    submitted = device.moments[-1].submitted
    return (0.0 if pd.isna(submitted) else submitted.timestamp(), device.host, device.id)


def history_table(device: DeviceHistory) -> pd.DataFrame:
    """A row for each experiment of a device, oldest first."""
    return pd.DataFrame([
        {"experiment_id": one.experiment_id, "name": one.name, "submitted": one.submitted,
         **{quantity: one.value(quantity) for quantity in QUANTITIES}}
        for one in device.moments
    ])  # fmt: skip
