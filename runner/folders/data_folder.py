"""Which data folder commands and dashboard take where nobody names one."""

import os
from pathlib import Path

from runner.folders.queue import PROJECT_ROOT

DATA_VARIABLE = "BREAKEVEN_DATA"
DEFAULT_TEXT = f"(default: ${DATA_VARIABLE}, else data/ in the project)"


def default_data_folder() -> Path:
    """The folder that `BREAKEVEN_DATA` names, or `data/` in the project."""
    return Path(os.environ.get(DATA_VARIABLE) or PROJECT_ROOT / "data")
