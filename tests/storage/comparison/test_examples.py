"""The recorded examples, as golden data: what real runs on a real GPU must come out as."""

from pathlib import Path

import numpy as np
import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage import queries
from breakeven.storage.difference.sides import load_sides
from breakeven.storage.difference.speedups import scalings
from breakeven.storage.index.store import Store
from breakeven.storage.profile.explanation import explain

EXAMPLES = Path(__file__).parents[3] / "examples"
REVIEWS = "20261123-060240-248837-bb0e"
"""BERT-base on reviews, on an H100 of a restless host, with profiles."""
QUIET = "20261125-140742-602271-10f4"
"""BERT-base on reviews in large batches, on an H200: the device, not the host, sets the pace."""
MASKED_LM = "20261122-143524-361651-0eb6"
"""BertForMaskedLM on an H100, with profiles."""
ONE, TWO = "20261123-024245-610163-7424", "20261123-024448-939088-2663"
"""BERT-base on one H200, and by `ddp` on two of one host."""
CAPTURED = "inductor-math_attention_reduced-triton.cudagraphs_true-fallback_random_false"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.in_memory(DataDir(tmp_path_factory.mktemp("empty")), EXAMPLES)


def test_every_example_is_read_completely(store: Store) -> None:
    frame = queries.list_experiments(store)
    assert set(frame["experiment_id"]) == {REVIEWS, QUIET, MASKED_LM, ONE, TWO}
    assert frame["experiment_id"].iloc[0] == QUIET, "which opens first"
    assert set(frame["origin"]) == {"example"}
    assert set(frame["state"]) == {"finished"}
    assert queries.unreadable(store).empty
    for experiment_id in frame["experiment_id"]:
        runs = queries.list_runs(store, experiment_id)
        assert (runs["steps_done"] > 0).all()


def test_captured_graphs_of_reviews_save_idle_time(store: Store) -> None:
    """Its kernels take longer than the baseline's, which the host cannot feed fast enough: of
    44.2 ms a step the device is idle for 30.4, and for 3.5 where graphs are replayed."""
    found = explain(store, REVIEWS)
    assert found.profile_of("baseline").idle_seconds == pytest.approx(0.0304, abs=0.0005)
    assert found.profile_of("cudagraphs").idle_seconds == pytest.approx(0.0035, abs=0.0005)
    own = found.own_speedups["cudagraphs"]
    assert own.high is not None and own.high < 1.0
    saved = found.bridges["cudagraphs"].parts.set_index("work_class")["difference"]
    assert saved.idxmin() == "idle"


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


def test_where_graphs_are_replayed_the_kernels_alone_fill_the_clocks_step(store: Store) -> None:
    """Two instruments that know nothing of each other agree: the clock of the timed rounds, and
    the profiler's kernels. Nothing else fills a step whose launches are eight."""
    profile = explain(store, MASKED_LM).profile_of(CAPTURED)
    assert profile.middle["launches"] < 10
    assert abs(profile.busy_seconds - profile.step_seconds) < 0.02 * profile.step_seconds


def test_two_devices_do_the_same_as_one_and_how_much_sooner_is_known(store: Store) -> None:
    """61.7 ms a step on one and 45.8 on two: 61.7 / (2 x 45.8) = 67 %; with captured graphs
    45.5 / (2 x 29.0) = 78 %."""
    losses = [queries.losses(store, one, max_points=None) for one in (ONE, TWO)]
    alone, together = (
        frame[frame["run_id"].str.endswith(".baseline")].set_index("step")["loss"]
        for frame in losses
    )
    assert len(alone) == len(together) == 80
    assert np.allclose(alone[:5], together[:5], rtol=0.005)
    found, refused = scalings(store, load_sides(store, (ONE, TWO)))
    assert refused == []
    efficiency = {one.label: one.efficiency for one in found}
    assert efficiency["baseline"] == pytest.approx(0.67, abs=0.01)
    assert efficiency["inductor-forward-reduce-overhead"] == pytest.approx(0.78, abs=0.01)
