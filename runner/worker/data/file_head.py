"""Prints the head of a data file, its first rows and what they hold, as one JSON object.

This is a separate process, without torch, in little memory, because files may be huge, broken or
malicious. It reads tables like `samples.open_file`, with the libraries beneath `datasets`, but
without `datasets`, whose import takes seconds.
"""

import contextlib
import gzip
import io
import json
import os
import re
import resource
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from breakeven.runner.errors import UnusableData

WHOLE_BYTES = 32 * 2**20
"""Largest size of a file that is read as a whole."""
HEAD_BYTES = 4 * 2**20
"""Bytes that are read of larger files."""
WHOLE_ROWS = 2_000_000
HEAD_ROWS = 2_000
"""The same limits in rows, for Parquet, whose packed size predicts little."""
SHOWN_ROWS = 5
CELL_CHARACTERS = 300
MEMORY_BYTES = 6 * 2**30
GZIP = b"\x1f\x8b"
SEPARATORS = re.compile(r"[\s,]*")


def main() -> None:
    with contextlib.suppress(ValueError, OSError):  # not every system supports this
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.stdout.write(json.dumps(read_head(Path(sys.argv[1]))) + "\n")


def read_head(path: Path) -> dict[str, Any]:
    """The result of `describe`, or `error` with the reason if a file cannot be read."""
    try:
        frame, num_rows = _read(path)
        if not len(frame):
            raise UnusableData("holds no rows")
        return describe(frame, num_rows)
    except MemoryError:
        return {"error": "takes too much memory to read"}
    except UnusableData as error:
        return {"error": str(error)}
    except Exception as error:  # broken files provoke many kinds in parsers
        kind = path.suffixes[0][1:] if path.suffixes else "data"
        return {"error": f"cannot be read as {kind}: {str(error)[:CELL_CHARACTERS]}"}


def describe(frame: pd.DataFrame, num_rows: int | None) -> dict[str, Any]:
    """A table, in the form of `runner.checks.data_file.Head`."""
    shown = frame.head(SHOWN_ROWS)
    cells = [[_shown(value) for value in shown[name]] for name in frame.columns]
    return {
        "columns": [_describe(_plain(name), frame[name]) for name in frame.columns],
        "rows": list(zip(*cells, strict=True)),
        "num_read": len(frame),
        "num_rows": num_rows,
    }


def _read(path: Path) -> tuple[pd.DataFrame, int | None]:
    """The rows read from a table, and its number of rows if known."""
    # With a pipe, this process would wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UnusableData("is not a regular file; copy its content to one")
        if path.name.endswith(".parquet"):
            return _read_parquet(file)
        content, is_whole = _read_bytes(file)
    read = _read_csv if ".csv" in path.suffixes[-2:] else _read_json
    frame = read(content, is_whole)
    return frame, len(frame) if is_whole else None


def _read_bytes(file: io.BufferedReader) -> tuple[bytes, bool]:
    """The beginning of a file, unpacked if necessary, and whether this is the whole file."""
    packed = file.peek(2)[:2] == GZIP
    content = (gzip.GzipFile(fileobj=file) if packed else file).read(WHOLE_BYTES + 1)
    if len(content) <= WHOLE_BYTES:
        return content, True
    return content[:HEAD_BYTES], False


def _read_csv(content: bytes, is_whole: bool) -> pd.DataFrame:
    if not is_whole:
        content = _whole_records(content)
    frame = pd.read_csv(io.BytesIO(content), low_memory=False)
    if not isinstance(frame.index, pd.RangeIndex):
        # Pandas would silently use the first column as row names and shift all others by one.
        raise UnusableData("has rows with more cells than the first line has names")
    return frame


def _whole_records(content: bytes) -> bytes:
    """Removes the last, torn record. A line end within quotes ends no record."""
    quotes, before = content.count(b'"'), len(content)
    while (end := content.rfind(b"\n", 0, before)) >= 0:
        quotes -= content.count(b'"', end, before)
        if quotes % 2 == 0:
            return content[: end + 1]
        before = end
    return content


def _read_json(content: bytes, is_whole: bool) -> pd.DataFrame:
    rows = list(
        _json_rows(content.decode("utf-8-sig", "strict" if is_whole else "ignore"), is_whole)
    )
    if not all(isinstance(row, dict) for row in rows):
        raise UnusableData("must hold an object in each line, or a list of objects")
    names = dict.fromkeys(name for row in rows for name in row)
    return pd.DataFrame({name: [row.get(name) for row in rows] for name in names}, dtype=object)


def _json_rows(text: str, is_whole: bool) -> Iterator[Any]:
    """Yields the values of a list, or consecutive values, without a torn one at the end."""
    decoder, place = json.JSONDecoder(), 0
    is_list = text.lstrip()[:1] == "["
    text = text.strip()
    if is_list:
        text = text[1:].removesuffix("]") if is_whole else text[1:]
    while separators := SEPARATORS.match(text, place):
        if separators.end() == len(text):
            return
        try:
            value, place = decoder.raw_decode(text, separators.end())
        except json.JSONDecodeError:
            if is_whole:
                raise
            return
        yield value


def _read_parquet(file: io.BufferedReader) -> tuple[pd.DataFrame, int]:
    table = pq.ParquetFile(file, pre_buffer=False, buffer_size=2**16)
    num_rows = table.metadata.num_rows
    unpacked = sum(
        table.metadata.row_group(index).total_byte_size for index in range(table.num_row_groups)
    )
    is_whole = unpacked <= WHOLE_BYTES and num_rows <= WHOLE_ROWS
    if is_whole:
        return table.read(use_threads=False).to_pandas(ignore_metadata=True), num_rows
    batches = table.iter_batches(batch_size=HEAD_ROWS, use_threads=False)
    return next(batches).to_pandas(ignore_metadata=True), num_rows


def _describe(name: str, cells: pd.Series) -> dict[str, Any]:
    present = cells.dropna()
    texts = present.map(_text)
    times = Counter(texts.value_counts().tolist())
    return {
        "name": name,
        "kind": _kind(present),
        "mean_length": float(texts.str.len().mean()) if len(texts) else 0.0,
        "num_missing": int(len(cells) - len(present)),
        "num_blank": int(len(cells) - len(present) + (texts.str.strip() == "").sum()),
        "multiplicities": sorted(times.items()),
    }


def _kind(present: pd.Series) -> str:
    """The kind of a column by its cells, since JSON gives columns no type."""
    types = {type(value) for value in present.head(HEAD_ROWS).tolist()}
    if types == {bool}:
        return "truth"
    if types and types <= {int, float, bool}:
        return "number"
    if types == {str}:
        return "text"
    is_image = types and all(_is_image(value) for value in present.head(HEAD_ROWS))
    return "image" if is_image else "other"


def _is_image(value: Any) -> bool:
    """Whether a cell has encoded bytes, or an object with bytes and path, as `datasets` writes."""
    return isinstance(value, bytes) or (isinstance(value, dict) and {"bytes", "path"} >= set(value))


def _text(value: Any) -> str:
    return f"{len(value):,} bytes" if isinstance(value, bytes) else str(value)


def _shown(value: Any) -> str:
    """The text of a cell for a page, without lone surrogates, which no page can show."""
    is_missing = value is None or (isinstance(value, float) and value != value)
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        value = value["bytes"]
    text = "" if is_missing else _text(value)
    return _plain(text if len(text) <= CELL_CHARACTERS else text[:CELL_CHARACTERS] + " ...")


def _plain(text: Any) -> str:
    return str(text).replace("\0", " ").encode("utf-8", "replace").decode()


if __name__ == "__main__":
    main()
