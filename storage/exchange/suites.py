"""A whole suite run in the formats of PyTorch's benchmarks: a row per model and backend.

The harness has a file for each precision and part; here `tag` tells them apart.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from breakeven.storage import queries
from breakeven.storage.errors import NotExportable
from breakeven.storage.exchange import cachebench, harness, hud
from breakeven.storage.exchange.rows import TIMED, Row, harness_name, rows
from breakeven.storage.index.store import Store
from breakeven.storage.suite.cells import outcomes
from breakeven.storage.suite.groups import Cell, Outcome


def performance_csv(store: Store, suite_run: str) -> str:
    """Columns of the harness; raises `NotInStore`, or `NotExportable` without a timed cell."""
    return harness.write_performance(_exportable(store, suite_run))


def accuracy_csv(store: Store, suite_run: str) -> str:
    """The status of every cell that was checked, in the harness's columns."""
    checked = [one for one in outcomes(store, suite_run) if "accuracy" in one.experiments]
    return harness.write_csv(
        harness.ACCURACY_COLUMNS, (_status_cells(store, outcome) for outcome in checked)
    )


def hud_json(store: Store, suite_run: str) -> str:
    """Benchmark records of the timed cells, with the statuses of their checks."""
    return hud.write_records(_exportable(store, suite_run))


def cachebench_json(store: Store, suite_run: str) -> str:
    """Compile latencies of all cells that have any."""
    scenarios = ("cache", *TIMED)
    ids = [key for one in outcomes(store, suite_run) for key in _ids(one, scenarios)]
    return cachebench.write_records(store, dict.fromkeys(ids))


SUITE_FORMATS: dict[str, Callable[[Store, str], str]] = {
    "harness-performance-csv": performance_csv,
    "harness-accuracy-csv": accuracy_csv,
    "hud-json": hud_json,
    "cachebench-json": cachebench_json,
}
"""As `storage.exchange.FORMATS`, given the id of a suite run."""


def suite_rows(store: Store, suite_run: str) -> list[Row]:
    """The rows of all cells that were timed, with the statuses of their accuracy checks."""
    return [row for one in outcomes(store, suite_run) for row in _rows(store, one)]


def _exportable(store: Store, suite_run: str) -> list[Row]:
    found = suite_rows(store, suite_run)
    if not found:
        raise NotExportable(f"suite run {suite_run!r} times no steps; this format is for such")
    return found


def _rows(store: Store, outcome: Outcome) -> Iterator[Row]:
    for experiment_id in _ids(outcome, TIMED):
        for row in rows(store, experiment_id):
            if row.tag == outcome.cell.label:
                status = outcome.status or row.accuracy
                yield replace(row, tag=_tag(outcome.cell), accuracy=status)


def _status_cells(store: Store, outcome: Outcome) -> dict[str, str]:
    spec = queries.experiment_spec(store, outcome.experiments["accuracy"])
    return {
        "dev": spec.device.partition(":")[0],
        "name": harness_name(spec.model),
        "batch_size": str(spec.training.batch_size),
        "tag": _tag(outcome.cell),
        "accuracy": outcome.status or "",
    }


def _tag(cell: Cell) -> str:
    return f"{cell.backend}-{cell.precision}-{cell.part}"


def _ids(outcome: Outcome, scenarios: tuple[str, ...]) -> list[str]:
    return [key for scenario, key in outcome.experiments.items() if scenario in scenarios]
