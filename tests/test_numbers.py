"""The product stays within its limits: numbers of commands, options, variables and make targets.
Documents name options as the help does."""

import argparse
import contextlib
import io
import re
from functools import cache
from pathlib import Path

import pytest

from breakeven.runner.commands.cli import parser
from breakeven.runner.project import PROJECT_ROOT
from breakeven.storage.__main__ import parser as stored_parser

MAX_COMMANDS, MAX_OPTIONS, MAX_VARIABLES, MAX_TARGETS, MAX_TERMS = 16, 45, 13, 10, 35
MAX_LINES, MAX_COLUMNS = 40, 80
"""What a screen shows."""
TRAINING = re.compile(r"\.py |\b(?:python|torchrun|accelerate launch|uv run) ")
"""Where a typed training begins, whose options are its own."""
COMMAND_LINE = re.compile(r"breakeven ((?:(?:queue|data|team) )?[a-z-]+)((?:\\\n|[^\n`#;])*)")
VARIABLE = re.compile(r"\bBREAKEVEN_[A-Z_]+\b")
README = (PROJECT_ROOT / "README.md").read_text()


@cache
def help_of(*words: str) -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), pytest.raises(SystemExit):
        parser().parse_args([*words, "--help"])
    return shown.getvalue()


def commands() -> list[str]:
    return re.findall(r"^  ([a-z-]+)  ", help_of(), re.M)


def test_there_are_few_commands() -> None:
    listed = commands()
    assert 10 < len(listed) == len(set(listed)) <= MAX_COMMANDS
    assert set(listed) == {command.split()[0] for command in options_by_command(parser())}
    lines = help_of().splitlines()
    assert len(lines) <= MAX_LINES and max(map(len, lines)) <= MAX_COLUMNS


def test_compare_has_few_options() -> None:
    options = re.findall(r"^  (-[-\w]+)", help_of("compare"), re.M)
    assert 30 < len(options) <= MAX_OPTIONS


def test_there_are_few_make_targets_and_each_says_what_it_does() -> None:
    makefile = (PROJECT_ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z][a-z-]*):(?!=)", makefile, re.M)
    assert 5 < len(targets) <= MAX_TARGETS
    assert set(targets) == set(re.findall(r"^# make ([a-z-]+)  ", makefile, re.M))


def test_few_words_must_be_learnt() -> None:
    terms = (PROJECT_ROOT / "CONTRIBUTING.md").read_text().partition("\n## Terms\n")[2]
    listed = re.findall(r"^\| ([^|]+) \|", terms, re.M)[1:]
    assert listed == sorted(set(listed))
    assert 20 < len(listed) <= MAX_TERMS


def variables_in(folder: Path) -> set[str]:
    """Environment variables that people set: those in README or docs."""
    sources = [file.read_text() for file in folder.rglob("*.py")]
    named = {name for text in sources for name in VARIABLE.findall(text)}
    documents = [README, *(file.read_text() for file in (PROJECT_ROOT / "docs").rglob("*.md"))]
    return named & {name for text in documents for name in VARIABLE.findall(text)}


def test_there_are_few_environment_variables() -> None:
    houses = ("runner", "storage", "views", "breakeven")
    named = {name for house in houses for name in variables_in(PROJECT_ROOT / house)}
    assert {"BREAKEVEN_DATA", "BREAKEVEN_CODE"} < named and len(named) <= MAX_VARIABLES, named


def options_by_command(parser: argparse.ArgumentParser, parent: str = "") -> dict[str, set[str]]:
    """The options of each command, and of each action, such as `queue add`."""
    options: dict[str, set[str]] = {}
    for actions in parser._actions:
        if isinstance(actions, argparse._SubParsersAction):
            for name, command in actions.choices.items():
                own = {option for action in command._actions for option in action.option_strings}
                options |= {f"{parent}{name}": own}
                options |= options_by_command(command, f"{parent}{name} ")
    return options


def test_command_lines_in_documents_have_the_options_that_the_help_lists() -> None:
    known = options_by_command(parser()) | options_by_command(stored_parser())
    documents = [PROJECT_ROOT / "README.md", *(PROJECT_ROOT / "docs").rglob("*.md")]
    lines = [line for file in documents for line in COMMAND_LINE.findall(file.read_text())]
    used = {
        (command, option)
        for command, rest in lines
        if command in known
        for option in re.findall(r" (--[a-z][a-z-]+)", TRAINING.split(rest)[0])
    }
    assert len(used) > 50
    assert {(command, option) for command, option in used if option not in known[command]} == set()
