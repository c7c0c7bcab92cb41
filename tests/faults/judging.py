"""Judges a trained trial with the product's own comparison."""

from pathlib import Path

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.parity import Parity
from breakeven.storage.words.parity import parity_words
from tests.faults.trial import TRIAL


def judge_trial(folder: Path) -> Comparison:
    with Store.in_memory(DataDir(folder)) as store:
        return compare(store, TRIAL)


def parity_of(results: dict[str, Result], label: str, verdict: str) -> Parity:
    """The parity of a run, which must have that verdict."""
    parity = results[label].parity
    assert parity is not None, label
    assert parity.verdict == verdict, f"{label}: {parity_words(parity)}"
    return parity
