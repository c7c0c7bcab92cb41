"""Tables and wrapped lines for the terminal, in its width; a pipe, a log or a file has no width."""

import sys
from collections.abc import Sequence

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

UNLIMITED = 1_000_000
"""Columns of what is no terminal, so that `grep` finds a row and a sentence in one line."""
GAP = 2
DASHES = Box("    \n    \n -  \n    \n    \n    \n    \n    \n", ascii=True)
"""A line below the titles, and nothing else."""
COMMAND = "breakeven "


def _console() -> Console:
    """Without colours; what strangers wrote is no markup."""
    width = None if sys.stdout.isatty() else UNLIMITED
    return Console(width=width, color_system=None, markup=False, emoji=False, highlight=False)


def aligned_table(rows: Sequence[Sequence[str]], num_text_columns: int) -> list[str]:
    """The lines of a table; the first row holds the titles.

    The first columns are words, aligned left; the others to the right. Columns that do not fit
    follow in a further table, which begins with the first column again. A cell of more
    than a third of the terminal wraps at words; a word of more than half of it is broken.
    """
    console = _console()
    count, needed = 0, 0
    table = Table(box=DASHES, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for column in zip(*rows, strict=True):
        words = (cell_len(word) for cell in column for word in cell.split())
        width = max(
            min(max(map(cell_len, column)), console.width // 3),
            min(max(words, default=0), (console.width - GAP) // 2),
        )
        needed += width + GAP
        if count > 1 and needed - GAP > console.width:
            break
        justify: JustifyMethod = "left" if count < num_text_columns else "right"
        table.add_column(column[0], width=width, overflow="fold", justify=justify)
        count += 1
    for row in rows[1:]:
        table.add_row(*row[:count])
    drawn = console.render_lines(table, pad=False)
    lines = ["".join(part.text for part in line).rstrip() for line in drawn]
    rest = [[row[0], *row[count:]] for row in rows if row[count:]]
    return (
        [*lines, "", *aligned_table(rest, max(1, num_text_columns - count + 1))] if rest else lines
    )


def wrapped(text: str) -> str:
    """The text with lines that end at a word. A line with a command stays whole: it is copied."""
    console, lines = _console(), list[str]()
    for line in text.split("\n"):
        words = line.lstrip(" ")
        indent = " " * (len(line) - len(words))
        parts = Text(words).wrap(console, console.width - len(indent))
        lines += [line] if COMMAND in line else [f"{indent}{part}".rstrip() for part in parts]
    return "\n".join(lines)
