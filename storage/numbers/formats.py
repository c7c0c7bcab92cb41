"""How measured values are written for people; what is undefined is a dash."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

DASH = "\N{EN DASH}"
"""Stands for what is undefined or was not measured."""
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a formula begins with, or what a spreadsheet skips in front of one."""
MILLISECONDS_BELOW = 0.9995
"""Seconds; rounded to three digits, from here on it is a second."""
Unit = tuple[float, float, Callable[[float], str], str]
"""How much one is, up to how many of them are written, how their number is, and its name."""


def digits(number: float, count: int) -> str:
    """So many significant digits, zeros at the end among them: `36.0` stands under `23.5`."""
    return f"{number:#.{count}g}".removesuffix(".")


def format_loss(value: Any) -> str:
    """Four digits; a loss that is not finite is a finding, so only None is a dash."""
    if value is None:
        return DASH
    return "NaN" if math.isnan(value) else digits(value, 4)


def _defined(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """A format that writes None, NaN and the like as a dash."""

    def written(value: Any) -> str:
        return DASH if pd.isna(value) else write(value)

    return written


def in_units(number: float, units: Sequence[Unit]) -> str:
    """In the first unit of which fewer are written, once rounded, than where the next one begins:
    what rounding lifts over the border is one of the next."""
    *smaller, (largest, _, write_largest, last) = units
    for factor, most, write, name in smaller:
        written = write(number / factor)
        if abs(float(written.replace(",", ""))) < most:
            return f"{written} {name}"
    return f"{write_largest(number / largest)} {last}"


def _three(number: float) -> str:
    return digits(number, 3) if abs(number) < 999.5 else f"{number:,.0f}"


@_defined
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


SECONDS: tuple[Unit, ...] = ((1e-3, 1000, _three, "ms"), (1, math.inf, _three, "s"))
BYTES: tuple[Unit, ...] = (
    (2**20, 1024, "{:.1f}".format, "MiB"),
    (2**30, math.inf, "{:.2f}".format, "GiB"),
)
FLOPS: tuple[Unit, ...] = (
    (1e6, 1000, _three, "MFLOP/s"),
    (1e9, 1000, _three, "GFLOP/s"),
    (1e12, math.inf, _three, "TFLOP/s"),
)
JOULES: tuple[Unit, ...] = (
    (1e-3, 1000, _three, "mJ"),
    (1, 1000, _three, "J"),
    (1e3, math.inf, _three, "kJ"),
)
format_bytes = _defined(lambda num_bytes: in_units(num_bytes, BYTES))
"""In MiB (2^20 bytes), from 1 GiB on in GiB (2^30)."""
format_count = _defined(lambda count: "never" if math.isinf(count) else f"{count:,.0f}")
"""A whole number with thousands separated; an infinite number of steps is never reached."""
format_ratio = _defined("{:.2f}x".format)
format_correlation = _defined("{:.2f}".format)
format_multiple = _defined(
    lambda multiple: (
        "infinite"
        if not math.isfinite(multiple)
        else f"{multiple:,.0f}"
        if abs(multiple) >= 99.5
        else digits(multiple, 2)
    )
)
format_share = _defined(lambda share: f"{share * 100:.1f} %")
format_rate = _defined(lambda rate: f"{rate:,.0f}" if rate >= 99.95 else digits(rate, 3))
format_flops = _defined(lambda rate: in_units(rate, FLOPS))
"""950 MFLOP/s, 12.3 GFLOP/s, 1.23 TFLOP/s, 416 TFLOP/s, 1,020 TFLOP/s."""
format_energy = _defined(lambda joules: in_units(joules, JOULES))
"""820 mJ, 12.3 J, 1.23 kJ, 1,020 kJ."""
format_epochs = _defined(
    lambda epochs: "never" if math.isinf(epochs) else f"{epochs:,.{1 if epochs < 9.95 else 0}f}"
)
format_passes = _defined(
    lambda passes: f"{passes:,.0f}" if passes == round(passes) else format_epochs(passes)
)
"""How often data are passed over: 1, 2.5, 16 or 1,333 times."""
format_number = _defined(
    lambda number: f"{number:.4g}" if number == round(number, 0) else digits(number, 4)
)
"""Four digits, very large and very small ones with an exponent; whole numbers as they are."""
format_p_value = _defined(lambda p: "<0.001" if p < 0.001 else f"{p:.3f}")
format_text = _defined(str)
VERDICT_WORDS = {"holds": "matches", "unsure": "inconclusive", "cancelled": "stopped"}
"""Verdicts as people read them, where files and programs have another word."""
format_verdict = _defined(lambda verdict: VERDICT_WORDS.get(verdict, str(verdict)))


def count_of(count: int, noun: str) -> str:
    """`1 device`, `3 devices`, `1,000 lines`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def cell(value: Any) -> Any:
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
