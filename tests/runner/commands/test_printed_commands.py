"""Every command that Breakeven prints, on pages, in the terminal and in documents, can be read."""

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import StringIO
from typing import NamedTuple

import pytest

from breakeven.runner.commands import cli
from breakeven.runner.commands.entry import reads_database, without_help
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage import __main__ as stored
from tests.helpers.syntax import nodes

QUOTED = re.compile(r"`(breakeven(?: [^`]+)?)`")
"""A command in backticks."""
BARE = re.compile(r"(?:^\s*|: |&& |\()(breakeven [a-z][a-z-]*(?: [^`\n|)]*)?)", re.M)
"""A command at the beginning of a line, after a colon, or in a block of code."""
INDENTED = re.compile(r"^    (breakeven [a-z][^;\n]*)$", re.M)
"""A command on a line of its own in an indented block."""
VALUE = "7"
"""Stands for what only a run knows: fits as an id, a label, a number, and a path."""
LEFT_OUT = re.compile(r"\[[^\[\]]*\]|\.\.\.")
"""What a usage leaves to the reader."""
EXAMPLES = {
    "EXPERIMENT": VALUE,
    "RUN": VALUE,
    "SUITE": "timm",
    "FILE": "train.py",
    "FOLDER": ".",
    "NAME": "x",
    "TIME": "30m",
    "ID": VALUE,
    "FORMAT": "html",
    "SUITE_RUN": VALUE,
    "LENGTH": "7 steps",
    "NAME=PYTHON": "x=python",
    "NAME=REQUIREMENTS": "x=torch",
}


class Printed(NamedTuple):
    """A command, as text, and the file that prints it."""

    command: str
    file: str


def of_sources() -> Iterator[Printed]:
    """Commands in the texts of the product; docstrings are no texts that it prints."""
    for part in ("runner", "storage", "views", "breakeven"):
        for file in sorted((PROJECT_ROOT / part).rglob("*.py")):
            inner = {
                id(value)
                for node in nodes(file)
                if isinstance(node, ast.JoinedStr)
                for value in node.values
            }
            docs = {id(node.value) for node in nodes(file) if isinstance(node, ast.Expr)}
            for node in nodes(file):
                if id(node) in inner or id(node) in docs:
                    continue
                yield from (
                    Printed(command, str(file.relative_to(PROJECT_ROOT)))
                    for command in commands_in(text_of(node))
                )


def text_of(node: ast.AST) -> str:
    """A text, with `VALUE` for what only a run knows; an option of the data folder may be empty."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_part, node.values))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    given = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ""
    return f" --data-folder={VALUE}" if given.endswith("option") else VALUE


def of_documents() -> Iterator[Printed]:
    files = [*PROJECT_ROOT.glob("*.md"), *(PROJECT_ROOT / "docs").glob("*.md")]
    for file in sorted(files):
        text = file.read_text()
        # A block of code has a command of several lines.
        blocks = [
            block.replace("\\\n", " ") for block in re.findall(r"```\w*\n(.*?)```", text, re.S)
        ]
        blocks += INDENTED.findall(text.replace("\\\n", " "))
        lines = [line.partition("  #")[0] for block in blocks for line in block.splitlines()]
        commands = [
            *QUOTED.findall(text),
            *(line for line in lines if line.startswith("breakeven ")),
        ]
        yield from (Printed(" ".join(command.split()), file.name) for command in commands)


def commands_in(text: str) -> list[str]:
    quoted = QUOTED.findall(text)
    return [" ".join(text.split()) for text in (*quoted, *BARE.findall(QUOTED.sub("", text)))]


@cache
def parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """Of the runner's commands, and of those that read the database."""
    return cli.parser(), stored.parser()


