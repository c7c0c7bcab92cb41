"""Tables are exported as Parquet; `tests/views/test_downloads.py` has CSV."""

import io
import math

import pandas as pd
import pyarrow.parquet as pq
import pytest

from breakeven.storage.exchange.csv_and_parquet import TABLE_FORMATS, to_csv, to_parquet

COLUMNS = {
    "label": ["aot_eager", "inductor"],
    "speedup": [1.5, None],
    "f1": [None, None],
    "final_loss": [0.25, math.nan],
    "break_even_steps": [math.inf, 12],
}
FRAME = pd.DataFrame(COLUMNS, dtype=object)


def test_parquet_tells_a_diverged_loss_from_what_is_missing() -> None:
    read = pq.read_table(io.BytesIO(to_parquet(FRAME)))
    assert read["speedup"].to_pylist() == [1.5, None]
    first, second = read["final_loss"].to_pylist()
    assert first == 0.25 and math.isnan(second)
    assert read["break_even_steps"].to_pylist() == [math.inf, 12]
    steps = pd.DataFrame({"step": [0, 1], "loss": [1.0, math.nan], "seconds": [0.5, math.nan]})
    read = pq.read_table(io.BytesIO(to_parquet(steps)))
    assert math.isnan(read["loss"].to_pylist()[1]) and read["seconds"].to_pylist()[1] is None
    assert read["step"].to_pylist() == [0, 1]


def test_what_a_column_mixes_is_text_in_parquet() -> None:
    mixed = pd.DataFrame({"value": [1, "many", None, "\ud800"]}, dtype=object)
    assert pq.read_table(io.BytesIO(to_parquet(mixed)))["value"].to_pylist() == [
        "1",
        "many",
        None,
        " ",
    ]


@pytest.mark.parametrize("suffix", TABLE_FORMATS)
@pytest.mark.parametrize("frame", [pd.DataFrame(), pd.DataFrame({"label": []}), FRAME.iloc[:0]])
def test_an_empty_table_leaves_too(suffix: str, frame: pd.DataFrame) -> None:
    assert isinstance(TABLE_FORMATS[suffix].to_bytes(frame), bytes)


def test_times_and_lists_have_a_place_in_every_format() -> None:
    frame = pd.DataFrame({"when": [pd.Timestamp("2026-11-21", tz="UTC")], "notes": [["a", "b"]]})
    for format in TABLE_FORMATS.values():
        assert b"2026" in format.to_bytes(frame) or format.suffix == "parquet"
    assert pq.read_table(io.BytesIO(to_parquet(frame)))["notes"].to_pylist() == [["a", "b"]]
    assert to_csv(frame).startswith(b"when,notes\n2026-11-21")
