"""Links from numbers to their definitions, in text, axis titles and help.

Names of numbers are those of `storage.numbers.metrics`. The address has no slash in front, so it
leads to the page of definitions wherever the dashboard is served.
"""

import re
from collections.abc import Iterable
from html import unescape

from breakeven.storage.numbers.metrics import NUMBERS
from breakeven.storage.numbers.sentences import Figure, Sentence
from breakeven.views.shared.inert import Html, Markdown, inert

PAGE = "definitions"


def address(name: str) -> str:
    """`definitions#speedup`."""
    return f"{PAGE}#{NUMBERS[name].anchor}"


def linked(name: str, text: Markdown) -> Markdown:
    """Markdown: the text of a number, which says its definition on hover and leads to all of it."""
    return f'[{text}]({address(name)} "{NUMBERS[name].definition}")'


def sentence(stored: Sentence) -> Markdown:
    """Markdown: a sentence from storage, with each figure linked to its definition."""
    return "".join(
        linked(part.name, inert(part.text)) if isinstance(part, Figure) else inert(part)
        for part in stored.parts
    )


def anchor_html(name: str, text: str, title: str = "") -> Html:
    """The same link as HTML; `title` shows on hover instead of the definition."""
    hover = inert(title or NUMBERS[name].definition)
    return f'<a target="_blank" href="{address(name)}" title="{hover}">{inert(text)}</a>'


def axis(name: str, title: str = "") -> str:
    """An axis title with a link to the definition: the number's own with its unit, or `title`."""
    written = inert(title or NUMBERS[name].axis_title)
    return f'<a target="_blank" href="{address(name)}">{written}</a>'


def without_link(title: str) -> str:
    """An axis title without its link."""
    return unescape(re.sub(r"</?a\b[^>]*>", "", title))


def anchors_in(title: str) -> list[str]:
    """Anchors of the links in an axis title: none or one."""
    return re.findall(rf'"{PAGE}#(\w+)"', title)


def explained(names: Iterable[str]) -> Markdown:
    """Markdown for a help text: each number with its definition and the link."""
    definitions = [
        f"{linked(name, NUMBERS[name].title)}: {NUMBERS[name].definition}"
        for name in dict.fromkeys(names)
    ]
    return (
        definitions[0] if len(definitions) == 1 else "\n".join(f"- {text}" for text in definitions)
    )
