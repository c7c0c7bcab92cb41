"""What a report is put together from: a chart, a table, doubts, as HTML."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from breakeven.storage.numbers.metrics import DASH
from breakeven.storage.numbers.recorded import NUMBERS
from breakeven.views.parts.cards import Card
from breakeven.views.parts.exports import for_export
from breakeven.views.report.content import Table
from breakeven.views.report.markup import html
from breakeven.views.shared.inert import Html, Markdown, inert, inert_figure

MAX_ROWS = 200
"""Of a table that is read; its data have all of them."""


def place(at: Html, name: str) -> Html:
    """Where a chart of an experiment is found."""
    return f"{at}-{inert(name)}"


def figures(at: Html, cards: Sequence[Card]) -> Iterator[dict[str, Any]]:
    """What the scripts of the page draw: every figure of every card."""
    for card in cards:
        drawn = {title: figure(draw()) for title, draw in card.figures.items()}
        yield {"id": place(at, card.name), "figures": drawn}


def charts(at: Html, cards: Sequence[Card], screens: Sequence[str]) -> Html:
    """Where the charts are drawn; `screens`: names of those that are screens of a presentation."""
    made = "".join(
        chart(place(at, card.name), card.title, card.figures, html(card.explanation),
              "chart screen" if card.name in screens else "chart")
        for card in cards
    )  # fmt: skip
    return f'<section class="charts">{made}</section>'


def linked_here(leaderboard: Html) -> Html:
    """Its links lead to the definitions in this file."""
    return leaderboard.replace('target="_blank" href="definitions#', 'href="#def-')


def doubts(reasons: Sequence[Markdown], screen: Html) -> Html:
    listed = "".join(f"<li>{html(doubt)}</li>" for doubt in reasons)
    return (
        f'<section class="{screen}"><h2>What to keep in mind</h2><aside class="doubts">'
        f"<ul>{listed}</ul></aside></section>" if listed else ""
    )  # fmt: skip


def reasons(reasons_text: Sequence[Markdown]) -> Html:
    """Why backends are faster or slower, under a heading of its own."""
    listed = "".join(f"<li>{html(one)}</li>" for one in reasons_text)
    return f"<h2>Why</h2><ul>{listed}</ul>" if listed else ""


def chart(
    place: Html, title: Markdown, figures: Iterable[str], explained: Html, kind: Html
) -> Html:
    named = [inert(one) for one in figures if one]
    choice = "".join(f'<button data-figure="{name}">{name}</button>' for name in named)
    return (
        f'<figure class="{kind}" data-chart="{place}"><figcaption><strong>{html(title)}</strong>'
        f'<span class="choice">{choice}</span></figcaption><div class="plot" role="figure" '
        f'aria-label="{html(title)}"></div><details><summary>What it shows</summary>'
        f"<p>{explained}</p></details></figure>"
    )


def playback_place(at: Html, screen: Html) -> Html:
    return (
        f'<section class="as-it-went {screen}"><h2>As it went</h2><p class="quiet">Turns, '
        "compilations and losses of all runs, by the times in the journals.</p>"
        f'<div class="playback" data-playback="{at}-playback"></div></section>'
    )


def table(content: Table) -> Html:
    """As it is read; numbers to the right, written as pages write them."""
    frame = content.shown.drop(columns=["run_id", "label", "role"], errors="ignore")
    if frame.empty:
        return ""
    names = [str(name) for name in frame.columns]
    head = "".join(f"<th>{inert(_title(name))}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(*pair)}</td>' for pair in zip(names, row, strict=True))}</tr>"
        for row in frame.head(MAX_ROWS).itertuples(index=False)
    )
    more = len(frame) - MAX_ROWS
    note = f'<p class="quiet">and {more:,} more rows</p>' if more > 0 else ""
    return (
        f'<h2>{html(content.title)}</h2><div class="leaderboard" tabindex="0" role="region" '
        f'aria-label="{html(content.title)}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )


def _title(name: str) -> str:
    return NUMBERS[name].title if name in NUMBERS else name.replace("_", " ").capitalize()


def _cell(name: str, value: Any) -> Html:
    if isinstance(value, str):
        return inert(value)
    if value is None or (not isinstance(value, list | tuple | dict) and pd.isna(value)):
        return DASH
    is_number = name in NUMBERS and isinstance(value, int | float) and not isinstance(value, bool)
    return inert(NUMBERS[name].format(value) if is_number else value)


def figure(made: Any) -> dict[str, Any]:
    """As plotly.js reads it, without a theme: the page has its own."""
    plain = inert_figure(for_export(made)).update_layout(template=None)
    found: dict[str, Any] = json.loads(plain.to_json())
    return found
