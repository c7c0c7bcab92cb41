"""The charts of an experiment that is over as a reader meets them first, kept beyond the process.

A page shows one figure of each card; that one is kept as it is sent to the browser. Whatever else
somebody asks for, another figure, the data, a picture, is drawn from the store, as ever.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.metadata import version

import pandas as pd
import plotly.graph_objects as go

from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.kept import results
from breakeven.storage.kept.code_version import hash_of
from breakeven.views.parts.cards import Card, Charts
from breakeven.views.parts.exports import origin_name
from breakeven.views.shared.inert import Markdown

NAME = "charts"


@dataclass(frozen=True, kw_only=True)
class KeptCard:
    """A card as it is shown first."""

    title: Markdown
    figures: Sequence[str]
    """The names of all, the one that is shown first at the beginning."""
    name: str
    numbers: Sequence[str]
    help: Markdown
    thinned: bool
    written: str
    """The first figure, as `Card.written` says it."""


@dataclass(frozen=True, kw_only=True)
class KeptCharts:
    """In the places of `Charts`."""

    above: Sequence[KeptCard]
    left: Sequence[KeptCard]
    right: Sequence[KeptCard]
    below: Sequence[KeptCard]


KINDS = (KeptCharts, KeptCard)


def keep(store: Store, experiment_id: str, draw: Callable[[], tuple[Comparison, Charts]]) -> None:
    """Keeps the charts of all runs, unless they are kept already; `draw`: the comparison as it is
    by then, and its charts."""
    results.keep(store, experiment_id, NAME, KINDS, lambda: _told(*draw()), drawing_version())


def all_kept(store: Store) -> set[tuple[str, int, int]]:
    """Of which experiments, in which of their revisions, the charts are kept."""
    return results.all_known(store, NAME, drawing_version())


def find(store: Store, comparison: Comparison, draw: Callable[[], Charts]) -> Charts | None:
    """The charts of all runs as they were kept, or None; `draw`: what they are when they are drawn
    from the store."""
    found = results.known(store, comparison.experiment_id, NAME, KINDS, drawing_version())
    if found is None:
        return None
    group, drawn = _group(comparison), _Drawn(draw)
    return Charts(
        *(
            [drawn.stood_for_by(one, group) for one in place]
            for place in (found.above, found.left, found.right, found.below)
        )
    )


@cache
def drawing_version() -> str:
    """Of all that makes a figure of a comparison, beside what `code_version` covers."""
    return f"{hash_of(houses=('views',))} plotly {version('plotly')}"


def _group(comparison: Comparison) -> str:
    return origin_name(comparison.spec.name, comparison.experiment_id)


def write(comparison: Comparison, charts: Charts) -> None:
    """Writes the figures that are shown first, where nobody did."""
    for card in charts.all:
        card.written(next(iter(card.figures)), _group(comparison))


def _told(comparison: Comparison, charts: Charts) -> KeptCharts:
    group = _group(comparison)
    above, left, right, below = (
        [_card(one, group) for one in place]
        for place in (charts.above, charts.left, charts.right, charts.below)
    )
    return KeptCharts(above=above, left=left, right=right, below=below)


def _card(card: Card, group: str) -> KeptCard:
    names = list(card.figures)
    return KeptCard(
        title=card.title,
        figures=names,
        name=card.name,
        numbers=list(card.numbers),
        help=card.help,
        thinned=bool(card.caveat),
        written=card.written(names[0], group),
    )


class _Drawn:
    """The charts as they are drawn from the store, once anything of them is asked for."""

    def __init__(self, draw: Callable[[], Charts]) -> None:
        self._draw = draw

    @cached_property
    def cards(self) -> dict[str, Card]:
        return {card.name: card for card in self._draw().all}

    def stood_for_by(self, kept: KeptCard, group: str) -> Card:
        draw = {name: partial(self.figure, kept.name, name) for name in kept.figures}
        card = Card(
            kept.title,
            draw.get("", draw),
            partial(self.data, kept.name),
            kept.name,
            kept.numbers,
            kept.help,
            kept.thinned,
        )
        card.know(kept.figures[0], group, kept.written)
        return card

    def figure(self, card: str, name: str) -> go.Figure:
        return self.cards[card].figure(name)

    def data(self, card: str) -> pd.DataFrame:
        return self.cards[card].table()
