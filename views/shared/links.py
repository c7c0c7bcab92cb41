"""Links from numbers to their definitions, as text, axes and help show them.

A number is named as in `storage.numbers.recorded`. The address has no slash in front, so that it
leads to the page of definitions wherever the dashboard is served.
"""

import re
from collections.abc import Iterable
from html import unescape

from breakeven.storage.numbers.recorded import NUMBERS
from breakeven.storage.numbers.sentences import Figure, Sentence
from breakeven.views.shared.inert import Html, Markdown, inert

PAGE = "definitions"


def address(name: str) -> str:
    """`definitions#speedup`."""
    return f"{PAGE}#{NUMBERS[name].anchor}"


def linked(name: str, text: Markdown) -> Markdown:
    """Markdown: the text, which says a number, leading to the number's definition."""
    return f"[{text}]({address(name)})"


def sentence(stored: Sentence) -> Markdown:
    """Markdown: a sentence of storage's, each figure in it leading to its definition."""
    return "".join(
        linked(part.name, inert(part.text)) if isinstance(part, Figure) else inert(part)
        for part in stored.parts
    )


def anchor_html(name: str, text: str, title: str = "") -> Html:
    """HTML of the same; `title` shows on hover. Plotly reads it in titles of axes, too."""
    hover = f' title="{inert(title)}"' if title else ""
    return f'<a target="_blank" href="{address(name)}"{hover}>{inert(text)}</a>'


def axis(name: str, title: str = "") -> str:
    """An axis title that leads to the definition: the number's own with its unit, or another."""
    return anchor_html(name, title or NUMBERS[name].axis_title)


def without_link(title: str) -> str:
    """An axis title as it reads."""
    return unescape(re.sub(r"</?a\b[^>]*>", "", title))


def anchors_in(title: str) -> list[str]:
    """The anchors to which an axis title leads: none, or one."""
    return re.findall(rf'"{PAGE}#(\w+)"', title)


def explained(names: Iterable[str]) -> Markdown:
    """Markdown for a help text: each number with its definition in a sentence, and the link."""
    definitions = [f"{linked(name, NUMBERS[name].title)}: {NUMBERS[name].definition}"
            for name in dict.fromkeys(names)]  # fmt: skip
    return definitions[0] if len(definitions) == 1 else "\n".join(f"- {one}" for one in definitions)
