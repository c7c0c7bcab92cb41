"""Writes `docs/commands.md` from the commands' own parsers:
`python -m tests.runner.commands.command_reference`."""

import argparse
import re
from collections.abc import Iterator

from breakeven.runner.commands import cli
from breakeven.runner.commands.entry import COMMANDS, reads_database
from breakeven.runner.project import PROJECT_ROOT
from breakeven.storage import __main__ as stored

FILE = PROJECT_ROOT / "docs" / "commands.md"
HEAD = """# Commands

A checkout has the command as `.venv/bin/breakeven`. Without a command it serves the dashboard.
`breakeven COMMAND --help` has every option with its default, and `--help-fields` of `compare`
every field that `--set` takes. Every command also has `--data-folder FOLDER`.
[Exit statuses](suites.md#output-and-exit-status).
"""
OF_ALL = ("--help", "--data-folder")
SENTENCE = re.compile(r"(.+?)(?:[.;:]?\s\((?:default|auto)\b.*|[.;](?:\s.*)?)?", re.DOTALL)
"""The first sentence of a help text, without a default, as its only group."""


def text() -> str:
    """The commands by what people want, then each option once, by the commands that have it."""
    return "\n".join([HEAD, *_usages(), *_options()]) + "\n"


def _usages() -> Iterator[str]:
    for kind, names in COMMANDS.items():
        yield from (f"## Commands that {kind}", "")
        for name in names:
            for command in commands_of(name).values():
                usage = (command.usage or "").replace("breakeven ", "", 1).replace("|", "or")
                yield f"* `{usage}`: {_sentence(command.description)}"
        yield ""


def _options() -> Iterator[str]:
    """Each option once, by the commands that have it; with its meaning if `run` is one of them."""
    commands_by_option: dict[tuple[str, str], list[str]] = {}
    for name in (name for names in COMMANDS.values() for name in names):
        for full_name, command in commands_of(name).items():
            for option in command._actions:
                if option.option_strings and _is_listed(option):
                    commands_by_option.setdefault(_described(option), []).append(full_name)
    options_by_commands: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for option, names in commands_by_option.items():
        options_by_commands.setdefault(tuple(names), []).append(option)
    yield "## Options"
    for commands, options in options_by_commands.items():
        heading = ", ".join(f"`{name}`" for name in commands)
        if "run" in commands:
            yield from ("", f"{heading}:", "")
            yield from (f"* `{name}`: {meaning}" for name, meaning in options)
        else:
            yield f"\n{heading}: {', '.join(f'`{name}`' for name, _ in options)}."


def _is_listed(option: argparse.Action) -> bool:
    return option.option_strings[-1] not in OF_ALL and option.help != argparse.SUPPRESS


def _described(option: argparse.Action) -> tuple[str, str]:
    """Name with value, and meaning."""
    name = next(name for name in option.option_strings if name.startswith("--"))
    named = ",".join(map(str, option.choices or ())) or option.dest.upper()
    value = "" if option.nargs == 0 else f" {option.metavar or named}"
    return name + value, _sentence(option.help)


def _sentence(text: str | None) -> str:
    match = SENTENCE.fullmatch(text or "")
    sentence = " ".join(match[1].replace("%%", "%").split()) if match else ""
    ends_inside = sentence.count("(") > sentence.count(")")
    return sentence.rpartition(" (")[0] if ends_inside else sentence


def commands_of(name: str) -> dict[str, argparse.ArgumentParser]:
    """A command and its actions, such as `queue add`, by their full names."""
    parser = stored.parser() if reads_database([name]) else cli.parser()
    command = _choices(parser)[name]
    actions = {f"{name} {action}": inner for action, inner in _choices(command).items()}
    return {name: command} | actions


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


if __name__ == "__main__":
    FILE.write_text(text())
