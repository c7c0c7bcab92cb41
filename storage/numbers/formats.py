"""How measured values are written for people; what is undefined is a dash."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pandas as pd

DASH = "\N{EN DASH}"
"""Stands for what is undefined or was not measured."""
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a formula begins with, or what a spreadsheet skips in front of one."""
MILLISECONDS_BELOW = 0.9995
"""Below this many seconds, three digits stay under 1000 ms."""
WHOLE_BELOW = 2**24
"""From here on each number of single precision is whole, so that its last digits say nothing."""


class Unit(NamedTuple):
    """A unit of a quantity, and which numbers are written in it."""

    size: float
    written_below: float
    """Numbers of so many units or more are written in the next unit."""
    write: Callable[[float], str]
    name: str


def digits(number: float, count: int) -> str:
    """So many significant digits. Keeps zeros at the end, so that columns align: `36.0`, `23.5`."""
    return f"{number:#.{count}g}".removesuffix(".")


def format_loss(value: Any) -> str:
    """Four digits; a loss that is not finite is a finding, so only None is a dash."""
    if value is None:
        return DASH
    return "NaN" if math.isnan(value) else digits(value, 4)


def _dash_if_undefined(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """A format that writes None, NaN and the like as a dash."""

    def written(value: Any) -> str:
        return DASH if pd.isna(value) else write(value)

    return written


def in_units(number: float, units: Sequence[Unit]) -> str:
    """In the first unit in which the rounded number stays below the next unit."""
    *smaller, largest = units
    for unit in smaller:
        written = unit.write(number / unit.size)
        if abs(float(written.replace(",", ""))) < unit.written_below:
            return f"{written} {unit.name}"
    return f"{largest.write(number / largest.size)} {largest.name}"


def _three_digits(number: float) -> str:
    return digits(number, 3) if abs(number) < 999.5 else f"{number:,.0f}"


@_dash_if_undefined
def format_seconds(seconds: Any) -> str:
    """0.850 ms, 12.3 ms, 1.23 s, 95.1 s, 3 min 20 s, 2 h 5 min; infinite time is never."""
    if math.isinf(seconds):
        return "never"
    if seconds == 0:
        return "0 s"
    if abs(seconds) < 119.5:
        return in_units(seconds, SECONDS)
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


SECONDS: tuple[Unit, ...] = (
    Unit(1e-3, 1000, _three_digits, "ms"),
    Unit(1, math.inf, _three_digits, "s"),
)
BYTES: tuple[Unit, ...] = (
    Unit(2**20, 1024, "{:.1f}".format, "MiB"),
    Unit(2**30, math.inf, "{:.2f}".format, "GiB"),
)
FLOPS: tuple[Unit, ...] = (
    Unit(1e6, 1000, _three_digits, "MFLOP/s"),
    Unit(1e9, 1000, _three_digits, "GFLOP/s"),
    Unit(1e12, math.inf, _three_digits, "TFLOP/s"),
)
JOULES: tuple[Unit, ...] = (
    Unit(1e-3, 1000, _three_digits, "mJ"),
    Unit(1, 1000, _three_digits, "J"),
    Unit(1e3, math.inf, _three_digits, "kJ"),
)
format_bytes = _dash_if_undefined(lambda num_bytes: in_units(num_bytes, BYTES))
"""In MiB (2^20 bytes), from 1 GiB on in GiB (2^30)."""
format_count = _dash_if_undefined(lambda count: "never" if math.isinf(count) else f"{count:,.0f}")
"""A whole number with thousands separated; an infinite number of steps is never reached."""
format_ratio = _dash_if_undefined("{:.2f}x".format)
format_correlation = _dash_if_undefined("{:.2f}".format)
format_multiple = _dash_if_undefined(
    lambda multiple: (
        "infinite"
        if not math.isfinite(multiple)
        else f"{multiple:,.0f}"
        if abs(multiple) >= 99.5
        else digits(multiple, 2)
    )
)
format_share = _dash_if_undefined(lambda share: f"{share * 100:.1f} %")
format_rate = _dash_if_undefined(lambda rate: f"{rate:,.0f}" if rate >= 99.95 else digits(rate, 3))
format_flops = _dash_if_undefined(lambda rate: in_units(rate, FLOPS))
"""950 MFLOP/s, 12.3 GFLOP/s, 1.23 TFLOP/s, 416 TFLOP/s, 1,020 TFLOP/s."""
format_energy = _dash_if_undefined(lambda joules: in_units(joules, JOULES))
"""820 mJ, 12.3 J, 1.23 kJ, 1,020 kJ."""
format_epochs = _dash_if_undefined(
    lambda epochs: "never" if math.isinf(epochs) else f"{epochs:,.{1 if epochs < 9.95 else 0}f}"
)
"""Epochs until the break-even, with a tenth below 10: 2.0, 2.5, 16; infinite is never."""
format_passes = _dash_if_undefined(
    lambda passes: f"{passes:,.0f}" if passes == round(passes) else format_epochs(passes)
)
"""Planned epochs, of which a whole number is exact: 1, 2.5, 16 or 1,333."""


@_dash_if_undefined
def format_number(number: Any) -> str:
    """Four digits, very large and very small numbers with an exponent; whole numbers below
    `WHOLE_BELOW` with all digits."""
    if number != round(number, 0):
        return digits(number, 4)
    return f"{number:.0f}" if abs(number) < WHOLE_BELOW else f"{number:.4g}"


format_p_value = _dash_if_undefined(lambda p: "<0.001" if p < 0.001 else f"{p:.3f}")
format_text = _dash_if_undefined(str)
VERDICT_WORDS = {"holds": "matches", "unsure": "inconclusive", "cancelled": "stopped"}
"""Verdicts as people read them, where files and programs have another word."""
format_verdict = _dash_if_undefined(lambda verdict: VERDICT_WORDS.get(verdict, str(verdict)))


def count_of(count: int, noun: str) -> str:
    """`1 device`, `3 devices`, `1,000 lines`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def csv_cell(value: Any) -> Any:
    """A value for a cell of a CSV file. A text that a spreadsheet would take for a formula, and
    perhaps act upon, gets an apostrophe in front, which makes it a text there, too.

    A lone return would end the row for some readers, and is not always quoted: it becomes a line
    break, which is.
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if value.startswith(FORMULA_STARTS) and not _is_number(value) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
