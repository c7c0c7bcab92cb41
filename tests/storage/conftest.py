"""Fixtures of what is stored and computed."""

import pytest

from breakeven.storage import commands
from breakeven.storage.comparison import comparison
from breakeven.storage.index.store import Store


@pytest.fixture(autouse=True)
def _no_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands take in no shipped examples, which takes seconds in each new data folder."""
    monkeypatch.setattr(commands, "EXAMPLES", None)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of experiments that were compared since, and whose comparison was not read."""
    experiment_ids: list[str] = []
    compute = comparison._compare

    def listen(store: Store, experiment_id: str) -> comparison.StoredComparison:
        experiment_ids.append(experiment_id)
        return compute(store, experiment_id)

    monkeypatch.setattr(comparison, "_compare", listen)
    return experiment_ids
