"""Tables in Markdown, and documents that contain them."""

from collections.abc import Mapping, Sequence
from pathlib import Path


def markdown(rows: Sequence[Mapping[str, object]]) -> str:
    """A table, whose first row names the columns."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(row.values() for row in rows)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def write(file: Path, begin: str, end: str, text: str) -> None:
    """Replaces what a document has between two marks."""
    head, rest = file.read_text().split(begin)
    file.write_text(f"{head}{begin}\n\n{text}\n{end}{rest.split(end)[1]}")
