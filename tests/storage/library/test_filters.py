"""What the filters of a list let through, and how they are written."""

import argparse
import json
from typing import Any

import pandas as pd
import pytest

from breakeven.runner.arguments.filters import (
    Filter,
    Terms,
    add_list_options,
    filter_arguments,
    parse_terms,
    read_filter,
)
from breakeven.storage.library.catalog import COLUMNS, facet_counts, matching_rows, searchable
from breakeven.storage.terminal.lists import list_json, wide_list

ROWS: list[dict[str, Any]] = [
    {
        "name": "Nightly BERT",
        "model": "bert-base",
        "device": "NVIDIA H100",
        "speedup": 1.5,
        "state": "finished",
        "tags": ("paper", "gpu"),
        "backends": ("inductor", "eager"),
        "verdict": "faster",
        "batch": 32,
    },
    {
        "name": "A digits try",
        "model": "vit-small",
        "device": "Test CPU",
        "speedup": 0.9,
        "state": "finished",
        "tags": ("cpu",),
        "backends": ("inductor",),
        "verdict": "slower",
        "batch": 8,
    },
    {
        "name": "broken",
        "model": "bert-base",
        "device": "Test CPU",
        "speedup": None,
        "state": "failed",
        "tags": (),
        "backends": ("cudagraphs",),
        "batch": 8,
    },
    {
        "name": "old",
        "model": "gpt2",
        "device": "Test CPU",
        "speedup": 3.0,
        "archived": True,
        "state": "finished",
        "tags": ("paper",),
        "backends": ("inductor",),
        "batch": 8,
    },
]


@pytest.fixture
def frame() -> pd.DataFrame:
    days = pd.date_range("2026-11-20", periods=len(ROWS), tz="UTC")
    plain = {"archived": False, "notes": "", "origin": "local", "known": True}
    rows = [
        {**plain, **experiment, "submitted": day}
        for experiment, day in zip(ROWS, days, strict=True)
    ]
    complete = [
        {name: row.get(name) for name in COLUMNS} | {"text": searchable(row)} for row in rows
    ]
    return pd.DataFrame(complete, columns=COLUMNS, dtype=object)


def names(frame: pd.DataFrame, **conditions: Any) -> list[str]:
    return list(matching_rows(frame, Filter(**conditions))["name"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["broken", "A digits try", "Nightly BERT"]),
        ("bert", ["broken", "Nightly BERT"]),
        ("BERT h100", ["Nightly BERT"]),
        ('"nightly bert"', ["Nightly BERT"]),
        ('"bert nightly"', []),
        ("inductor -eager", ["A digits try"]),
        ("speedup>1.2", ["Nightly BERT"]),
        ("speedup<1.2", ["A digits try"]),
        ("speedup>0 paper", ["Nightly BERT"]),
        ("(", []),
    ],
)
def test_words_phrases_and_comparisons(frame: pd.DataFrame, text: str, expected: list[str]) -> None:
    assert names(frame, text=text) == expected


def test_one_of_several_values_of_a_facet_and_every_facet(frame: pd.DataFrame) -> None:
    assert names(frame, facets={"model": ("bert-base", "gpt2")}) == ["broken", "Nightly BERT"]
    both = {"model": ("bert-base",), "state": ("failed",)}
    assert names(frame, facets=both) == ["broken"]
    assert names(frame, facets={"tag": ("gpu", "cpu")}) == ["A digits try", "Nightly BERT"]
    assert names(frame, facets={"batch": ("32",)}) == ["Nightly BERT"]
    assert names(frame, facets={"model": ()}) == names(frame)


@pytest.mark.parametrize("word", ["unsure", "inconclusive"])
def test_a_verdict_is_found_by_the_word_of_files_and_by_that_of_pages(word: str) -> None:
    row = {"name": "mine", "verdict": "unsure", "archived": False, "submitted": pd.Timestamp(0)}
    complete = {name: row.get(name) for name in COLUMNS} | {"text": searchable(row)}
    frame = pd.DataFrame([complete], columns=COLUMNS, dtype=object)
    assert names(frame, facets={"verdict": (word,)}) == names(frame, text=word) == ["mine"]
    assert not names(frame, facets={"verdict": ("faster",)})


def test_archived_experiments_are_listed_on_request(frame: pd.DataFrame) -> None:
    assert "old" not in names(frame)
    assert names(frame, archived="only") == ["old"]
    assert len(names(frame, archived="yes")) == 4


def test_any_order_has_what_is_missing_last(frame: pd.DataFrame) -> None:
    assert names(frame, sort="-speedup") == ["Nightly BERT", "A digits try", "broken"]
    assert names(frame, sort="speedup") == ["A digits try", "Nightly BERT", "broken"]
    assert names(frame, sort="name") == ["A digits try", "broken", "Nightly BERT"]
    assert names(frame, sort="when") == ["Nightly BERT", "A digits try", "broken"]


def test_facets_count_what_choosing_them_would_show(frame: pd.DataFrame) -> None:
    assert facet_counts(frame.iloc[:0], Filter())["state"] == {}
    counts = facet_counts(frame, Filter(facets={"model": ("bert-base",)}))
    assert counts["model"] == {"bert-base": 2, "vit-small": 1}  # as without its own choice
    assert counts["state"] == {"finished": 1, "failed": 1}
    assert counts["backend"] == {"inductor": 1, "eager": 1, "cudagraphs": 1}


def test_a_comparison_that_makes_no_sense_is_refused_by_name() -> None:
    for text, why in (("sped>1", "'sped' is not a number"), ("speedup>x", "'x' after speedup>")):
        with pytest.raises(ValueError, match=why):
            parse_terms(text)
    assert parse_terms("-speedup>1") == Terms(unwanted=("speedup>1",))


def test_options_are_handed_on_as_they_were_given() -> None:
    parser = argparse.ArgumentParser()
    add_list_options(parser)
    given = [
        "--model=a, b",
        "--model=gpt2",
        "--tag=a",
        "--tag=b",
        "--sort=-speedup",
        "--json",
        "--",
        "two words",
        "-not",
        "-these two",
        "speedup>1",
    ]
    options = parser.parse_args(given)
    filter_read = read_filter(options)
    assert filter_read.facets == {"model": ("a, b", "gpt2"), "tag": ("a", "b")}
    assert filter_read.terms.wanted == ("two words",) and filter_read.terms.unwanted == (
        "not",
        "these two",
    )
    again = parser.parse_args(filter_arguments(filter_read))
    assert read_filter(again) == filter_read
    assert filter_arguments(Filter()) == []


def test_the_table_and_the_json_say_the_same(frame: pd.DataFrame) -> None:
    nothing = matching_rows(frame.iloc[:0], Filter(text="a speedup>1", facets={"tag": ("x",)}))
    assert (wide_list(nothing), json.loads(list_json(nothing))) == ("no experiment fits", [])
    fitting = matching_rows(frame, Filter(text="h100"))
    (line,) = wide_list(fitting).splitlines()[2:]
    assert "Nightly BERT" in line and "1.50x" in line and "#paper #gpu" in line
    (experiment,) = json.loads(list_json(fitting))
    assert experiment["speedup"] == 1.5 and experiment["tags"] == ["paper", "gpu"]
    assert experiment["submitted"] == "2026-11-20T00:00:00+00:00" and experiment["parity"] is None
