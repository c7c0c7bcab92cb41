"""Results in the words and columns of PyTorch's own benchmarks, out and in (docs/exchange.md).

rows.py        what the harness says of a model, one row per backend
harness.py     performance and accuracy CSV of `benchmarks/dynamo`
hud.py         benchmark records of PyTorch's HUD, version 3
cachebench.py  JSON of `benchmarks/dynamo/cachebench.py`
imports.py     CSV files of the harness, kept in the data folder
"""

from collections.abc import Callable

from storage.exchange import cachebench, harness, hud
from storage.index.store import Store

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
