"""What leaves and what comes in: tables, run folders, reports, and results in the words and columns
of PyTorch's own benchmarks (docs/exchange.md).

rows.py        what the harness says of a model, one row per backend
harness.py     performance and accuracy CSV of `benchmarks/dynamo`
hud.py         benchmark records of PyTorch's HUD, version 3
cachebench.py  JSON of `benchmarks/dynamo/cachebench.py`
table_files.py any table, as CSV or Parquet
run_folders.py whole runs, packed and taken in
reports.py     the same within a one-file report
archives.py    unpacks what strangers packed
bring.py       tells which of all this a file is
imports.py     their files, read in and kept in the data folder
import_json.py those of them that are JSON
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
"""Name of a format to what writes the text of a whole file of an experiment, given its id.

They raise `NotInStore`, or `NotExportable` where the format has no words for the experiment.
"""
NOTES = {"cachebench-json": cachebench.NOTE}
"""What a reader of a file in that format must know."""
