"""A chart with its data, independent of where it appears: on a page, in a report, as a picture."""

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
"""A file's data, or a function that reads them on request: reading more than is drawn is slow."""
THINNED = (
    "Of a run with more than 1,000 steps a line is drawn through the lowest and the highest point "
    "of each stretch of them; files of the data have every step."
)


@dataclass(frozen=True)
class Card:
    """A chart of `data` under its title.

    `draw` is one figure, or several of the same data by name. `data` is everything that was
    measured, even if the chart shows less. `name` is unique on the page and begins file names.
    `numbers`: names of the charted numbers in `storage.numbers.recorded`. `help` adds to their
    definitions.
    """

    title: Markdown
    draw: Draw | Mapping[str, Draw]
    data: Data
    name: str
    numbers: Sequence[str]
    help: Markdown = ""
    thinned: bool | None = None
    """Whether the chart shows less than was measured; None: if `data` is a function."""

    @property
    def figures(self) -> dict[str, Draw]:
        """The figures by name; a single one has an empty name."""
        return {"": self.draw} if callable(self.draw) else dict(self.draw)

    def figure(self, name: str) -> go.Figure:
        """The figure of that name."""
        return self.figures[name]()

    def written(self, name: str, group: str) -> str:
        """The named figure as JSON for `moving_chart`, computed once. It contains no HTML but our
        own, and keeps zoom and hidden lines as long as figure and `group` stay the same."""
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
        """The definitions of the charted numbers, and how to read the chart."""
        return "\n\n".join(filter(None, [explained(self.numbers), self.help, self.caveat]))

    @property
    def caveat(self) -> Markdown:
        """A remark on lines that show less than was measured."""
        thinned = callable(self.data) if self.thinned is None else self.thinned
        return THINNED if thinned else ""

    def table(self) -> pd.DataFrame:
        """All that was measured."""
        return self.data() if callable(self.data) else self.data