def unreadable(command: str) -> str:
    """Why `breakeven` cannot read a command; empty if it can."""
    text = LEFT_OUT.sub("", LEFT_OUT.sub("", command.partition(" | ")[0]))
    words = [EXAMPLES.get(word, word) for word in shlex.split(text)][1:]
    words = [
        f"{name}={EXAMPLES.get(value, value)}"
        if (name := word.partition("=")[0]) != word and (value := word.partition("=")[2])
        else word
        for word in words
    ]
    if not words or words[0] in (
        "--help",
        "COMMAND",
        VALUE,
        "{0}",
    ):  # a command that only a run knows
        return ""
    words = without_help(words)
    reader = parsers()[reads_database(words)]
    said = StringIO()
    try:
        with redirect_stderr(said), redirect_stdout(said):
            reader.parse_args(words)
    except SystemExit as end:
        return said.getvalue().splitlines()[0] if end.code else ""
    return ""


def is_whole(command: str, why: str) -> bool:
    """Whether a command is meant to be typed as it stands: a sentence that names a command, as
    `breakeven queue suite` does, leaves out what the reader has to choose."""
    has_action = command.split()[1] in ("queue", "data", "team")
    return "arguments are required" not in why or len(command.split()) > 2 + has_action


@pytest.mark.parametrize("printed", [of_sources, of_documents], ids=["sources", "documents"])
def test_every_printed_command_can_be_read(printed: type[Iterator[Printed]]) -> None:
    commands = sorted({*printed()})
    assert len(commands) > 20
    faults = {
        f"{printed_command.file}: {printed_command.command}": why
        for printed_command in commands
        if (why := unreadable(printed_command.command)) and is_whole(printed_command.command, why)
    }
    assert not faults


NO_EXAMPLE = ("SUITE_RUN", "--diff", "-1c2d", "@torch", "team", "export", "import")
"""Parts of commands for which no example is recorded, or which change or write something."""


@pytest.mark.heavy  # judges the recorded examples
def test_reading_commands_of_documents_run_on_the_recorded_examples(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BREAKEVEN_DATA", str(data_dir.path))
    names = {"EXPERIMENT": "10f4", "FIRST": "10f4", "SECOND": "bb0e"}
    ran = []
    for command in sorted({printed.command for printed in of_documents()}):
        words = [names.get(word, word) for word in shlex.split(command)[1:]]
        if words and reads_database(words) and not any(part in command for part in NO_EXAMPLE):
            assert stored.main(words) != 2, (command, capsys.readouterr().err)
            ran.append(command)
    assert len(ran) >= 8 and "breakeven list bert h100 --tag paper 'speedup>1.2'" in ran


@pytest.mark.heavy  # judges a recorded example
def test_the_readme_shows_what_its_command_prints(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BREAKEVEN_DATA", str(data_dir.path))
    (block,) = re.findall(r"```console\n(.*?)```", (PROJECT_ROOT / "README.md").read_text(), re.S)
    command, _, output = block.partition("\n")
    assert stored.main(shlex.split(command.removeprefix("$ breakeven "))) == 0
    assert capsys.readouterr().out.startswith(output)


@pytest.mark.parametrize(
    "command",
    [
        "breakeven investigat 7",
        "breakeven resume 7 --no-such-option",
        "breakeven show 7 8",
        "breakeven resume --budget=10m",
        "breakeven queue next 7 8",
        "breakeven tune --budget=much",
    ],
)
def test_a_command_that_nobody_could_type_is_noticed(command: str) -> None:
    why = unreadable(command)
    assert why and is_whole(command, why)


def test_commands_are_found_in_sentences_of_every_form() -> None:
    texts = (
        "to find the cause: breakeven investigate 7.x",
        "say `breakeven list` now",
        "cd x && breakeven show 7 --diff | git apply",
        "first `breakeven queue\n next 7`",
    )
    assert [commands_in(text) for text in texts] == [
        ["breakeven investigate 7.x"],
        ["breakeven list"],
        ["breakeven show 7 --diff"],
        ["breakeven queue next 7"],
    ]
