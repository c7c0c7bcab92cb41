"""The recorded examples, as golden data: what real runs on a real GPU must come out as."""

from pathlib import Path

import pytest

from runner.folders.run_dir import DataDir
from storage import queries
from storage.comparison.comparison import compare
from storage.index.store import Store
from storage.terminal.parity_words import parity_words
from tests.helpers.told import notes_of, warnings_of

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.in_memory(DataDir(tmp_path_factory.mktemp("empty")), EXAMPLES)


def test_every_example_is_read_completely(store: Store) -> None:
    frame = queries.list_experiments(store)
    assert len(frame) >= 1
    assert set(frame["origin"]) == {"example"}
    assert set(frame["state"]) == {"finished"}
    assert queries.unreadable(store).empty
    for experiment_id in frame["experiment_id"]:
        runs = queries.list_runs(store, experiment_id)
        assert runs["steps_done"].tolist() == runs["num_steps"].tolist()


def test_correct_backends_hold_parity_by_a_wide_margin(store: Store) -> None:
    for experiment_id in queries.list_experiments(store)["experiment_id"]:
        verdicts = [one.parity for one in compare(store, experiment_id).results if one.parity]
        assert verdicts
        for parity in verdicts:
            assert parity.verdict == "holds", str(parity_words(parity))
            assert parity.max_ratio_to_band is not None
            assert parity.max_ratio_to_band < 0.5


def test_cudagraphs_holds_the_memory_that_its_peak_leaves_out(store: Store) -> None:
    for experiment_id in queries.list_experiments(store)["experiment_id"]:
        by_label = {one.label: one for one in compare(store, experiment_id).results}
        graphs, baseline = by_label["cudagraphs"], by_label["baseline"]
        assert graphs.measured.peak_memory_bytes and baseline.measured.peak_memory_bytes
        assert graphs.measured.reserved_memory_bytes and baseline.measured.reserved_memory_bytes
        assert graphs.measured.peak_memory_bytes < 0.5 * baseline.measured.peak_memory_bytes
        assert graphs.measured.reserved_memory_bytes > baseline.measured.reserved_memory_bytes


def test_what_all_runs_share_is_a_note_and_only_what_casts_doubt_a_warning(store: Store) -> None:
    for experiment_id in queries.list_experiments(store)["experiment_id"]:
        comparison = compare(store, experiment_id)
        assert [warning.partition(":")[0] for warning in warnings_of(comparison)] == ["cudagraphs"]
        assert notes_of(comparison)[0] == "The reviews are written by a generator, not by people."
        assert len(notes_of(comparison)) == 2


def test_the_control_is_as_fast_as_the_baseline(store: Store) -> None:
    for experiment_id in queries.list_experiments(store)["experiment_id"]:
        comparison = compare(store, experiment_id)
        assert comparison.noise_floor is not None
        assert comparison.noise_floor < 0.05
