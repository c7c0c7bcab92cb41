"""Tables and sentences in the width of a terminal, and in none."""

import sys

import pytest

from breakeven.storage.numbers.formats import DASH
from breakeven.storage.terminal.layout import aligned_table, wrapped

ROWS = [
    ["run", "state", "step", "samples/s", "speedup (95 %)", "parity"],
    ["baseline", "finished", "54.0 ms", "2,368", DASH, DASH],
    [
        "inductor-reduce-overhead-blocks",
        "finished",
        "32.6 ms",
        "3,931",
        "1.67x (1.56 to 1.73)",
        "nothing learned",
    ],
]


@pytest.fixture(params=[60, 80])
def columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The width of a terminal."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(request.param))
    return int(request.param)


def test_without_a_terminal_each_row_is_one_line_of_plain_text() -> None:
    assert aligned_table(ROWS, 2) == [
        "run                              state        step  samples/s        speedup (95 %)"
        "           parity",
        "-------------------------------- --------- -------- ---------- --------------------- "
        "---------------",
        "baseline                         finished  54.0 ms      2,368                     "
        f"{DASH}                {DASH}",
        "inductor-reduce-overhead-blocks  finished  32.6 ms      3,931  1.67x (1.56 to 1.73)"
        "  nothing learned",
    ]
    assert wrapped("word " * 100 + "end") == "word " * 100 + "end"


def test_columns_that_do_not_fit_follow_below_beside_the_names_of_the_rows(columns: int) -> None:
    lines = aligned_table(ROWS, 2)
    assert max(map(len, lines)) <= columns
    titles = [line for line in lines if line.startswith("run")]
    assert len(titles) > 1
    words = " ".join(titles).split()
    assert [word for word in words if word != "run"] == " ".join(ROWS[0][1:]).split()
    for cell in ("54.0 ms", "2,368", "1.67x (1.56 to 1.73)"):
        assert sum(cell in line for line in lines) == 1, cell
    assert sum(line.startswith("baseline") for line in lines) == len(titles)


def test_long_texts_wrap_at_words_and_a_long_word_is_broken_but_not_cut_off(columns: int) -> None:
    reason = "half of the CPUs that the run may use, at least 1: 16 (32 in the machine)"
    name = "variables.TORCH_NCCL_ASYNC_ERROR_HANDLING_OF_ALL_RANKS"
    rows = [["what", "A", "B"], ["reason", reason, "32"], [name, "1", reason]]
    lines = aligned_table(rows, 3)
    assert max(map(len, lines)) <= columns
    shown = "".join("".join(lines).split())
    assert all(word in shown for word in reason.split())
    begun = next(line.split()[0] for line in lines if line.startswith("variables"))
    assert name.startswith(begun) and name.removeprefix(begun) in shown


@pytest.mark.parametrize(
    "hostile", ["[red]x[/red]", "[link=https://a.b]x[/link]", "[/]", ":smile:", "\\["]
)
def test_markup_in_a_strangers_name_is_text(columns: int, hostile: str) -> None:
    table = aligned_table([["run", hostile], [hostile, "1"]], 1)
    assert "\n".join(table).count(hostile) == 2
    assert wrapped(f"parity of {hostile}: matches") == f"parity of {hostile}: matches"
    assert "\x1b" not in "".join(table)


def test_sentences_wrap_at_words_and_commands_stay_whole(columns: int) -> None:
    sentence = "  warning: " + "a long word follows " * 8 + "and the end"
    command = "to try it: breakeven compare " + "--backends=inductor " * 8
    lines = wrapped(f"{sentence}\n\n{command}\nend").split("\n")
    assert lines[-3:] == ["", command, "end"]
    assert all(len(line) <= columns and line.startswith("  ") for line in lines[:-3])
    assert " ".join(lines[:-3]).split() == sentence.split()


def test_a_column_that_could_be_wider_takes_nothing_from_its_neighbours(columns: int) -> None:
    rows = [["experiment", "name", "state"], ["x" * 27, "BERT-base on star reviews", "finished"]]
    lines = aligned_table(rows, 3)
    assert max(map(len, lines)) <= columns
    assert "x" * 27 in "".join(lines) and "finished" in "".join(lines)
