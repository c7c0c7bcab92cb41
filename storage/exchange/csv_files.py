"""Lets results leave: any frame as CSV, all of it."""

import math

import pandas as pd

from storage.numbers.formats import cell
from storage.numbers.recorded import NUMBERS

ALWAYS_RECORDED = ("loss", "value")
"""Columns in which every row was recorded: NaN is a value in them, a diverged loss, and not a
missing one. In other columns of numbers only None tells what is missing from what is NaN."""


def to_csv(frame: pd.DataFrame) -> bytes:
    """UTF-8, with a header; missing values are empty cells, a diverged loss reads NaN. No text, in
    the header neither, is a formula to a spreadsheet."""
    shown = frame.copy()
    for number, name in enumerate(shown.columns):
        values = shown.iloc[:, number]
        if name in ALWAYS_RECORDED:
            shown.isetitem(number, values.astype(object).where(values.notna(), "NaN"))
        elif name in NUMBERS and values.dtype == object:
            shown.isetitem(number, values.map(_with_nan))
        elif not pd.api.types.is_numeric_dtype(values):
            shown.isetitem(number, values.astype(object).map(cell))
    shown = shown.rename(columns=cell)
    text: str = shown.to_csv(index=False)
    return text.encode()


def _with_nan(value: object) -> object:
    return "NaN" if isinstance(value, float) and math.isnan(value) else cell(value)
