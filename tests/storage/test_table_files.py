"""Tables leave as Parquet, JSON, Markdown and LaTeX; `tests/views/test_downloads.py` has CSV."""

import io
import json
import math

import pandas as pd
import pyarrow.parquet as pq
import pytest

from storage.exchange.table_files import (
    TABLE_FORMATS,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
    to_parquet,
)

FRAME = pd.DataFrame(
    {
        "label": ["aot_eager", "inductor"],
        "speedup": [1.5, None],
        "final_loss": [0.25, math.nan],
        "break_even_steps": [math.inf, 12],
        "f1": [None, None],
    },
    dtype=object,
)


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
        "1", "many", None, " ",
    ]  # fmt: skip


def test_json_has_no_numbers_that_json_lacks() -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    first, second = json.loads(to_json(FRAME), parse_constant=refuse)
    assert first == {"label": "aot_eager", "speedup": 1.5, "final_loss": 0.25,
                     "break_even_steps": "Infinity", "f1": None}  # fmt: skip
    assert (second["speedup"], second["final_loss"], second["break_even_steps"]) == (
        None,
        "NaN",
        12,
    )


def test_markdown_reads_as_pages_do_and_leaves_out_what_nobody_has() -> None:
    head, rule, first, second = to_markdown(FRAME).decode().splitlines()
    assert head == "| label | Speedup | Final loss | Break-even |", "a column without a value goes"
    assert rule == "| --- | ---: | ---: | ---: |"
    assert first == "| aot\\_eager | 1.50x | 0.2500 | never |"
    assert second == "| inductor | \N{EN DASH} | NaN | 12 |"


def test_latex_is_a_table_of_booktabs() -> None:
    lines = to_latex(FRAME).decode().splitlines()
    assert lines[0] == "\\begin{tabular}{lrrr}"
    assert lines[4] == "aot\\_eager & 1.50x & 0.2500 & never \\\\"
    assert lines[5] == "inductor & -- & NaN & 12 \\\\"
    assert lines[-2:] == ["\\bottomrule", "\\end{tabular}"]


HOSTILE = (
    "\\input{/etc/passwd}|<img src=x onerror=a()>[x](http://e.org)![](y)\n\n$&%#_{}~^`www.e.org"
)


def test_no_text_is_a_command_a_link_or_html_where_it_goes() -> None:
    frame = pd.DataFrame({"label": [HOSTILE], HOSTILE: ["a"]})
    for line in to_markdown(frame).decode().splitlines():
        for sign in ("<", "[", "]", "`", "://", "www.", "!"):
            for at in range(len(line)):
                if line.startswith(sign, at) and sign != "www.":
                    assert line[at - 1] == "\\", (sign, line)
        assert "www." not in line
        assert line.count(" | ") == 1, "the stroke of a text ends no cell"
    latex = to_latex(frame).decode()
    assert "\\input" not in latex and "\\textbackslash{}input\\{" in latex
    assert len(latex.splitlines()) == 7, "a break in a text begins no paragraph"


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
