"""Lets results leave: any frame as CSV, all of it."""

import pandas as pd

from storage.numbers.formats import cell

KEPT_NAN = ("loss",)
"""Columns in which NaN is a value, a diverged loss, and not a missing one."""


def to_csv(frame: pd.DataFrame) -> bytes:
    """UTF-8, with a header; missing values are empty cells, a diverged loss reads NaN. No text, in
    the header neither, is a formula to a spreadsheet."""
    shown = frame.copy()
    for name in shown.columns.intersection(KEPT_NAN):
        shown[name] = shown[name].astype(object).where(shown[name].notna(), "NaN")
    for number, dtype in enumerate(shown.dtypes):
        if not pd.api.types.is_numeric_dtype(dtype):
            shown.isetitem(number, shown.iloc[:, number].astype(object).map(cell))
    shown = shown.rename(columns=cell)
    text: str = shown.to_csv(index=False)
    return text.encode()
