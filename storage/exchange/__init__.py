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
"""Name of a format to what writes a file of an experiment or a suite run, given its id.

They raise `NotInStore`, or `NotExportable` where the format cannot express the experiment.
"""
NOTES = {"cachebench-json": formats.NOTE}
"""What a reader of a file in that format must know."""
