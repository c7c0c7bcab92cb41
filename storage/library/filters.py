"""Applies filters to the catalog; `runner.commands.filters` defines them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.runner.commands.conditions import Condition
from breakeven.runner.commands.filters import COMPUTED, FACETS, Filter
from breakeven.storage.numbers.formats import format_verdict

Mask = NDArray[np.bool_]
COLUMN_OF = {"backend": "backends", "environment": "environments", "tag": "tags"}
"""Facets with several values per row; other columns have the facet's name and one value per row."""
NUMBER_OF = {
    "speedup": ("speedup", 1.0),
    "compile": ("compile_seconds", 1.0),
    "steps": ("break_even_steps", 1.0),
    "duration": ("duration", 1.0),
    "doubts": ("doubts", 1.0),
    "mb": ("total_bytes", 1e-6),
}
"""Column and factor of each number that a filter text can compare."""
SEARCHED = (
    "experiment_id", "name", "state", "model", "data", "task", "scenario", "device", "host",
    "torch", "transformers", "precision", "backends", "environments", "tags", "notes", "origin",
    "suite_run", "verdict", "parity", "problem",
)  # fmt: skip
"""Columns in which a filter searches words."""


def chosen(frame: pd.DataFrame, wanted: Filter) -> pd.DataFrame:
    """The rows of a catalog that match a filter, in its order, rows without a sort value last;
    raises ValueError for an invalid text."""
    kept = frame[_mask(frame, wanted) & _all(frame, _facet_masks(frame, wanted).values())]
    return kept.sort_values(
        _sort_column(wanted.sort), ascending=not wanted.sort.startswith("-"), kind="stable",
        key=lambda cells: cells.map(_key),
    )  # fmt: skip


def facet_counts(frame: pd.DataFrame, wanted: Filter) -> dict[str, Counter[str]]:
    """The number of rows for each value of each facet that match the text and the other facets."""
    base, masks = _mask(frame, wanted), _facet_masks(frame, wanted)
    counts = {}
    for name in FACETS:
        others = _all(frame, (mask for facet, mask in masks.items() if facet != name))
        cells = frame.loc[base & others, COLUMN_OF.get(name, name)]
        counts[name] = Counter(value for cell in cells for value in _values(cell))
    return counts


def searchable(row: Mapping[str, Any]) -> str:
    """All searched texts of a row in lower case."""
    texts = [" ".join(_names(name, row.get(name))) for name in SEARCHED]
    return "\n".join(texts).casefold()


def _mask(frame: pd.DataFrame, wanted: Filter) -> Mask:
    """The rows that match the text and the choice of archived experiments."""
    archived = np.array(frame["archived"], dtype=bool)
    mask = {"no": ~archived, "yes": np.ones(len(frame), dtype=bool), "only": archived}
    masks = [mask[wanted.archived]]
    masks += [_compared(frame, compared) for compared in wanted.terms.comparisons]
    masks += [_having(frame, word) for word in wanted.terms.wanted]
    masks += [~_having(frame, word) for word in wanted.terms.unwanted]
    return _all(frame, masks)


def _having(frame: pd.DataFrame, word: str) -> Mask:
    return np.array([word in text for text in frame["text"]], dtype=bool)


def _facet_masks(frame: pd.DataFrame, criteria: Filter) -> dict[str, Mask]:
    return {
        name: np.array([any(value in wanted for value in _names(name, cell))
                        for cell in frame[COLUMN_OF.get(name, name)]], dtype=bool)
        for name, wanted in criteria.facets.items() if wanted
    }  # fmt: skip


def _names(facet: str, cell: Any) -> tuple[str, ...]:
    """Names that match the values of a cell; a verdict has a name in files and one on pages."""
    values = _values(cell)
    return (*values, *map(format_verdict, values)) if facet in COMPUTED else values


def _all(frame: pd.DataFrame, masks: Iterable[Mask]) -> Mask:
    every: Mask = np.logical_and.reduce([np.ones(len(frame), dtype=bool), *masks])
    return every


def _compared(frame: pd.DataFrame, condition: Condition) -> Mask:
    """The rows that satisfy a comparison; unknown numbers never do."""
    column, factor = NUMBER_OF[condition.name]
    numbers = np.array(frame[column], dtype=float) * factor
    assert condition.limit is not None, "a word of a text has a number behind its sign"
    found: Mask = numbers > condition.limit if condition.above else numbers < condition.limit
    return found


def _values(cell: Any) -> tuple[str, ...]:
    if isinstance(cell, tuple | list):
        return tuple(map(str, cell))
    return () if cell is None or cell != cell else (str(cell),)


def _sort_column(sort: str) -> str:
    name = sort.removeprefix("-")
    return "submitted" if name == "when" else NUMBER_OF.get(name, (name, 1.0))[0]


def _key(cell: Any) -> Any:
    return cell.casefold() if isinstance(cell, str) else cell
