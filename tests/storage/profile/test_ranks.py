"""Ranks of a run on several devices, and what sending takes, from journals worked out by hand."""

import math
from dataclasses import replace

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.index.store import Store
from breakeven.storage.profile.explanation import explain
from breakeven.storage.profile.recorded_profiles import IDLE, Profile, by_run, collectives, ranks_of
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses


def recorded(data_dir: DataDir, sent: dict[str, float | None]) -> str:
    spec = replace(experiment_spec(), devices=("cpu", "cpu"))
    run = Recording(data_dir.runs, "baseline", spec, "a").claim().start()
    for round, peaks in enumerate(((100, 70), (90, 80))):
        rows = [
            {
                "rank": rank,
                "seconds": 1.0,
                "cpu_seconds": 0.5,
                "peak_memory_bytes": peak,
                "reserved_memory_bytes": None,
            }
            for rank, peak in enumerate(peaks)
        ]
        run.log.extend("rank_block", rows, round=round, first_step=10 * round)
    for round, slower in enumerate((0.30, 0.33, 0.90)):
        rows = [
            {
                "rank": 0,
                "compute_seconds": 0.30,
                "communication_seconds": 0.20,
                "exposed_seconds": 0.15,
            },
            {
                "rank": 1,
                "compute_seconds": slower,
                "communication_seconds": 0.10,
                "exposed_seconds": 0.02,
            },
        ]
        run.log.extend("rank_profile", rows, round=10 + round)
        kinds = [
            {"rank": 0, "name": name, "calls": 2.0, "sent_bytes": size, "seconds": 0.1}
            for name, size in sent.items()
        ]
        run.log.extend("collective", kinds, round=10 + round)
    run.end()
    return "a"


def test_the_slowest_rank_is_the_one_that_computes_longest(data_dir: DataDir) -> None:
    name = recorded(data_dir, {"all_reduce": 400.0, "broadcast": 24.0})
    with Store.in_memory(data_dir) as store:
        ranks = ranks_of(store, name)
        (run,) = by_run(store, name).to_dict("records")
    assert run["slowest_rank"] == "rank 1"
    assert run["rank_lag"] == pytest.approx(0.1)  # medians over three turns: 0.33 over 0.30
    assert run["communication_seconds"] == 0.10 and run["exposed_seconds"] == 0.02
    assert ranks["peak_memory_bytes"].tolist() == [100, 80]
    assert run["sent_bytes"] == 424


def test_bytes_are_unknown_where_one_collective_does_not_say_its_size(data_dir: DataDir) -> None:
    name = recorded(data_dir, {"all_reduce": 400.0, "scatter": None})
    with Store.in_memory(data_dir) as store:
        kinds = collectives(store, name).set_index("collective")["sent_bytes"]
        (run,) = by_run(store, name).to_dict("records")
    assert "sent_bytes" not in run
    assert kinds["all_reduce"] == 400.0 and math.isnan(kinds["scatter"])


def test_without_a_profile_the_compile_skew_alone_is_known(data_dir: DataDir) -> None:
    spec = replace(experiment_spec(), devices=("cpu", "cpu"))
    run = Recording(data_dir.runs, "baseline", spec, "a").claim().start()
    rows = [
        {"rank": rank, "seconds": 9.0, "cpu_seconds": 0.5, "compile_seconds": seconds}
        for rank, seconds in enumerate((8.5, 3.0))
    ]
    run.log.extend("rank_block", rows, round=0, first_step=0)
    run.end()
    with Store.in_memory(data_dir) as store:
        ranks = by_run(store, "a").to_dict("records")
    assert ranks == [{"run": "baseline", "compile_skew": 5.5}]


def test_runs_on_one_device_have_no_ranks(data_dir: DataDir) -> None:
    Recording(data_dir.runs, "baseline", experiment_spec(), "a").claim().start().end()
    with Store.in_memory(data_dir) as store:
        assert ranks_of(store, "a").empty and by_run(store, "a").empty


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def sending(data_dir: DataDir, *exposed: float | None, twice: bool = False) -> Profile:
    """A step takes 60 ms by the clock. Under the profiler rank 0 computes for 40 ms; its collective
    runs for 30 ms, of which computing hides 20, and each of the two has half of these. It was 10 ms
    of computing's kernels that had few blocks. `exposed`: by rank, in seconds."""
    spec = replace(experiment_spec(80, backends=(), controls=0), devices=("cuda:0", "cuda:1"))
    run = Recording(data_dir.runs, "baseline", spec).claim()
    run.start(environment={"device_type": "cuda"}).blocks([0.06] * 8, falling_losses(80))
    rows = [{"rank": rank, "seconds": 0.6, "cpu_seconds": 0.5} for rank in range(len(exposed))]
    run.log.extend("rank_block", rows, round=7, first_step=70)
    turns = [
        {
            "rank": rank,
            "compute_seconds": 0.04,
            "communication_seconds": 0.03,
            "exposed_seconds": seconds,
        }
        for rank, seconds in enumerate(exposed)
    ]
    if exposed:
        run.log.extend("rank_profile", turns * (2 if twice else 1), round=8)
    kernels = [
        {"name": "vectorized_elementwise_kernel", "seconds": 0.03},
        {"name": NCCL, "seconds": 0.02},
    ]
    run.profile(kernels, underfilled_seconds=0.03, seconds=0.08).end()
    with Store.in_memory(data_dir) as store:
        (profile,) = explain(store, EXPERIMENT_ID).profiles
    return profile


def test_a_rank_that_waits_for_another_is_idle_and_does_not_send(data_dir: DataDir) -> None:
    """Rank 1 comes last, and its collective takes 4 ms beyond its computing."""
    profile = sending(data_dir, 0.010, 0.004)
    assert profile.by_class["communication"] == pytest.approx(0.004)
    assert profile.by_class["elementwise"] == pytest.approx(0.040)
    assert profile.by_class[IDLE] == pytest.approx(0.060 - 0.044)
    assert profile.middle["busy_seconds"] == pytest.approx(0.044)
    assert profile.middle["underfilled_seconds"] == pytest.approx(0.010)


def test_sending_that_computing_hides_costs_nothing(data_dir: DataDir) -> None:
    profile = sending(data_dir, 0.010, 0.0)
    assert profile.by_class["communication"] == 0.0
    assert profile.busy_seconds == pytest.approx(0.040)


@pytest.mark.parametrize("exposed", [(), (0.010, None)])
def test_a_silent_rank_keeps_its_time(data_dir: DataDir, exposed: tuple[float | None, ...]) -> None:
    profile = sending(data_dir, *exposed)
    assert profile.by_class["communication"] == pytest.approx(0.020)
    assert profile.busy_seconds == pytest.approx(0.050)


def test_a_journal_that_says_a_turn_twice_is_explained_all_the_same(data_dir: DataDir) -> None:
    profile = sending(data_dir, 0.010, 0.004, twice=True)
    assert profile.by_class["communication"] == pytest.approx(0.004)
    assert profile.busy_seconds == pytest.approx(0.044)
