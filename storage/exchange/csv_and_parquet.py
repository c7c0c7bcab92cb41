"""Exports whole tables as CSV or Parquet, with all digits."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from breakeven.storage.numbers.formats import csv_cell
from breakeven.storage.numbers.metrics import NUMBERS

NAN_IS_A_VALUE = ("loss", "value")
"""Columns without missing values, in which NaN is a diverged loss. In other columns NaN is missing,
except in object columns of numbers: there None is missing, and NaN is a value."""
INVISIBLE_CHARACTERS = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+"
)
"""Characters of control and of direction, and surrogates, which UTF-8 cannot encode."""


@dataclass(frozen=True)
class TableFormat:
    """A file format of tables: its title, suffix, MIME type and writer."""

    title: str
    suffix: str
    mime: str
    to_bytes: Callable[[pd.DataFrame], bytes]


def to_csv(frame: pd.DataFrame) -> bytes:
    """UTF-8 with a header; missing values are empty cells, a diverged loss is NaN. Texts, also in
    the header, are never formulas in a spreadsheet."""
    exported = frame.copy()
    for position, name in enumerate(exported.columns):
        values = exported.iloc[:, position]
        if name in NAN_IS_A_VALUE:
            exported.isetitem(position, values.astype(object).where(values.notna(), "NaN"))
        elif name in NUMBERS and values.dtype == object:
            exported.isetitem(position, values.map(_csv_cell_with_nan))
        elif not pd.api.types.is_numeric_dtype(values):
            exported.isetitem(position, values.astype(object).map(csv_cell))
    exported = exported.rename(columns=csv_cell)
    text: str = exported.to_csv(index=False)
    return text.encode()


def to_parquet(frame: pd.DataFrame) -> bytes:
    """Keeps the types of numbers, texts and times; missing values are null, a diverged loss is NaN.
    An object column of mixed types, such as a number and a word, becomes text."""
    columns = [
        _arrow_array(str(name), frame.iloc[:, position])
        for position, name in enumerate(frame.columns)
    ]
    file = BytesIO()
    pq.write_table(pa.table(columns, names=[str(name) for name in frame.columns]), file)
    return file.getvalue()


TABLE_FORMATS = {
    table_format.suffix: table_format
    for table_format in (
        TableFormat("CSV", "csv", "text/csv", to_csv),
        TableFormat("Parquet", "parquet", "application/vnd.apache.parquet", to_parquet),
    )
}
"""Formats by suffix."""


def _csv_cell_with_nan(value: object) -> object:
    return "NaN" if isinstance(value, float) and math.isnan(value) else csv_cell(value)


def _arrow_array(name: str, values: pd.Series) -> pa.Array:
    """An Arrow array; in an object column only None is missing, and NaN is a measured value."""
    arrow_input = list(values) if values.dtype == object else values
    try:
        return pa.array(
            arrow_input, from_pandas=values.dtype != object and name not in NAN_IS_A_VALUE
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
        texts = [
            None if _is_missing(value) else INVISIBLE_CHARACTERS.sub(" ", str(value))
            for value in values
        ]
        return pa.array(texts, type=pa.string())


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NaT or value is pd.NA
