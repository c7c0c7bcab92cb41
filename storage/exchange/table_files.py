"""Lets tables leave: any frame, all of it, as CSV, Parquet, JSON, Markdown and LaTeX.

CSV, Parquet and JSON are for programs and hold every digit; Markdown and LaTeX are for readers and
write numbers as pages do.
"""

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from storage.numbers.formats import DASH, cell
from storage.numbers.recorded import NUMBERS

ALWAYS_RECORDED = ("loss", "value")
"""Columns in which every row was recorded: NaN is a value in them, a diverged loss, and not a
missing one. In other columns of numbers only None tells what is missing from what is NaN."""
MARKDOWN = re.compile(r"[\\`*_{}\[\]<>()#!|~$&@:^=]|(?<=www)\.", re.I)
"""What Markdown could act upon; a stroke in front of it makes it a character."""
LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    DASH: "--",
    **{one: f"\\{one}" for one in "&%$#_{}"},
}  # fmt: skip
UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


@dataclass(frozen=True)
class TableFormat:
    """How a table leaves, how its file ends, and what browsers call it."""

    title: str
    suffix: str
    mime: str
    to_bytes: Callable[[pd.DataFrame], bytes]


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


def to_parquet(frame: pd.DataFrame) -> bytes:
    """Columns of numbers, texts and times as they are; missing is null, a diverged loss NaN. What
    else an object column mixes, such as a number and a word, is written as text."""
    columns = [_arrow(str(name), frame.iloc[:, at]) for at, name in enumerate(frame.columns)]
    file = BytesIO()
    pq.write_table(pa.table(columns, names=[str(name) for name in frame.columns]), file)
    return file.getvalue()


def to_json(frame: pd.DataFrame) -> bytes:
    """A list with an object for each row; missing is null, NaN and infinity are texts, as in the
    journals (docs/events.md)."""
    names = [str(name) for name in frame.columns]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*_values(frame), strict=True)]
    return (json.dumps(rows, indent=1, default=str) + "\n").encode(errors="replace")


def to_markdown(frame: pd.DataFrame) -> bytes:
    """A table of GitHub's Markdown; no text in it is a link, a picture or HTML."""
    heads, rows, to_the_right = _for_readers(frame)
    rule = ["---:" if right else "---" for right in to_the_right]
    escaped = [[_markdown(text) for text in row] for row in (heads, *rows)]
    lines = [f"| {' | '.join(row)} |" for row in (escaped[0], rule, *escaped[1:])]
    return ("\n".join(lines) + "\n").encode(errors="replace")


def to_latex(frame: pd.DataFrame) -> bytes:
    """A `tabular` with the rules of the package booktabs; no text in it is a command."""
    heads, rows, to_the_right = _for_readers(frame)
    sides = "".join("r" if right else "l" for right in to_the_right)
    head, *body = [f"{' & '.join(map(_latex, row))} \\\\" for row in (heads, *rows)]
    lines = [f"\\begin{{tabular}}{{{sides}}}", "\\toprule", head, "\\midrule", *body,
             "\\bottomrule", "\\end{tabular}"]  # fmt: skip
    return ("\n".join(lines) + "\n").encode(errors="replace")


TABLE_FORMATS = {
    one.suffix: one
    for one in (
        TableFormat("CSV", "csv", "text/csv", to_csv),
        TableFormat("Parquet", "parquet", "application/vnd.apache.parquet", to_parquet),
        TableFormat("JSON", "json", "application/json", to_json),
        TableFormat("Markdown", "md", "text/markdown", to_markdown),
        TableFormat("LaTeX", "tex", "application/x-tex", to_latex),
    )
}
"""By the ending of a file."""


def _with_nan(value: object) -> object:
    return "NaN" if isinstance(value, float) and math.isnan(value) else cell(value)


def _arrow(name: str, values: pd.Series) -> pa.Array:
    """In an object column only None is missing, and NaN is what was measured."""
    own = list(values) if values.dtype == object else values
    try:
        return pa.array(own, from_pandas=values.dtype != object and name not in ALWAYS_RECORDED)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
        texts = [None if _is_missing(value) else _plain(str(value)) for value in values]
        return pa.array(texts, type=pa.string())


def _values(frame: pd.DataFrame) -> Iterator[list[Any]]:
    """Column by column, as JSON has them."""
    for at, name in enumerate(frame.columns):
        values = frame.iloc[:, at]
        nan_is_missing = values.dtype != object and name not in ALWAYS_RECORDED
        yield [_json_value(value, nan_is_missing) for value in values.astype(object)]


def _json_value(value: Any, nan_is_missing: bool) -> Any:
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return None if nan_is_missing else "NaN"
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _is_missing(value: Any) -> bool:
    return value is None or value is pd.NaT or value is pd.NA


def _for_readers(frame: pd.DataFrame) -> tuple[list[str], list[list[str]], list[bool]]:
    """Titles, rows as they are read, and which columns hold numbers; columns in which nothing is
    known stay away."""
    heads, columns, to_the_right = [], [], []
    for at, name in enumerate(map(str, frame.columns)):
        values = frame.iloc[:, at].astype(object)
        written = NUMBERS[name].format if name in NUMBERS else str
        texts = [_text(value, written) for value in values]
        if len(texts) and set(texts) == {DASH}:
            continue
        heads.append(NUMBERS[name].title if name in NUMBERS else _plain(name.replace("_", " ")))
        columns.append(texts)
        known = [value for value in values if not _is_missing(value)]
        to_the_right.append(all(isinstance(value, int | float) for value in known))
    return heads, [list(row) for row in zip(*columns, strict=True)], to_the_right


def _text(value: Any, written: Callable[[Any], str]) -> str:
    if _is_missing(value):
        return DASH
    if isinstance(value, str):
        return _plain(value)
    try:
        return _plain(written(value))
    except (TypeError, ValueError):  # a column of that name that holds something else
        return _plain(str(value))


def _plain(text: str) -> str:
    return UNSEEN.sub(" ", text)


def _markdown(text: str) -> str:
    return MARKDOWN.sub(lambda found: "\\" + found[0], text)


def _latex(text: str) -> str:
    return "".join(LATEX.get(one, one) for one in text)
