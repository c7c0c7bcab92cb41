"""Resumed runs: what was done again counts once, in whatever pieces the journal is read."""

import math
import os
from collections.abc import Callable, Sequence

import pandas as pd
import pytest

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.states import RunState
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording

Part = Callable[[Recording], object]


def blocks(*losses: float) -> Part:
    """One block of 10 equal losses for each."""
    return lambda run: [run.block([0.1] * 10, [loss] * 10) for loss in losses]


def read_at_once(data_dir: DataDir, parts: Sequence[Part]) -> Store:
    run = Recording(data_dir.runs, "inductor").start()
    for part in parts:
        part(run)
    return Store.in_memory(data_dir)


def read_in_between(data_dir: DataDir, parts: Sequence[Part]) -> Store:
    run = Recording(data_dir.runs, "inductor").start()
    store = Store.in_memory(data_dir)
    for part in parts:
        part(run)
        store.ingest()
    return store


in_any_pieces = pytest.mark.parametrize("read", [read_at_once, read_in_between])
Read = Callable[[DataDir, Sequence[Part]], Store]


def steps(store: Store) -> pd.DataFrame:
    return queries.step_times(store, EXPERIMENT_ID).set_index("step")


@in_any_pieces
def test_steps_that_were_done_again_count_once(data_dir: DataDir, read: Read) -> None:
    with read(data_dir, [blocks(5, 4, 3), lambda run: run.resume(10), blocks(2)]) as store:
        counted = steps(store)
        # Steps 10 to 19 were done twice, and 20 to 29 in the first attempt only.
        assert counted.index.tolist() == list(range(20))
        assert counted["loss"].tolist() == [5.0] * 10 + [2.0] * 10
        assert counted["attempt"].tolist() == [1] * 10 + [2] * 10
        frame = queries.blocks(store, EXPERIMENT_ID)
        assert frame["first_step"].tolist() == [0, 10]
        assert frame["round"].tolist() == [1, 4]
        assert queries.list_runs(store, EXPERIMENT_ID)["steps_done"].tolist() == [20]


@in_any_pieces
def test_each_resumption_takes_back_what_stands_above(data_dir: DataDir, read: Read) -> None:
    parts = [
        blocks(9, 8, 7),
        lambda run: run.resume(20),
        blocks(6, 5),
        lambda run: run.resume(30, 3),
        blocks(4),
        lambda run: run.resume(30, 4),
        blocks(3),
    ]
    with read(data_dir, parts) as store:
        counted = steps(store)
        assert counted["loss"].tolist() == [9.0] * 10 + [8.0] * 10 + [6.0] * 10 + [3.0] * 10
        assert counted["attempt"].tolist() == [1] * 20 + [2] * 10 + [4] * 10
        resumed = queries.resumptions(store, EXPERIMENT_ID)
    assert resumed[["step", "attempt", "file"]].values.tolist() == [
        [20, 2, "checkpoints/step-20.pt"],
        [30, 3, "checkpoints/step-30.pt"],
        [30, 4, "checkpoints/step-30.pt"],
    ]
    assert resumed["time"].is_monotonic_increasing


