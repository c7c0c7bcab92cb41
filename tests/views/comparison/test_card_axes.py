"""Over what charts of losses can be drawn."""

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.views.comparison.cards import all_cards
from tests.helpers.journals import EXPERIMENT_ID, Recording


@pytest.mark.parametrize(("other_size", "is_there"), [(54, True), (56, False)])
def test_losses_are_drawn_over_samples_only_if_steps_of_all_runs_are_of_one_size(
    data_dir: DataDir, other_size: int, is_there: bool
) -> None:
    for label, size in (("baseline", 54), ("inductor", other_size)):
        run = Recording(data_dir.runs, label).claim().start(samples_per_step=size)
        run.blocks([0.1] * 4, [2.0] * 40).end()
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, EXPERIMENT_ID)
        found = all_cards(store, comparison)
    (card,) = (one for one in found if one.title == "Training loss")
    assert ("By samples" in card.figures) is is_there
    assert "By time" in card.figures
