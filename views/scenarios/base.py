"""What a scenario decides of its page and its report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pandas as pd

from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.views.parts.downloads import Card
from breakeven.views.shared.inert import Html, Markdown

Show: TypeAlias = Callable[[Store, pd.Series, Comparison], None]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table for reading, and its numbers."""

    title: Markdown
    name: str
    shown: pd.DataFrame
    numbers: pd.DataFrame


@dataclass(frozen=True, kw_only=True)
class Page:
    """The texts, tables and charts of an experiment in a report."""

    headline: Markdown
    is_bad: bool = False
    """Whether the headline is shown in red."""
    evidence: Markdown = ""
    """What stands behind the headline."""
    leaderboard: Html = ""
    captions: Sequence[Markdown] = ()
    warnings: Sequence[Markdown] = ()
    why: Sequence[Markdown] = ()
    """Why each backend is faster or slower, and findings about lost time."""
    tables: Sequence[Table] = ()
    cards: Sequence[Card] = ()


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """How experiments of a scenario are shown."""

    tabs: Mapping[str, Show]
    """The tabs of their page, by title."""
    report: Callable[[Store, Comparison], Page]
    """What a report shows of them."""
