"""What the product's own comparison says of a trial that has been trained."""

from pathlib import Path

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from tests.faults.trial import TRIAL


def judge_trial(folder: Path) -> Comparison:
    with Store.in_memory(DataDir(folder)) as store:
        return compare(store, TRIAL)
