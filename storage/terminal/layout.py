"""Tables and wrapped lines for the terminal, in its width; a pipe, a log or a file has no width.

Without the package `rich` tables are aligned, and nothing is wrapped.
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod
    from rich.table import Table

HAS_RICH = find_spec("rich") is not None
UNLIMITED = 1_000_000
"""Columns of what is no terminal, so that `grep` finds a row and a sentence in one line."""
USUAL_WIDTH = 80
"""Columns of a list that is cut to fit, where there is no terminal."""
GAP = 2
COMMAND = "breakeven "

Rows = Sequence[Sequence[str]]
"""The first row has the titles."""


def aligned_table(rows: Rows, num_text_columns: int, *, narrows: bool = False) -> list[str]:
    """The lines of a table. The first columns are words, aligned left; the others to the right.

    Columns that do not fit follow in a further table, which begins with the first column again. A
    cell of more than a third of the terminal wraps at words; a word of more than half of it is
    broken. A table that `narrows` wraps its first and last column further instead, until all fit.
    """
    if not HAS_RICH:
        return _plain(rows, num_text_columns)
    from rich.cells import cell_len

    console = _console()
    table = _empty_table()
    count, needed, last = 0, 0, len(rows[0]) - 1
    for column in zip(*rows, strict=True):
        words = (cell_len(word) for cell in column for word in cell.split())
        width = max(
            min(max(map(cell_len, column)), console.width // 3),
            min(max(words, default=0), (console.width - GAP) // 2),
        )
        needed += width + GAP
        if count > 1 and needed - GAP > console.width and not narrows:
            break
        justify: JustifyMethod = "left" if count < num_text_columns else "right"
        table.add_column(
            column[0],
            width=None if narrows else width,
            no_wrap=narrows and count not in (0, last),
            overflow="fold",
            justify=justify,
        )
        count += 1
    for row in rows[1:]:
        table.add_row(*row[:count])
    lines = _drawn(console, table)
    rest = [[row[0], *row[count:]] for row in rows if row[count:]]
    return (
        [*lines, "", *aligned_table(rest, max(1, num_text_columns - count + 1))] if rest else lines
    )


def cut_table(rows: Rows, num_cut_columns: int) -> list[str]:
    """A line per row, never wider than the terminal: the first columns after the first one are cut
    to fit, as `BERT-base on star revi…`."""
    if not HAS_RICH:
        return _plain(rows, len(rows[0]))
    from rich.cells import cell_len

    console, table = _console(USUAL_WIDTH), _empty_table()
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    too_wide = sum(widths) + GAP * (len(widths) - 1) - console.width
    for _ in range(too_wide):
        widest = max(range(1, 1 + num_cut_columns), key=widths.__getitem__)
        widths[widest] = max(1, widths[widest] - 1)
    for title, width in zip(rows[0], widths, strict=True):
        table.add_column(title, width=width, no_wrap=True, overflow="ellipsis")
    for row in rows[1:]:
        table.add_row(*row)
    return _drawn(console, table)


def wrapped(text: str) -> str:
    """The text with lines that end at a word. A line with a command stays whole: it is copied."""
    if not HAS_RICH:
        return text
    from rich.text import Text

    console, lines = _console(), list[str]()
    for line in text.split("\n"):
        words = line.lstrip(" ")
        indent = " " * (len(line) - len(words))
        parts = Text(words).wrap(console, console.width - len(indent))
        lines += [line] if COMMAND in line else [f"{indent}{part}".rstrip() for part in parts]
    return "\n".join(lines)


def _console(otherwise: int = UNLIMITED) -> "Console":
    """In the width of the terminal, `otherwise` without one. It has no colours, and what strangers
    wrote is no markup."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else otherwise
    return Console(width=width, color_system=None, markup=False, emoji=False, highlight=False)


def _empty_table() -> "Table":
    """A table with a line below the titles, and no other lines."""
    from rich.box import Box
    from rich.table import Table

    dashes = Box("    \n    \n -  \n    \n    \n    \n    \n    \n", ascii=True)
    return Table(box=dashes, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))


def _drawn(console: "Console", table: "Table") -> list[str]:
    drawn = console.render_lines(table, pad=False)
    return ["".join(part.text for part in line).rstrip() for line in drawn]


def _plain(rows: Rows, num_text_columns: int) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ruled = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return [
        (" " * GAP)
        .join(
            cell.ljust(width) if place < num_text_columns else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        .rstrip()
        for row in ruled
    ]
