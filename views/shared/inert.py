"""Makes foreign text inert: pages show it literally and interpret nothing in it.

Names, labels, reasons, journals and addresses come from people, files and programs. They may
contain Markdown, HTML or directives of Streamlit, which could make every reader's browser call a
stranger's server, or imitate a link of ours. `inert` escapes a text so that Markdown, HTML
(attributes too) and Plotly's labels show all its characters and interpret none.

`tests/views/test_inert.py` reads the sources of the pages: each value in Markdown or HTML there is
a literal, a number, or a result of this module. `tests/browser/test_every_page.py` checks the
pages.
"""

import re
from typing import Any, TypeAlias

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

Markdown: TypeAlias = str
"""Text for Streamlit's Markdown whose foreign parts are inert. A parameter of this type requires
such text, a result of this type guarantees it; the test checks both."""
Html: TypeAlias = str
"""The same for HTML."""

SPECIAL_CHARACTERS = re.compile(
    r"[\\`*\[\]<>&\"'$~|{}^]"
    r"|:(?!\s|$)"  # a directive such as `:red[...]`, an icon, an emoji, the scheme of an address
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # without a meaning inside a word
    r"|^(?:[-+](?=\s|$)|[-=]+\s*$|#{1,6}(?=\s|$)|\d{1,9}[.)](?=\s|$))"  # lists, headings
)
"""Characters that mean something in one of the formats; as entities they only show."""
AUTOLINK_STARTS = re.compile(
    r"(?<=http:)(?=//)|(?<=https:)(?=//)|(?<=www)(?=\.)"
    r"|(?<=[\w.+-])(?=@)"
    r"|:(?=[\w+-]+:)"
    r"|(?<=\s)(?=<?->?\s|--\s|[<>~]=\s)",
    re.IGNORECASE,
)
"""Starts of addresses, emoji, icons and arrows, which are searched after entities are decoded. An
invisible joiner of zero width breaks them."""
JOINER = "\N{WORD JOINER}"
BREAKS = re.compile(r"[\t\n\r\f\v\x85\u2028\u2029]+")
INVISIBLE_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, characters that change the direction of writing, and lone surrogates."""

INVISIBLE_IN_NOTES = re.compile(
    INVISIBLE_CHARACTERS.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f", 1)
)
ACTING_IN_NOTES = re.compile(r"[\\`\[\]<>&\"'$~|{}^]|:(?!\s|$)")
"""Syntax that has no effect in notes: links, code, HTML, formulas, directives."""

OUR_TAGS = re.compile(
    r'<br>|</?su[bp]>|<extra></extra>|<a target="_blank" href="definitions#\w+">|</a>'
)
"""HTML of our own figures, which Plotly reads in names, titles, ticks and hover texts."""


def inert(text: object) -> str:
    """The text for Markdown, HTML and Plotly, which show all of it and interpret nothing.

    Line breaks become spaces, control characters a replacement character.
    """
    separated = AUTOLINK_STARTS.sub(lambda match: match[0] + JOINER, plain(text))
    return SPECIAL_CHARACTERS.sub(
        lambda match: "".join(f"&#{ord(character)};" for character in match[0]), separated
    )


def code(text: object) -> Markdown:
    """The text as a code span in Markdown, for paths, options and other literal text.

    A code span decodes no entities and interprets nothing; only its fence must be longer than every
    run of backticks inside.
    """
    shown = plain(text).replace(":material/", f":{JOINER}material/")  # Streamlit reads it even here
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    space = " " if longest or not shown.strip() else ""
    return f"{fence}{space}{shown}{space}{fence}"


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


def plain(text: object) -> str:
    """The text for widgets that read no Markdown, such as entries of a selector and cells of a
    table: one line without invisible characters, which could reverse the text around them."""
    return INVISIBLE_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", BREAKS.sub(" ", str(text)))


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
