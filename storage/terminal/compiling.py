"""What the compiler did otherwise in one run than in another, as text."""

from collections.abc import Sequence

from breakeven.runner.texts import printable
from breakeven.storage.compiling.difference import (
    DONE,
    CompileDifference,
    CompiledRun,
    compile_difference,
    phases,
)
from breakeven.storage.numbers.formats import aligned_table, format_seconds

NOTHING = "The compiler was given the same and did the same in both runs."
SAME_WORK = "The compiler did the same in both runs; what it was given differs."
LONGEST = 100


def same_text(found: Sequence[CompileDifference]) -> str:
    """That nothing differs, or nothing of what the compiler did; empty where it did otherwise."""
    if not found:
        return NOTHING
    return "" if any(row.kind in DONE for row in found) else SAME_WORK


def compile_report(one: CompiledRun, other: CompiledRun, code: Sequence[str] = ()) -> str:
    """Who is compared, what differs, and how long each phase of compiling took. `code`: names of
    kept graphs and code that are not the same."""
    lines = [f"A  {printable(one.title)}", f"B  {printable(other.title)}", ""]
    found = compile_difference(one, other)
    if told := same_text(found):
        lines += [told, ""]
    if found:
        rows = [[row.kind, *map(_cell, (row.name, row.one, row.other))] for row in found]
        lines += aligned_table([["what", "where", "A", "B"], *rows], 4)
    lines += [f"kept file that differs: {printable(name)}" for name in code]
    times = [[row.phase, format_seconds(row.one), format_seconds(row.other)]
             for row in phases(one, other).itertuples()]  # fmt: skip
    return "\n".join([*lines, "", *aligned_table([["phase of compiling", "A", "B"], *times], 1)])


def _cell(text: str) -> str:
    said = printable(text)
    return said if len(said) <= LONGEST else f"{said[:LONGEST]} ..."
