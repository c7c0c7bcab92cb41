"""Exports and imports: tables, run folders, reports, and results in the formats of PyTorch's own
benchmarks (docs/suites.md).

rows.py        results in the words of the harness, one row per model and backend
harness.py     performance and accuracy CSV of `benchmarks/dynamo`
hud.py         benchmark records of PyTorch's HUD, version 3
cachebench.py  JSON of `benchmarks/dynamo/cachebench.py`
table_files.py any table, as CSV or Parquet
run_folders.py whole runs, packed and taken in
reports.py     run folders within a one-file report
archives.py    unpacks archives of strangers
imports.py     imports a file of any of these formats
"""

from collections.abc import Callable

from breakeven.storage.exchange import cachebench, harness, hud
from breakeven.storage.index.store import Store

FORMATS: dict[str, Callable[[Store, str], str]] = {
    "harness-performance-csv": harness.performance_csv,
    "harness-accuracy-csv": harness.accuracy_csv,
    "hud-json": hud.records_json,
    "cachebench-json": cachebench.records_json,
}
"""Name of a format to what writes a file of an experiment or a suite run, given its id.

They raise `NotInStore`, or `NotExportable` where the format cannot express the experiment.
"""
NOTES = {"cachebench-json": cachebench.NOTE}
"""What a reader of a file in that format must know."""
