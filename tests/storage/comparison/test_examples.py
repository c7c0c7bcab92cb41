"""The recorded examples, as golden data: what real runs on a real GPU must come out as."""

from pathlib import Path

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog, compute
from breakeven.storage.profile.explanation import explain
from breakeven.views.shared.address import default_experiments

EXAMPLES = Path(__file__).parents[3] / "examples"
REVIEWS = "20261123-060240-248837-bb0e"
"""BERT-base on reviews, on an H100 of a restless host, with profiles."""
QUIET = "20261125-140742-602271-10f4"
"""BERT-base on reviews in large batches, on an H200: the device, not the host, sets the pace."""
MASKED_LM = "20261122-143524-361651-0eb6"
"""BertForMaskedLM on an H100, with profiles."""
SEARCH, TUNED = "20261126-210610-571435-a44b", "20261126-210847-945908-36b8"
"""The search for the fastest way to train BERT-base in large batches on an H100, and the training
that confirms its answer."""
ONE, TWO = "20261123-024245-610163-7424", "20261123-024448-939088-2663"
"""BERT-base on one H200, and by `ddp` on two of one host."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.in_memory(DataDir(tmp_path_factory.mktemp("empty")), EXAMPLES)


def test_every_example_is_read_completely(store: Store) -> None:
    frame = queries.list_experiments(store)
    assert set(frame["experiment_id"]) == {REVIEWS, QUIET, MASKED_LM, ONE, TWO, SEARCH, TUNED}
    assert default_experiments(frame) == [QUIET], "which opens first"
    assert set(frame["origin"]) == {"example"}
    assert set(frame["state"]) == {"finished"}
    assert queries.unreadable(store).empty
    for experiment_id in frame["experiment_id"]:
        runs = queries.list_runs(store, experiment_id)
        ended = runs["state"] != "cancelled"  # Candidates whose search ended.
        assert (runs.loc[ended, "steps_done"] > 0).all()


def test_the_page_of_bert_says_by_itself_why_inductor_gains_so_little(store: Store) -> None:
    """Attention left its fused kernel for products in float32; let in half precision they are
    gone, and the device's own time turns from slower to faster."""
    found = explain(store, MASKED_LM)
    lost = next(one for one in found.findings if one.kind == "attention_unfused")
    assert lost.label == "inductor" and lost.facts["float32_seconds"] > 0.010
    plain = found.own_speedups["inductor"]
    reduced = found.own_speedups["inductor-math_attention_reduced"]
    assert plain.high is not None and plain.high < 1.0
    assert reduced.low is not None and reduced.low > 1.0
    added = found.bridges["inductor"].parts.set_index("work_class")["difference"]
    assert added.idxmax() == "matmul_float32"


def test_the_row_of_a_search_has_the_parity_of_its_best_candidate(store: Store) -> None:
    """Three of its candidates were cancelled when the budget was spent."""
    compute(store, seconds=60.0, only=[SEARCH])
    rows = catalog(store).set_index("experiment_id")
    assert rows.loc[SEARCH, ["best", "parity"]].tolist() == [
        "inductor-reduce-overhead-blocks", "holds",
    ]  # fmt: skip
