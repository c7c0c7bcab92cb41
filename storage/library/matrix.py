"""A matrix of backends by models, batch sizes, devices or versions, with the newest experiments."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from breakeven.runner.specs.arm_fields import ENVIRONMENT_MARK

Emptiness = Literal["not run", "not finished", "not measured", "not trusted", "unsure"]
ACROSS = (
    "model",
    "data",
    "task",
    "scenario",
    "batch",
    "precision",
    "device",
    "host",
    "torch",
    "transformers",
    "environment",
)
"""Possible columns of the matrix: columns of `backend_rows`."""
OF_ENVIRONMENT = ("torch", "transformers", "environment")
"""Columns in which one backend in several environments has several cells, and so is one row."""
QUANTITIES = ("speedup", "break_even_steps", "compile_seconds", "peak_memory_bytes", "parity")
"""Possible values of a cell: names in METRICS, and columns of `backend_rows`."""


@dataclass(frozen=True, kw_only=True)
class MatrixCell:
    """A backend under one condition."""

    backend: str
    column: str
    empty: Emptiness | None = None
    """Why there is no value; None if there is one."""
    value: Any = None
    """A number, infinite for never, or a verdict."""
    low: float | None = None
    """The 95 % interval of a speedup."""
    high: float | None = None
    verdict: str | None = None
    """Verdict of the speed."""
    parity: str | None = None
    state: str | None = None
    """The state of the shown run."""
    experiment_id: str | None = None
    num_experiments: int = 0
    """The number of experiments in the cell; the newest one with the value is shown, or else the
    newest."""


@dataclass(frozen=True, kw_only=True)
class BackendMatrix:
    """Cells by backend, the one with values in most columns first, and by column."""

    across: str
    quantity: str
    backends: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[MatrixCell, ...]
    """All cells, row by row."""
    mixed: dict[str, tuple[str, ...]]
    """Other settings that differ between the shown experiments, with their values: neighbouring
    cells may also differ in these."""

    def rows(self) -> list[list[MatrixCell]]:
        """The cells of each backend."""
        width = len(self.columns)
        return [
            list(self.cells[start : start + width]) for start in range(0, len(self.cells), width)
        ]


def matrix(rows: pd.DataFrame, across: str, quantity: str) -> BackendMatrix:
    """The matrix of `backend_rows`, which are in order from the oldest."""
    by_place: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows.to_dict("records"):
        backend = row["backend"]
        if across in OF_ENVIRONMENT:
            backend = backend.removesuffix(f"{ENVIRONMENT_MARK}{row['environment']}")
        by_place.setdefault((backend, _text(row[across])), []).append(row)
    columns = sorted({column for _, column in by_place}, key=_order)
    widths = Counter(backend for backend, _ in by_place)
    backends = sorted(widths, key=lambda name: (-widths[name], name))
    shown = {}
    for place, candidates in by_place.items():
        measured = [
            row for row in candidates if row[quantity] is not None or _is_unsure(row, quantity)
        ]
        shown[place] = (measured or candidates)[-1]
    cells = [
        _cell(
            shown.get((backend, column)),
            backend,
            column,
            quantity,
            len({row["experiment_id"] for row in by_place.get((backend, column), ())}),
        )
        for backend in backends
        for column in columns
    ]
    return BackendMatrix(
        across=across,
        quantity=quantity,
        backends=tuple(backends),
        columns=tuple(columns),
        cells=tuple(cells),
        mixed=_mixed([row for row in shown.values() if row[quantity] is not None], across),
    )


def _is_unsure(row: dict[str, Any], quantity: str) -> bool:
    """Whether a value is hidden because it may be chance."""
    return quantity == "break_even_steps" and row["break_even_verdict"] == "unsure"


def _cell(
    row: dict[str, Any] | None, backend: str, column: str, quantity: str, num_experiments: int
) -> MatrixCell:
    if row is None:
        return MatrixCell(backend=backend, column=column, empty="not run")
    value = row[quantity]
    empty: Emptiness | None = None
    if _is_unsure(row, quantity):
        empty = "unsure"
    elif value is None and row["is_wrong"]:
        empty = "not trusted"
    elif value is None:
        empty = "not measured" if row["state"] == "finished" else "not finished"
    return MatrixCell(
        backend=backend,
        column=column,
        empty=empty,
        value=value,
        low=row["speedup_low"] if quantity == "speedup" else None,
        high=row["speedup_high"] if quantity == "speedup" else None,
        verdict=row["speed_verdict"],
        parity=row["parity"],
        state=row["state"],
        experiment_id=row["experiment_id"],
        num_experiments=num_experiments,
    )


def _mixed(shown: Sequence[dict[str, Any]], across: str) -> dict[str, tuple[str, ...]]:
    values = {name: {_text(row[name]) for row in shown} for name in ACROSS if name != across}
    return {name: tuple(sorted(seen, key=_order)) for name, seen in values.items() if len(seen) > 1}


def _text(value: Any) -> str:
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return "unknown" if missing else str(value)


def _order(text: str) -> tuple[bool, float, str]:
    """Sort key: numbers by size, then words."""
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def cells_table(matrix: BackendMatrix) -> pd.DataFrame:
    """One row per cell."""
    return pd.DataFrame(
        [
            {
                "backend": cell.backend,
                matrix.across: cell.column,
                matrix.quantity: cell.value,
                "low": cell.low,
                "high": cell.high,
                "speed_verdict": cell.verdict,
                "parity": cell.parity,
                "why_empty": cell.empty,
                "experiment_id": cell.experiment_id,
                "num_experiments": cell.num_experiments,
            }
            for cell in matrix.cells
        ]
    )
