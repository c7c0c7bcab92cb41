"""Exports and imports: tables, run folders, reports, and results in the formats of PyTorch's own
benchmarks (docs/suites.md)."""

from collections.abc import Callable

from breakeven.storage.exchange import formats
from breakeven.storage.index.store import Store

FORMATS: dict[str, Callable[[Store, str], str]] = {
    "harness-performance-csv": formats.performance_csv,
    "harness-accuracy-csv": formats.accuracy_csv,
    "hud-json": formats.hud_json,
    "cachebench-json": formats.cachebench_json,
}
"""Name of a format to the function that returns the file of an experiment or suite run by its id.

The functions raise `NotInStore`, or `NotExportable` if the format cannot express the experiment.
"""
NOTES = {"cachebench-json": formats.NOTE}
"""Notes for readers of a file, by format."""
