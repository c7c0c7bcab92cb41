"""Runs whose planned training has several starts: each compiled one starts once more, with its
compile caches."""

import os
from collections.abc import Mapping
from typing import Any

import pytest

from breakeven.runner.experiments.continuing import NOT_CONTINUED
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import PlanSpec
from breakeven.runner.supervision.later_starts import LaterStart
from breakeven.runner.supervision.supervisor import supervise
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.plan import own_plan
from breakeven.storage.index.store import Store
from tests.runner.supervision import test_supervisor as fake
from tests.runner.supervision.supervised import impatience as impatience


def block(first_step: int, *, compiled: bool, seconds: float = 1.0) -> Mapping[str, Any]:
    kind = {"kind": "block", "first_step": first_step, "num_steps": 10}
    return {**kind, "compiled": compiled, "seconds": seconds}


LATER = {"kind": "resumed", "step": 40, "caches": "kept"}


def test_a_later_start_ends_after_the_steps_for_which_its_first_process_compiled() -> None:
    start = LaterStart()
    # The first process compiled for steps 0 to 9 and 20 to 29 of 40.
    for first_step in range(0, 40, 10):
        start.take(block(first_step, compiled=first_step in (0, 20)))
    assert not start.is_over
    start.take(LATER)
    ends = []
    for first_step in range(40, 90, 10):
        start.take(block(first_step, compiled=first_step in (40, 70)))
        ends.append(start.is_over)
    # 30 steps are made after the third block, of which the fourth compiles late.
    assert ends == [False, False, True, False, True]


def test_a_later_start_that_compiles_on_ends_after_a_minute() -> None:
    start = LaterStart()
    start.take(block(0, compiled=True))
    start.take(LATER)
    start.take(block(40, compiled=True, seconds=59.0))
    assert not start.is_over
    start.take(block(50, compiled=True, seconds=1.0))
    assert start.is_over


def test_what_a_further_training_of_the_first_process_compiles_needs_no_later_start() -> None:
    start = LaterStart()
    start.take(block(0, compiled=True))
    start.take({"kind": "resumed", "step": 10, "file": None})
    start.take(block(10, compiled=True))
    start.take({**LATER, "step": 20})
    start.take(block(20, compiled=False))
    assert start.is_over


@pytest.mark.heavy
def test_only_compiled_runs_start_once_more_and_find_their_caches(data_dir: DataDir) -> None:
    """`caching` compiles for 2 s with an empty cache, and for 0.5 s with a filled one."""
    plan = PlanSpec(steps=50_000, starts=3)
    spec = fake.experiment(
        "caching", steps=40, block_steps=2, controls=1, more_controls=0, plan=plan
    )
    experiment_id = submit(data_dir, spec)
    supervise(data_dir, fake.FAKE_WORKER)
    runs = fake.run_dirs(data_dir, experiment_id)
    assert {run.state for run in runs.values()} == {RunState.FINISHED}
    assert {label: run.attempt for label, run in runs.items()} == {
        "baseline": 1,
        "control": 1,
        "caching": 2,
    }
    (resumed,) = fake.events(runs["caching"], "resumed")
    assert resumed["step"] >= 40
    assert resumed["caches"] == "kept"
    seen = [event.get("found_in_cache") for event in fake.events(runs["caching"], "phase")]
    assert [files for files in seen if files is not None] == [[], ["caching"]]
    assert not runs["caching"].compile_cache.exists()
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, experiment_id)
    planned = own_plan(comparison)
    cold, warm = planned.compiling["caching"].first, planned.compiling["caching"].later
    assert (cold, warm) == (pytest.approx(2.0, abs=0.01), pytest.approx(0.5, abs=0.01))
    # 2 s once and 0.5 s twice, and 50,000 steps of half a millisecond.
    assert planned.totals["caching"] == pytest.approx(28.0, abs=0.1)
    assert planned.baseline_seconds == pytest.approx(50.0)
    assert comparison.result_of("caching").measured.num_steps == 40
    assert not {"not continued", "rounds added"} & {warning.kind for warning in comparison.warnings}


def test_a_run_that_starts_later_was_never_seen_as_finished_or_new(data_dir: DataDir) -> None:
    spec = fake.experiment("caching", steps=4, plan=PlanSpec(steps=4, starts=2))
    run = find_experiment(data_dir, submit(data_dir, spec)).runs[-1]
    fake.vanish(run)
    run.start_later(Exit.now(RunState.FINISHED, "training is over", 0))
    assert run.state is RunState.QUEUED
    assert run.only_times
    assert (run.attempt, run.caches) == (2, "kept")
    assert os.listdir(run.compile_cache) == []
    assert [RunDir(aside).read_exit() is not None for aside in run.attempts.glob("*")] == [True]


@pytest.mark.heavy
def test_caches_that_are_gone_leave_the_run_finished(data_dir: DataDir) -> None:
    """A supervisor that comes later trusts no caches, so the run's process finds none."""
    spec = fake.experiment("eager", steps=4, plan=PlanSpec(steps=4, starts=2))
    experiment = find_experiment(data_dir, submit(data_dir, spec))
    for run in experiment.runs[:-1]:
        run.write_exit(Exit.now(RunState.FINISHED, "training is over", 0))
    run = experiment.runs[-1]
    fake.vanish(run)
    run.start_later(Exit.now(RunState.FINISHED, "training is over", 0))
    supervise(data_dir)
    assert run.state is RunState.FINISHED
    ended = run.read_exit()
    assert ended is not None
    assert ended.reason.startswith(NOT_CONTINUED)
    assert "the compile caches of its first process are gone" in ended.reason
