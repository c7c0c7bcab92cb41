"""What people mistype: the answer names the command and the nearest word that it knows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from breakeven.runner.commands.cli import main
from breakeven.runner.commands.entry import without_help
from breakeven.storage.__main__ import main as storage
from breakeven.storage.__main__ import parser as storage_parser


def said(
    run: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str], *words: str
) -> list[str]:
    with pytest.raises(SystemExit) as ended:
        run(list(words))
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["comapre"], "breakeven: there is no command 'comapre'; did you mean 'compare'?"),
        (["queue", "ad"], "breakeven queue: there is no action 'ad'; did you mean 'add'?"),
        (["zzz"], "breakeven: there is no command 'zzz'."),
    ],
)
def test_a_mistyped_command_or_action_suggests_the_nearest(
    words: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, where = said(main, capsys, *words)
    assert first == answer
    assert where == f"`{answer.partition(':')[0]} --help` lists what it takes."


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["compare", "--bakends", "eager"], "'--bakends' is not known here; did you mean '--backe"),
        (["run", "--bakends=x", "a.py"], "'--bakends=x' is not known here; did you mean '--backe"),
        (["compare", "data.csv"], "'data.csv' is not known here."),
    ],
)
def test_an_unknown_option_names_its_command_and_the_nearest_option(
    words: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(main, capsys, *words)[0].startswith(f"breakeven {words[0]}: {answer}")


def test_commands_of_the_database_name_the_nearest_option_and_value_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (option, _) = said(storage, capsys, "show", "--pln", "3")
    assert option == "breakeven show: '--pln' is not known here; did you mean '--plan'?"
    (value, _) = said(storage, capsys, "export", "--format", "htlm", "x", "-o", "x.html")
    assert value.startswith("breakeven export: argument --format: 'htlm' must be one of html, ")
    assert value.endswith("; did you mean 'html'?")


def test_the_word_help_is_the_option() -> None:
    assert without_help(["help"]) == ["--help"]
    assert without_help(["help", "queue", "add"]) == ["queue", "add", "--help"]
    assert without_help(["show", "help"]) == ["show", "help"]


def test_words_of_a_filter_stand_before_and_after_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = storage_parser().parse_args(["list", "bert", "--tag", "paper", "speedup>1.2"])
    assert options.words == ["bert", "speedup>1.2"] and options.tag == ["paper"]
    (refused, _) = said(storage, capsys, "list", "bert", "--tag", "paper", "speedup>fast")
    assert refused.startswith("breakeven list: ") and refused.endswith(
        "'fast' after speedup> is not a number."
    )


def test_a_typed_folder_that_is_missing_is_refused_and_the_usual_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BREAKEVEN_DATA", str(tmp_path / "fresh"))
    assert storage(["list", f"--data-folder={tmp_path / 'typo'}"]) == 2
    assert "there is no such folder" in capsys.readouterr().err
    assert storage(["list", "10f4"]) == 0
    assert "BERT-base on star reviews" in capsys.readouterr().out
    assert (tmp_path / "fresh").stat().st_mode & 0o777 == 0o700
