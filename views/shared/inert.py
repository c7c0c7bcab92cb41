"""Makes foreign text inert: pages show it literally and interpret nothing in it.

Names, labels, reasons, journals and addresses come from people, files and programs. They may
contain Markdown, HTML or directives of Streamlit, which could make every reader's browser call a
stranger's server, or imitate a link of ours. `inert` of `storage/words/inert.py` escapes a text.

`tests/views/test_inert.py` reads the sources of the pages: each value in Markdown or HTML there is
a literal, a number, or a result of this module. `tests/browser/test_every_page.py` checks the
pages.
"""

import re
from typing import Any, TypeAlias

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

from breakeven.storage.words.inert import (
    AUTOLINK_STARTS,
    INVISIBLE_CHARACTERS,
    JOINER,
    code,
    inert,
    plain,
)

__all__ = [
    "JOINER",
    "Html",
    "Markdown",
    "code",
    "inert",
    "inert_figure",
    "inert_json",
    "notes",
    "plain",
    "prose",
]

Markdown: TypeAlias = str
"""Text for Streamlit's Markdown whose foreign parts are inert. A parameter of this type requires
such text, a result of this type guarantees it; the test checks both."""
Html: TypeAlias = str
"""The same for HTML."""

INVISIBLE_IN_NOTES = re.compile(
    INVISIBLE_CHARACTERS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f", 1)
)
ACTING_IN_NOTES = re.compile(r"[\\`\[\]<>&\"'$~|{}^]|:(?!\s|$)")
"""Syntax that has no effect in notes: links, code, HTML, formulas, directives."""

OUR_TAGS = re.compile(
    r'<br>|</?su[bp]>|<extra></extra>|<a target="_blank" href="definitions#\w+">|</a>'
)
"""HTML of our own figures, which Plotly reads in names, titles, ticks and hover texts."""


def prose(text: object) -> Markdown:
    """One of our sentences, in which backticks mark code; foreign texts in it stay inert."""
    parts = plain(text).split("`")
    if len(parts) % 2 == 0:  # a backtick that opens or closes nothing
        return inert(text)
    return "".join(code(part) if number % 2 else inert(part) for number, part in enumerate(parts))


def notes(text: str) -> Markdown:
    """A person's notes, with emphasis, headings, lists and rules.

    Links, images, code, HTML, formulas and directives of Streamlit show as written.
    """
    lines = INVISIBLE_IN_NOTES.sub("\N{REPLACEMENT CHARACTER}", text).splitlines()
    return "\n".join(map(_note_line, lines))


def _note_line(line: str) -> str:
    # Four spaces would begin a code block, which shows entities undecoded.
    indented = line.expandtabs(2).lstrip(" ")
    depth = min(3, len(line.expandtabs(2)) - len(indented))
    separated = AUTOLINK_STARTS.sub(lambda match: match[0] + JOINER, indented)
    return " " * depth + ACTING_IN_NOTES.sub(lambda match: f"&#{ord(match[0])};", separated)


def inert_json(figure: dict[str, Any]) -> str:
    """The inert figure, of `to_dict`, as JSON for plotly.js; leaves the figure unchanged."""
    cleaned: str = to_json_plotly(_cleaned(figure))
    return cleaned


def inert_figure(figure: go.Figure) -> go.Figure:
    """The figure without any HTML but our own; the same object if nothing changes.

    Plotly reads HTML in every text: names, ticks, titles, hover, categories. So all texts are
    checked here, where figures leave, and not where they are made.
    """
    content = figure.to_dict()
    cleaned = _cleaned(content)
    return figure if cleaned is content else go.Figure(cleaned)


def _cleaned(value: Any) -> Any:
    """The value itself if nothing in it changes; skips numbers, the largest part of a figure."""
    if isinstance(value, str):
        return _without_foreign_tags(value)
    if isinstance(value, dict):
        # An array of numbers is one long text.
        changed = {
            key: entry if key == "bdata" else _cleaned(entry) for key, entry in value.items()
        }
        return changed if any(changed[key] is not value[key] for key in value) else value
    if isinstance(value, list | tuple) or str(getattr(value, "dtype", "")) == "object":
        entries = [_cleaned(entry) for entry in value]
        same = all(new is old for new, old in zip(entries, value, strict=True))
        return value if same else entries
    return value


def _without_foreign_tags(text: str) -> str:
    if "<" not in text and not INVISIBLE_CHARACTERS.search(text):
        return text
    kept = OUR_TAGS.findall(text)
    foreign = [
        INVISIBLE_CHARACTERS.sub(" ", part).replace("<", "&lt;") for part in OUR_TAGS.split(text)
    ]
    cleaned = "".join(part + tag for part, tag in zip(foreign, [*kept, ""], strict=True))
    return text if cleaned == text else cleaned
