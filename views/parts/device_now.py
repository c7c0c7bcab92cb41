"""A quiet word on how busy the machine is: before a launch, and while runs go on."""

import os

import pandas as pd

from breakeven.runner.machine.cpus import CpuAllowance
from breakeven.storage.comparison.device_doubts import SHARED_CPU
from breakeven.storage.numbers.recorded import NUMBERS
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.links import linked

BUSY_LOAD = 0.5
"""Load average over usable CPUs from which on somebody else is probably at work."""
LATEST = 5
"""Samples that tell how it is now; one may be too short for the kernel's counting."""
STATES = ("sm_clock_mhz", "temperature_celsius", "power_watts")


def before_launch(allowance: CpuAllowance, load: float) -> Markdown:
    """What else the machine is doing, if it does much; `load`: its load average."""
    if load < BUSY_LOAD * allowance.usable:
        return ""
    shown = linked("load_average", f"load average {load:.1f}")
    return (
        f"This machine is busy: {shown} on {allowance.usable:,} CPUs over the last minute. What "
        "else runs here makes the runs slower and their times less certain."
    )


def load_average() -> float:
    """0 where the system does not tell."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return 0.0


def while_running(samples: pd.DataFrame, *, on_cpu: bool) -> Markdown:
    """How the device is, and who else uses it, by the latest of `storage.queries.device_samples`.
    `on_cpu`: whether the runs compute there, so that others are those that take its time.

    `1,980 MHz, 61 °C, 412 W; held back: power cap; other processes: python (pid 4711)`.
    """
    blocks = samples[samples["round"].notna()].sort_values("time")
    latest = blocks.tail(LATEST)
    if latest.empty:
        return ""
    last = latest.iloc[-1]
    told = [name for name in STATES if pd.notna(last[name])]
    state = ", ".join(
        linked(name, f"{NUMBERS[name].format(last[name])} {NUMBERS[name].unit}") for name in told
    )
    held_back = sorted({name for names in latest["throttled_by"] for name in names or []})
    parts = [state] if state else []
    if held_back:
        parts.append(f"{linked('held_back', 'held back')}: {inert(', '.join(held_back))}")
    # On CUDA not every block has a look at other processes.
    looks = blocks[blocks["processes"].notna()].tail(LATEST)
    if others := _others(looks, on_cpu=on_cpu):
        parts.append(others)
    return "; ".join(parts)


def _others(looks: pd.DataFrame, *, on_cpu: bool) -> Markdown:
    seen = {one["pid"]: one["name"] for listed in looks["processes"] for one in listed}
    names = ", ".join(f"{inert(name or '?')} (pid {inert(pid)})" for pid, name in seen.items())
    if not on_cpu:
        return f"other processes on the device: {names}" if names else ""
    capacity = (looks["wall_seconds"] * looks["cpus"]).sum()
    taken = (looks["busy_cpu_seconds"] - looks["own_cpu_seconds"]).sum(min_count=1)
    share = float(taken / capacity) if capacity and pd.notna(taken) else 0.0
    if share <= SHARED_CPU:
        return ""
    shown = linked("others_cpu_share", NUMBERS["others_cpu_share"].format(share))
    return f"other processes take {shown} of the CPU time{f': {names}' if names else ''}"
