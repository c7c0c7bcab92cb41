"""An experiment that is spread over devices, with real processes that speak the protocol without
torch: by turns on each device, side by side between them."""

import os
import threading
from itertools import pairwise

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import cancel, find_experiment, submit
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import RunState
from breakeven.runner.machine.occupancy import held_by
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.supervision.supervisor import supervise
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.waiting import wait_until
from tests.runner.supervision.test_side_by_side import impatience as impatience
from tests.runner.supervision.test_supervisor import events, experiment, run_dirs, states

CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
pytestmark = [pytest.mark.heavy, pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")]


def spread(*backends: str, **changes: object) -> ExperimentSpec:
    return experiment(*backends, devices=("cpu", "cpu"), parallel="spread",
                      cpus=f"{CPUS[0]},{CPUS[1]}", **changes)  # fmt: skip


def blocks_of(runs: list[RunDir]) -> list[tuple[float, float]]:
    return sorted((block["began"], block["time"]) for run in runs for block in events(run, "block"))


def test_each_device_has_its_own_cpus_and_turns_and_both_work_at_once(data_dir: DataDir) -> None:
    key = submit(data_dir, spread("slow", "slower", steps=4, block_steps=2))
    supervise(data_dir, FAKE_WORKER)
    runs = run_dirs(data_dir, key)
    assert set(runs) == {"baseline", "baseline-on-2", "slow", "slower"}
    assert set(states(data_dir, key).values()) == {RunState.FINISHED}
    places = [[run for run in runs.values() if run.read_spec().variant.place == place]
              for place in (1, 2)]  # fmt: skip
    said = [{tuple(events(run, "phase")[0]["cpus"]) for run in here} for here in places]
    assert said == [{(CPUS[0],)}, {(CPUS[1],)}]
    one, other = map(blocks_of, places)
    for blocks in (one, other):
        assert all(ended <= began for (_, ended), (began, _) in pairwise(blocks)), "one at a time"
    assert one[0][0] < other[-1][1] and other[0][0] < one[-1][1]


def test_what_an_experiment_holds_is_that_of_all_its_devices(data_dir: DataDir) -> None:
    key = submit(data_dir, spread("hang", "hang:scope=forward"))
    supervising = threading.Thread(target=supervise, args=(data_dir, FAKE_WORKER))
    supervising.start()
    wait_until(lambda: set(states(data_dir, key).values()) == {RunState.RUNNING})
    found = find_experiment(data_dir, key)
    try:
        assert held_by([found])[key].cpus == frozenset(CPUS[:2])
    finally:
        cancel(found)
        supervising.join()


def test_a_device_without_the_memory_ends_all_and_one_experiment_repeats_them(
    data_dir: DataDir,
) -> None:
    key = submit(data_dir, spread("greedy", "greedy:scope=forward"))
    supervise(data_dir, FAKE_WORKER)
    assert set(states(data_dir, key).values()) <= {RunState.OUT_OF_MEMORY, RunState.CANCELLED}
    (repeat,) = [
        run.read_spec().experiment_id
        for run in data_dir.run_dirs()
        if run.run_id.endswith(".baseline") and not run.run_id.startswith(key)
    ]
    assert set(states(data_dir, repeat).values()) == {RunState.FINISHED}
    spec = find_experiment(data_dir, repeat).spec
    assert (spec.fallback_of, spec.schedule, spec.parallel) == (key, "sequential", "spread")
