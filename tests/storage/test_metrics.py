"""The registry of metrics: documented, and written for people."""

import math

import pytest

from breakeven.storage.numbers.metrics import (
    DASH,
    DEFINITIONS_FILE,
    METRICS,
    NUMBERS,
    read_chapters,
    read_definitions,
)

HEADINGS = [
    line.removeprefix("### ")
    for line in DEFINITIONS_FILE.read_text().splitlines()
    if line.startswith("### ")
]


def test_every_number_is_defined_in_the_documentation_and_nothing_else_is() -> None:
    assert len(HEADINGS) == len(set(HEADINGS)), "an anchor leads to one place"
    assert {number.anchor for number in NUMBERS.values()} == set(HEADINGS)
    assert set(METRICS) <= set(HEADINGS), "a metric has a heading of its own"


def test_definitions_are_read_by_chapter_and_end_at_the_next_heading() -> None:
    assert list(read_definitions()) == HEADINGS
    assert read_definitions()["speedup_high"] == (
        "Upper end of the speedup's 95 % bootstrap interval."
    )
    titles = {chapter.title: chapter for chapter in read_chapters()}
    assert next(iter(titles)) == "What the numbers mean"
    assert "**The reference**" in titles["Correctness"].introduction
    assert "speedup_high" in [definition.anchor for definition in titles["Time"].definitions]
    # A number without a heading is defined within the text of another.
    assert NUMBERS["hits"].anchor == "compile_cache"
    assert NUMBERS["hits"].definition == "Look-ups that the cache answered."


def test_every_number_is_registered_under_its_name_and_writes_a_dash() -> None:
    for name, metric in NUMBERS.items():
        assert metric.name == name
        assert metric.axis_title.startswith(metric.title)
        assert metric.definition.endswith(".")
        assert metric.format(None) == DASH


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("step_seconds", 0.00085, "0.850 ms"),
        ("step_seconds", 0.0, "0 s"),
        ("compile_seconds", 119.5, "2 min 0 s"),  # rounded; 120 s would be as many
        ("compile_seconds", 59.96, "60.0 s"),  # seconds go on to two minutes
        ("compile_seconds", 0.9995, "1.00 s"),
        ("compile_seconds", 9.996, "10.0 s"),
        ("compile_seconds", 7199.4, "119 min 59 s"),
        ("compile_seconds", 7199.6, "2 h 0 min"),
        ("compile_seconds", 2 * 3600 + 59 * 60 + 59.0, "3 h 0 min"),
        ("break_even_steps", math.inf, "never"),
        ("peak_memory_bytes", 1023.94 * 2**20, "1023.9 MiB"),
        ("peak_memory_bytes", 1023.96 * 2**20, "1.00 GiB"),
        ("peak_memory_bytes", 0, "0.0 MiB"),
        ("break_even_steps", 999_999.6, "1,000,000"),
        ("speedup", 1.325, "1.32x"),
        ("speedup", math.nan, DASH),
        ("p_holm", 0.0004, "<0.001"),
        ("accuracy", 0.875, "87.5 %"),
        ("energy_per_step", 1.02e6, "1,020 kJ"),
        ("flops_per_second", 9.9996e8, "1.00 GFLOP/s"),
        ("flops_per_second", 9.996e14, "1,000 TFLOP/s"),
        ("samples_per_second", 99.96, "100"),
        ("inference_gap", 0.000123, "0.00012"),
        ("roc_auc", 0.91234, "0.9123"),
        ("perplexity", 5321.0, "5321"),
        ("kernel_calls", 12_345.0, "12345"),
        ("kernel_calls", 12_345.6, "1.235e+04"),
        ("error_ratio", 20_000_000.0, "2e+07"),
        ("loss", 1.38629, "1.386"),
        ("loss", math.nan, "NaN"),
        ("final_loss", math.inf, "inf"),
        ("max_ratio_to_band", math.inf, "infinite"),
        ("first_step_outside", 0, "0"),
        ("parity", "holds", "matches"),
    ],
)
def test_values_are_written_for_people(name: str, value: object, written: str) -> None:
    assert NUMBERS[name].format(value) == written
