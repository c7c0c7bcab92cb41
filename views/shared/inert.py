"""Foreign text made inert: shown as it is, and nothing else.

Names, labels, reasons, journals and addresses come from people, files and programs. They may
contain Markdown, HTML or directives of Streamlit. Shown as such, they could make every reader's
browser call a stranger's server, or pose as a link of ours. `inert` writes a text so that Markdown,
HTML (attributes too) and Plotly's labels all show its characters and act on none.

`tests/views/test_inert.py` reads the sources of the pages: whatever reaches Markdown or HTML there
is a literal, a number, or went through this module. `tests/browser/test_every_page.py` looks at
the pages.
"""

import re
from typing import Any, TypeAlias

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly

Markdown: TypeAlias = str
"""Text for Streamlit's Markdown in which everything foreign is inert. As the type of a parameter it
asks callers for such text, as that of a result it promises it; the test holds both to it."""
Html: TypeAlias = str
"""The same for HTML."""

ENTITIES = re.compile(
    r"[\\`*\[\]<>&\"'$~|{}^]"
    r"|:(?!\s|$)"  # a directive as `:red[...]`, an icon, an emoji, the scheme of an address
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # within a word it has no meaning
    r"|^(?:[-+](?=\s|$)|[-=]+\s*$|#{1,6}(?=\s|$)|\d{1,9}[.)](?=\s|$))"  # lists, headings
)
"""What has a meaning somewhere; as an entity it has none, and reads the same."""
FOUND_LATER = re.compile(
    r"(?<=http:)(?=//)|(?<=https:)(?=//)|(?<=www)(?=\.)"
    r"|(?<=[\w.+-])(?=@)"
    r"|:(?=[\w+-]+:)"
    r"|(?<=\s)(?=<?->?\s|--\s|[<>~]=\s)",
    re.IGNORECASE,
)
"""Where addresses, emoji, icons and arrows begin; searched after entities are decoded. An invisible
joiner of zero width breaks them."""
JOINER = "\N{WORD JOINER}"
BREAKS = re.compile(r"[\t\n\r\f\v\x85\u2028\u2029]+")
UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, those that turn the direction of writing, and lone surrogates."""

UNSEEN_IN_NOTES = re.compile(UNSEEN.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f", 1))
ACTING_IN_NOTES = re.compile(r"[\\`\[\]<>&\"'$~|{}^]|:(?!\s|$)")
"""What notes may not do: links, code, HTML, formulas, directives."""

OUR_TAGS = re.compile(
    r'<br>|</?su[bp]>|<extra></extra>|<a target="_blank" href="definitions#\w+">|</a>'
)
"""What figures of ours say in HTML, as Plotly reads it in names, titles, ticks and hover texts."""


def inert(text: object) -> str:
    """The text for Markdown, HTML and Plotly: all of it shown, nothing of it acted upon.

    Lines and control characters become spaces or a sign that something was there.
    """
    apart = FOUND_LATER.sub(lambda found: found[0] + JOINER, plain(text))
    return ENTITIES.sub(lambda found: "".join(f"&#{ord(one)};" for one in found[0]), apart)


def code(text: object) -> Markdown:
    """The text as a span of code in Markdown, for paths, options and what else is typed as it is.

    In such a span no entity is read and nothing else is acted upon; only its fence must be longer
    than every run of backticks inside.
    """
    shown = plain(text).replace(":material/", f":{JOINER}material/")  # Streamlit's own reading
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    space = " " if longest or not shown.strip() else ""
    return f"{fence}{space}{shown}{space}{fence}"


def notes(text: str) -> Markdown:
    """A person's notes: emphasis, headings, lists and rules are acted upon, and nothing else.

    No links, images, code, HTML, formulas or directives of Streamlit: those show as written.
    """
    lines = UNSEEN_IN_NOTES.sub("\N{REPLACEMENT CHARACTER}", text).splitlines()
    return "\n".join(map(_note_line, lines))


def _note_line(line: str) -> str:
    # Four spaces would begin a block of code, in which entities are shown as such.
    indented = line.expandtabs(2).lstrip(" ")
    depth = min(3, len(line.expandtabs(2)) - len(indented))
    apart = FOUND_LATER.sub(lambda found: found[0] + JOINER, indented)
    return " " * depth + ACTING_IN_NOTES.sub(lambda found: f"&#{ord(found[0])};", apart)


def plain(text: object) -> str:
    """The text for widgets that read no Markdown, such as the entries of a selector and the cells
    of a table: on one line, and without invisible characters, which could reverse the text around
    them."""
    return UNSEEN.sub("\N{REPLACEMENT CHARACTER}", BREAKS.sub(" ", str(text)))


def inert_json(figure: go.Figure, **layout: str) -> str:
    """The same as JSON for plotly.js, with these properties of the layout besides; the figure
    itself stays as it is, and is looked through once."""
    whole = figure.to_dict()
    cleaned: str = to_json_plotly(_cleaned({**whole, "layout": {**whole["layout"], **layout}}))
    return cleaned


def inert_figure(figure: go.Figure) -> go.Figure:
    """The figure with no HTML in it but our own; the same one where there is nothing to change.

    Plotly reads HTML in every text: names, ticks, titles, hover, categories. So all of them are
    looked through here, where figures leave, and not where they are made.
    """
    whole = figure.to_dict()
    cleaned = _cleaned(whole)
    return figure if cleaned is whole else go.Figure(cleaned)


def _cleaned(value: Any) -> Any:
    """The value itself where nothing in it changes; numbers, which are most of it, are skipped."""
    if isinstance(value, str):
        return _without_foreign_tags(value)
    if isinstance(value, dict):
        # An array of numbers is written as one long text.
        changed = {key: one if key == "bdata" else _cleaned(one) for key, one in value.items()}
        return changed if any(changed[key] is not value[key] for key in value) else value
    if isinstance(value, list | tuple) or str(getattr(value, "dtype", "")) == "object":
        entries = [_cleaned(one) for one in value]
        same = all(new is old for new, old in zip(entries, value, strict=True))
        return value if same else entries
    return value


def _without_foreign_tags(text: str) -> str:
    if "<" not in text and not UNSEEN.search(text):
        return text
    kept = OUR_TAGS.findall(text)
    foreign = [UNSEEN.sub(" ", part).replace("<", "&lt;") for part in OUR_TAGS.split(text)]
    cleaned = "".join(part + tag for part, tag in zip(foreign, [*kept, ""], strict=True))
    return text if cleaned == text else cleaned
