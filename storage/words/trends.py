"""Sentences about trends; pages and the terminal show the same."""

import math

import pandas as pd

from breakeven.runner.protocol.states import state_words
from breakeven.runner.texts import printable
from breakeven.storage.library.trends import Failure, Point, Series
from breakeven.storage.numbers.formats import DASH, format_share
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.lasting_changes import Step


def change_text(series: Series, step: Step) -> str:
    """`worse since 2026-11-20 (EXPERIMENT): ` and `sizes_text`."""
    point = series.points[step.index]
    word = "worse" if series.worsening(step) > 0 else "better"
    since = f"{when_text(point)} ({point.experiment_id})"
    return f"{word} since {since}: {sizes_text(series, step)}"


def sizes_text(series: Series, step: Step) -> str:
    """`1.60x to 1.42x, -11.2 % (-12.0 % to -10.1 %); torch 2.12 to 2.13`."""
    write = METRICS[series.quantity].format
    low, high = step.ratio_interval
    interval = "" if low == high else f" ({_change(low)} to {_change(high)})"
    versions = [
        f"{name} {before or DASH} to {after or DASH}"
        for name, (before, after) in series.changed(step).items()
    ]
    changed = f"; {', '.join(versions)}" if versions else ""
    return (
        f"{write(step.before.value)} to {write(step.after.value)}, {_change(step.ratio)}{interval}"
        f"{printable(changed)}"
    )


def out_of_line_text(series: Series) -> str:
    """A sentence on a newest point outside its level."""
    write = METRICS[series.quantity].format
    newest = series.points[-1]
    level = series.levels[-1]
    before = math.exp(sum(level.logs[:-1]) / (len(level.logs) - 1))
    return (
        f"the newest, {write(newest.value)}, is out of line with {write(before)} before; run it "
        "again, because one experiment alone is no step"
    )


def failure_text(failure: Failure) -> str:
    """A sentence on a newest experiment without a number."""
    state = state_words(failure.state)
    how = "without this number" if state == "finished" else "so it has no number"
    return f"the newest experiment ({failure.experiment_id}) is {state}, {how}"


def when_text(point: Point) -> str:
    """The day of an experiment."""
    return DASH if pd.isna(point.submitted) else point.submitted.strftime("%Y-%m-%d")


def _change(ratio: float) -> str:
    return f"{'+' if ratio >= 1 else '-'}{format_share(abs(ratio - 1))}"