@in_any_pieces
def test_events_after_a_checkpoint_are_taken_back(data_dir: DataDir, read: Read) -> None:
    def end_of_block(run: Recording) -> None:
        step = run.evaluation(0.5).checkpoint().num_steps
        run.log.append("value", step=step, name="own", value=1.0)
        run.log.append("graph_break", step=step, phase="training", reason="print")

    def what_is_compiled(run: Recording) -> None:
        """At step 10: in evaluating before the checkpoint, in training for the step after it."""
        for kind in ("compile_ended", "compile_metrics"):
            run.log.append(kind, step=10, phase="evaluating")
            run.log.append(kind, step=10, phase="training")
        run.log.append("gradient_statistics", step=10, tensors=[{"name": "weight", "norm": 1.0}])

    parts = [
        lambda run: setattr(run, "captures", False),
        blocks(3),
        end_of_block,
        what_is_compiled,
        blocks(2),
        end_of_block,
        lambda run: run.stop("enough"),
        lambda run: run.log.append("prediction", split="test", file="artifacts/test.parquet"),
        lambda run: run.log.append("error", error="ValueError", traceback="Trace"),
        lambda run: run.resume(10),
    ]
    with read(data_dir, parts) as store:
        for name in ("evaluations", "checkpoints", "own_values", "graph_breaks"):
            assert getattr(queries, name)(store, EXPERIMENT_ID)["step"].tolist() == [10], name
        for name in ("compiles", "compile_metrics"):
            frame = getattr(queries, name)(store, EXPERIMENT_ID)
            assert frame[["step", "phase"]].values.tolist() == [[10, "evaluating"]], name
        for name in ("gradient_statistics", "stops", "predictions"):
            assert getattr(queries, name)(store, EXPERIMENT_ID).empty, name
        assert queries.run_record(store, f"{EXPERIMENT_ID}.inductor").error is None


def test_a_compilation_that_a_killed_process_was_in_is_not_going_on(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "inductor").claim(ProcessIdentity.from_pid(os.getpid())).start()
    run.log.append("compile_started", step=10, phase="evaluating", compile_id="0/0")
    run.resume(10)
    with Store.in_memory(data_dir) as store:
        assert pd.isna(queries.list_runs(store, EXPERIMENT_ID)["compiling_since"][0])


def test_what_a_resumed_run_says_last_of_machine_and_workload_counts(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "inductor")
    run.start(environment={"device_name": "first"}, num_parameters=1)
    run.start(environment={"device_name": "second"}, num_parameters=2)
    with Store.in_memory(data_dir) as store:
        environments = queries.environments(store, EXPERIMENT_ID)
        assert environments["device_name"].tolist() == ["second"]
        assert queries.workloads(store, EXPERIMENT_ID)["num_parameters"].tolist() == [2]
        assert queries.list_experiments(store)["device_name"].tolist() == ["second"]


def test_an_ended_run_that_is_resumed_runs_again(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "inductor").claim()
    with Store.open(data_dir) as store:

        def state() -> str:
            store.ingest()
            return str(queries.list_runs(store, EXPERIMENT_ID)["state"][0])

        assert state() == "lost"
        assert queries.list_runs(store, EXPERIMENT_ID)["reason"][0].endswith("without a word")
        run.run.write_exit(Exit.now(RunState.LOST, "its process and supervisor vanished", None))
        assert state() == "lost"
        run.run.exit_file.unlink()
        run.claim(ProcessIdentity.from_pid(os.getpid()))
        assert state() == "running"
        run.run.write_exit(Exit.now(RunState.FAILED, "exit status 1", 1))
        assert state() == "failed"
        run.run.write_exit(Exit.now(RunState.FINISHED, "all steps done", 0))
        assert state() == "finished"


def test_a_checkpoint_is_there_until_a_later_one_removes_it(data_dir: DataDir) -> None:
    parts = [
        blocks(3),
        lambda run: run.checkpoint(value=0.5),
        blocks(2),
        lambda run: run.checkpoint(removed=[10]),
        blocks(1),
        lambda run: run.checkpoint(value=math.nan, removed=[20]),
    ]
    with read_at_once(data_dir, parts) as store:
        checkpoints = queries.checkpoints(store, EXPERIMENT_ID)
        assert checkpoints["step"].tolist() == [10, 20, 30]
        assert checkpoints["file"].tolist()[0] == "checkpoints/step-10.pt"
        assert checkpoints["removed"].tolist() == [True, True, False]
        assert checkpoints["value"].isna().tolist() == [False, True, True]
        assert checkpoints[["bytes", "seconds"]].values.tolist() == [[1000, 0.5]] * 3
