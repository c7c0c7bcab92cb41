"""Our sentences as HTML, and foreign text of several lines made inert."""

import re
from html import escape

from breakeven.views.shared.inert import Html, Markdown, inert

LINK = re.compile(r'\[([^\]]*)\]\(definitions#(\w+) "[^"]*"\)')
BOLD = re.compile(r"\*\*(.+?)\*\*")
CODE = re.compile(r"`([^`]+)`")
MARKED = re.compile(
    r"\*\*(.+?)\*\*|`([^`]+)`|\[([^\]]+)\]\([^)\s]*\)|(?<!\w)\*([^*\s][^*]*)\*(?!\w)"
)
POINT = re.compile(r"^[-*] ")


def html(text: Markdown) -> Html:
    """The subset of Markdown that our sentences use, as HTML: bold, code, links to definitions.

    Foreign text in them already consists of entities.
    """
    lines = text.strip().replace("\n\n", "<br>").replace("\n- ", "<br>\N{BULLET} ")
    linked = LINK.sub(r'<a href="#def-\2">\1</a>', lines.removeprefix("- "))
    return CODE.sub(r"<code>\1</code>", BOLD.sub(r"<strong>\1</strong>", linked))


def inert_lines(text: str) -> Html:
    """A text of several lines, shown literally."""
    return "\n".join(inert(line) for line in text.splitlines())


def paragraphs(definition: str) -> Html:
    """A text of `docs/metrics.md`, whose content is trusted."""
    lines = re.split(r"\n(?=\n|[-*] |\|)", escape(definition, quote=False))
    lines_text = [POINT.sub("\N{BULLET} ", line.replace("\n", " ").strip()) for line in lines]
    return "<br>".join(MARKED.sub(_marked, line) for line in lines_text)


def _marked(match: re.Match[str]) -> Html:
    """Bold, code, the text of a link, or emphasis."""
    bold, code, words, stressed = match.groups()
    if stressed:
        return f"<em>{stressed}</em>"
    return (bold and f"<strong>{bold}</strong>") or (code and f"<code>{code}</code>") or words
