"""What the compiler did otherwise in one run than in another, as text."""

from runner.texts import printable
from storage.compiling.difference import CompiledRun, compile_difference, phases
from storage.numbers.formats import aligned_table, format_seconds

NOTHING = "The compiler was given the same and did the same in both runs."
LONGEST = 100


def compile_report(one: CompiledRun, other: CompiledRun) -> str:
    """Who is compared, what differs, and how long each phase of compiling took."""
    lines = [f"A  {printable(one.title)}", f"B  {printable(other.title)}", ""]
    found = compile_difference(one, other)
    if found:
        rows = [[row.kind, *map(_cell, (row.name, row.one, row.other))] for row in found]
        lines += aligned_table([["what", "where", "A", "B"], *rows], 4)
    else:
        lines.append(NOTHING)
    times = [[row.phase, format_seconds(row.one), format_seconds(row.other)]
             for row in phases(one, other).itertuples()]  # fmt: skip
    return "\n".join([*lines, "", *aligned_table([["phase of compiling", "A", "B"], *times], 1)])


def _cell(text: str) -> str:
    said = printable(text)
    return said if len(said) <= LONGEST else f"{said[:LONGEST]} ..."
