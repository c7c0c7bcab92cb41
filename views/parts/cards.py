"""A chart with its data, before anybody shows it: on a page, in a report, as a picture."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import pandas as pd
import plotly.graph_objects as go

from breakeven.views.shared.inert import Markdown, inert_json
from breakeven.views.shared.links import explained

Draw = Callable[[], go.Figure]
Data: TypeAlias = pd.DataFrame | Callable[[], pd.DataFrame]
"""What a file holds, or what reads it when somebody asks: more than what is drawn takes a while."""
THINNED = (
    "Of a run with more than 1,000 steps a line is drawn through the lowest and the highest point "
    "of each stretch of them; files of the data have every step."
)


@dataclass(frozen=True)
class Card:
    """A chart of `data` under its title.

    `draw` has one figure, or several of the same data by their names. `data` is all that was
    measured, however little of it is drawn. `name` is unique on the page; files are named after it.
    `numbers`: what is charted, as `storage.numbers.recorded` names it. `help` adds to what they
    mean.
    """

    title: Markdown
    draw: Draw | Mapping[str, Draw]
    data: Data
    name: str
    numbers: Sequence[str]
    help: Markdown = ""
    thinned: bool | None = None
    """Whether less is drawn than was measured; None: if the data are read when somebody asks."""

    @property
    def figures(self) -> dict[str, Draw]:
        """By name; that of a single one is empty."""
        return {"": self.draw} if callable(self.draw) else dict(self.draw)

    def figure(self, name: str) -> go.Figure:
        """The figure of that name."""
        return self.figures[name]()

    def written(self, name: str, group: str) -> str:
        """The figure of that name for `moving_chart`, written once: with no HTML in it but our own,
        and keeping zoom and hidden lines as long as it shows the same of the same `group`."""
        key = (name, group)
        if key not in self._written:
            revision = f"{group} {self.name} {name}"
            self._written[key] = inert_json(self.figure(name), uirevision=revision)
        return self._written[key]

    @cached_property
    def _written(self) -> dict[tuple[str, str], str]:
        return {}

    @property
    def explanation(self) -> Markdown:
        """What is charted, and how to read it."""
        return "\n\n".join(filter(None, [explained(self.numbers), self.help, self.caveat]))

    @property
    def caveat(self) -> Markdown:
        """What a reader of the drawn lines must know."""
        thinned = callable(self.data) if self.thinned is None else self.thinned
        return THINNED if thinned else ""

    def table(self) -> pd.DataFrame:
        """All that was measured."""
        return self.data() if callable(self.data) else self.data
