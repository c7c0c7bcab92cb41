"""What a run on several devices takes to send, from a journal worked out by hand."""

from dataclasses import replace

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.index.store import Store
from breakeven.storage.profile.explanation import explain
from breakeven.storage.profile.profiles import IDLE, Profile
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def recorded(data_dir: DataDir, *exposed: float | None, twice: bool = False) -> Profile:
    """A step takes 60 ms by the clock. Under the profiler rank 0 computes for 40 ms; its collective
    runs for 30 ms, of which computing hides 20, and each of the two has half of these. It was 10 ms
    of computing's kernels that had few blocks. `exposed`: by rank, in seconds."""
    spec = replace(experiment_spec(80, backends=(), controls=0), devices=("cuda:0", "cuda:1"))
    run = Recording(data_dir.runs, "baseline", spec).claim()
    run.start(environment={"device_type": "cuda"}).blocks([0.06] * 8, falling_losses(80))
    rows = [{"rank": rank, "seconds": 0.6, "cpu_seconds": 0.5} for rank in range(len(exposed))]
    run.log.extend("rank_block", rows, round=7, first_step=70)
    told = [{"rank": rank, "compute_seconds": 0.04, "communication_seconds": 0.03,
             "exposed_seconds": seconds} for rank, seconds in enumerate(exposed)]  # fmt: skip
    if exposed:
        run.log.extend("rank_profile", told * (2 if twice else 1), round=8)
    kernels = [{"name": "vectorized_elementwise_kernel", "seconds": 0.03},
               {"name": NCCL, "seconds": 0.02}]  # fmt: skip
    run.profile(kernels, underfilled_seconds=0.03, seconds=0.08).end()
    with Store.in_memory(data_dir) as store:
        (found,) = explain(store, EXPERIMENT_ID).profiles
    return found


def test_a_rank_that_waits_for_another_is_idle_and_does_not_send(data_dir: DataDir) -> None:
    """Rank 1 comes last, and its collective takes 4 ms beyond its computing."""
    found = recorded(data_dir, 0.010, 0.004)
    assert found.by_class["communication"] == pytest.approx(0.004)
    assert found.by_class["elementwise"] == pytest.approx(0.040)
    assert found.by_class[IDLE] == pytest.approx(0.060 - 0.044)
    assert found.middle["busy_seconds"] == pytest.approx(0.044)
    assert found.middle["underfilled_seconds"] == pytest.approx(0.010)


def test_sending_that_computing_hides_costs_nothing(data_dir: DataDir) -> None:
    found = recorded(data_dir, 0.010, 0.0)
    assert found.by_class["communication"] == 0.0
    assert found.busy_seconds == pytest.approx(0.040)


@pytest.mark.parametrize("exposed", [(), (0.010, None)])
def test_where_a_rank_is_silent_its_time_is_left_as_it_was_recorded(
    data_dir: DataDir, exposed: tuple[float | None, ...]
) -> None:
    found = recorded(data_dir, *exposed)
    assert found.by_class["communication"] == pytest.approx(0.020)
    assert found.busy_seconds == pytest.approx(0.050)


def test_a_journal_that_says_a_turn_twice_is_explained_all_the_same(data_dir: DataDir) -> None:
    found = recorded(data_dir, 0.010, 0.004, twice=True)
    assert found.by_class["communication"] == pytest.approx(0.004)
    assert found.busy_seconds == pytest.approx(0.044)
