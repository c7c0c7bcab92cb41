"""An experiment that is spread over devices, with real processes that speak the protocol without
torch: by turns on each device, side by side between them."""

import os
from itertools import pairwise
from typing import Any

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import cancel, experiments
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import RunState
from breakeven.runner.machine.occupancy import held_by
from tests.runner.supervision.supervised import impatience as impatience
from tests.runner.supervision.test_supervisor import events, queued, ran, states_of, supervised

CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
SPREAD: dict[str, Any] = {"devices": ("cpu", "cpu"), "parallel": "spread",
                          "cpus": ",".join(map(str, CPUS[:2]))}  # fmt: skip
pytestmark = [pytest.mark.heavy, pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")]


def blocks_of(runs: list[RunDir]) -> list[tuple[float, float]]:
    return sorted((block["began"], block["time"]) for run in runs for block in events(run, "block"))


def test_each_device_has_its_own_cpus_and_turns_and_both_work_at_once(data_dir: DataDir) -> None:
    runs = ran(data_dir, "slow", "slower", steps=4, block_steps=2, **SPREAD)
    assert set(runs) == {"baseline", "baseline-on-2", "slow", "slower"}
    assert set(states_of(runs).values()) == {RunState.FINISHED}
    places = [[run for run in runs.values() if run.read_spec().variant.place == place]
              for place in (1, 2)]  # fmt: skip
    said = [{tuple(events(run, "phase")[0]["cpus"]) for run in here} for here in places]
    assert said == [{(CPUS[0],)}, {(CPUS[1],)}]
    one, other = map(blocks_of, places)
    for blocks in (one, other):
        assert all(ended <= began for (_, ended), (began, _) in pairwise(blocks)), "one at a time"
    assert one[0][0] < other[-1][1] and other[0][0] < one[-1][1]


def test_what_an_experiment_holds_is_that_of_all_its_devices(data_dir: DataDir) -> None:
    runs = queued(data_dir, "hang", "hang:scope=forward", **SPREAD)
    with supervised(data_dir, lambda: set(states_of(runs).values()) == {RunState.RUNNING}):
        (found,) = experiments(data_dir)
        held = held_by([found])[found.experiment_id]
        cancel(found)
    assert held.cpus == frozenset(CPUS[:2])


def test_a_device_without_the_memory_ends_all_and_one_experiment_repeats_them(
    data_dir: DataDir,
) -> None:
    ended = states_of(ran(data_dir, "greedy", "greedy:scope=forward", **SPREAD))
    assert set(ended.values()) <= {RunState.OUT_OF_MEMORY, RunState.CANCELLED}
    first, repeat = experiments(data_dir)
    assert {run.state for run in repeat.runs} == {RunState.FINISHED}
    assert repeat.spec.fallback_of == first.experiment_id
    assert (repeat.spec.schedule, repeat.spec.parallel) == ("sequential", "spread")
