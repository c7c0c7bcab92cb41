"""Queries: what the pages read, one row for each number."""

import math
import os
from typing import Any

import pandas as pd
import pytest

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import ExperimentState, RunState
from breakeven.runner.specs.experiment import EvaluationSpec
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)

NAMES = ("QUEUED", "RUNNING", "FINISHED", "CANCELLED", "FAILED", "LOST")
Q, R, F, C, X, L = (RunState[name] for name in NAMES)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([Q, C], "queued"),
        ([Q, R], "running"),
        ([F, Q], "running"),
        ([X, Q], "running"),
        ([F, F], "finished"),
        ([F, C], "cancelled"),
        ([F, X, C], "partly_failed"),
        ([X, L], "failed"),
        ([RunState.ELSEWHERE, F], "elsewhere"),
    ],
)
def test_the_state_of_an_experiment_sums_up_its_runs(states: list[RunState], expected: str) -> None:
    assert ExperimentState.from_runs(states) == expected


def test_experiments_come_newest_first_with_what_they_are(data_dir: DataDir) -> None:
    older = record_experiment(data_dir.runs, experiment_id="20260102-030405-000006-aaaa")
    newer = "20260203-040506-500000-bbbb"
    Recording(data_dir.runs, "baseline", experiment_id=newer)
    with Store.in_memory(data_dir) as store:
        frame = queries.list_experiments(store)
    assert frame["experiment_id"].tolist() == [newer, older]
    assert frame["submitted"].tolist() == [
        pd.Timestamp("2026-02-03 04:05:06.500000", tz="UTC"),
        pd.Timestamp("2026-01-02 03:04:05.000006", tz="UTC"),
    ]
    assert frame["state"].tolist() == ["queued", "finished"]
    assert frame["num_runs"].tolist() == [1, 3]
    assert frame["num_ended"].tolist() == [0, 3]
    assert frame["device"].tolist() == ["cpu", "cpu"]
    assert pd.isna(frame["device_name"][0])
    assert frame["device_name"][1] == "Test CPU"
    assert frame["torch_version"][1] == "2.13.0"
    assert frame["model"][1] == "builtin:bert-tiny"


def test_runs_come_in_the_order_of_the_arms_with_their_progress(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=40, backends=("zz", "aa"))
    for label in ("zz", "aa", "control", "baseline"):
        Recording(data_dir.runs, label, spec)
    running = (
        Recording(data_dir.runs, "aa", spec).claim(ProcessIdentity.from_pid(os.getpid())).start()
    )
    # The first block is not steady; of the second one the times are 1, 1, 1, 1, 1, 3 x 5: median 2.
    running.block([9.0] * 10, [2.0] * 10)
    running.block([1.0] * 5 + [3.0] * 5, [1.5] * 9 + [1.25])
    with Store.in_memory(data_dir) as store:
        frame = queries.list_runs(store, EXPERIMENT_ID)
    assert frame["label"].tolist() == ["baseline", "control", "zz", "aa"]
    assert frame["state"].tolist() == ["queued", "queued", "queued", "running"]
    assert frame["steps_done"].tolist() == [0, 0, 0, 20]
    assert frame["num_steps"].tolist() == [40] * 4
    row = frame.iloc[3]
    assert (row["phase"], row["last_loss"], row["steady_step_seconds"]) == ("training", 1.25, 2.0)
    age = pd.Timestamp.now("UTC") - row["phase_started"]
    assert pd.Timedelta(0) <= age < pd.Timedelta(minutes=1)
    assert pd.isna(frame["steady_step_seconds"][0])
    assert pd.isna(frame["started"][0])
    assert frame["last_loss"][0] is None


def test_long_runs_are_thinned_to_real_points_that_keep_the_extremes(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=1000)
    losses = falling_losses(1000)
    losses[137], losses[500] = 9.0, -3.0
    Recording(data_dir.runs, "baseline", spec).blocks([0.1] * 100, losses)
    Recording(data_dir.runs, "control", spec).blocks([0.1], losses)
    with Store.in_memory(data_dir) as store:
        frame = queries.losses(store, EXPERIMENT_ID, max_points=100)
        everything = queries.losses(store, EXPERIMENT_ID)
        times = queries.cumulative_times(store, EXPERIMENT_ID, max_points=100)
        complete = [
            query(store, EXPERIMENT_ID, max_points=None)
            for query in (queries.losses, queries.cumulative_times)
        ]
    assert [len(rows) for rows in complete] == [1010, 1010], "every step of both runs"
    assert list(complete[0].columns) == list(frame.columns)
    assert complete[1]["seconds"].iloc[999] == pytest.approx(100.0)
    long = frame[frame["label"] == "baseline"]
    assert 50 <= len(long) <= 100
    assert all(losses[step] == loss for step, loss in zip(long["step"], long["loss"], strict=True))
    assert {0, 137, 500, 999} <= set(long["step"])
    assert long["step"].is_monotonic_increasing
    assert len(frame[frame["label"] == "control"]) == 10
    assert len(everything) == 1010
    assert times[times["label"] == "baseline"]["seconds"].iloc[-1] == pytest.approx(100.0)


def test_cumulative_times_add_up_step_times_with_the_compilation(data_dir: DataDir) -> None:
    recording = Recording(data_dir.runs, "inductor", experiment_spec(num_steps=8, block_steps=4))
    recording.block([5.0, 0.5, 0.5, 0.5], [1.0] * 4, compiled=[0])
    recording.block([0.25] * 4, [1.0] * 4)
    with Store.in_memory(data_dir) as store:
        seconds = queries.cumulative_times(store, EXPERIMENT_ID)["seconds"].tolist()
    # 5; 5.5; 6; 6.5; 6.75; 7; 7.25; 7.5
    assert seconds == [5.0, 5.5, 6.0, 6.5, 6.75, 7.0, 7.25, 7.5]


def test_later_blocks_without_a_compilation_are_steady(data_dir: DataDir) -> None:
    recording = Recording(data_dir.runs, "inductor", experiment_spec(num_steps=8, block_steps=2))
    recording.block([1.0] * 2, [1.0] * 2)
    recording.block([2.0] * 2, [1.0] * 2, compiled=[1])
    recording.block([3.0] * 2, [1.0] * 2)
    recording.log.append("step", step=6, epoch=0, round=3, loss=1.0, seconds=4.0, compiled=False)
    recording.log.flush()
    with Store.in_memory(data_dir) as store:
        assert queries.blocks(store, EXPERIMENT_ID)["steady"].tolist() == [False, False, True]
        steps = queries.step_times(store, EXPERIMENT_ID)
    # Step 6 belongs to a block that is not over yet.
    assert steps["steady"].tolist() == [False] * 4 + [True] * 2 + [False]
    assert steps["compiled"].tolist() == [False] * 3 + [True] + [False] * 3


def test_a_run_record_tells_what_ran_where_and_why_it_failed(data_dir: DataDir) -> None:
    recording = Recording(data_dir.runs, "inductor").claim().start(environment={"num_cpus": 2})
    recording.log.append(
        "error", error="ValueError", message="no", traceback="Trace\nno", out_of_memory=False
    )
    recording.end(RunState.FAILED, "exit status 1")
    with Store.in_memory(data_dir) as store:
        record = queries.run_record(store, recording.run_id)
    assert record.spec == recording.spec
    assert record.arm.label == "inductor"
    assert (record.state, record.reason) == (RunState.FAILED, "exit status 1")
    assert record.error == queries.RunError(name="ValueError", message="no", traceback="Trace\nno")
    assert not record.error.says_what_to_do
    assert record.environment["versions"]["torch"] == "2.13.0"
    assert record.environment["num_cpus"] == 2
    assert "cuda" not in record.environment
    assert record.workload["weights_sha256"] == "aa"
    assert record.folder == recording.run.path


def test_epochs_and_rounds_count_from_one_wherever_they_are_read(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=20, epochs=2)
    run = Recording(data_dir.runs, "baseline", spec).start()
    for epoch in range(2):
        run.block([0.1] * 10, [1.0] * 10).evaluation(0.5, epoch=epoch).device()
    with Store.in_memory(data_dir) as store:
        for query in (queries.step_times, queries.evaluations, queries.evaluation_metrics):
            assert query(store, EXPERIMENT_ID)["epoch"].unique().tolist() == [1, 2], query.__name__
        for query in (queries.step_times, queries.blocks, queries.device_samples):
            assert query(store, EXPERIMENT_ID)["round"].unique().tolist() == [1, 2], query.__name__


def test_every_number_of_every_evaluation_comes_back_under_its_name(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "inductor")
    run.evaluation(0.5, loss=2.0)  # as in old journals: validation, without a compiler
    metrics = {"f1": 0.25, "roc_auc": None}
    run.evaluation(None, loss=math.nan, split="test", compiled=True, metrics=metrics, num_samples=9)
    with Store.in_memory(data_dir) as store:
        frame = queries.evaluation_metrics(store, EXPERIMENT_ID)
    metrics_read = frame[["split", "compiled", "name", "num_samples"]].values.tolist()
    assert metrics_read == [
        ["validation", False, "accuracy", 200],
        ["validation", False, "loss", 200],
        ["test", True, "f1", 9],
        ["test", True, "loss", 9],
    ]
    assert frame["value"].tolist()[:3] == [0.5, 2.0, 0.25]
    assert math.isnan(frame["value"][3])


def test_the_primary_split_without_a_compiler_speaks_for_a_run(data_dir: DataDir) -> None:
    """An evaluation that was repeated counts once."""
    spec = experiment_spec(evaluation=EvaluationSpec(splits=("train", "validation")))
    run = Recording(data_dir.runs, "inductor", spec)
    for accuracy in (0.1, 0.2):
        run.block([0.1] * 10, [1.0] * 10)
        run.evaluation(0.3, split="train", compiled=False)
        run.evaluation(accuracy, split="train", compiled=False)
        run.evaluation(0.9, split="train", compiled=True)
        run.evaluation(0.8, split="validation", compiled=False)
    with Store.in_memory(data_dir) as store:
        frame = queries.evaluations(store, EXPERIMENT_ID)
        assert len(queries.evaluation_metrics(store, EXPERIMENT_ID)) == 12
    assert frame[["step", "accuracy"]].values.tolist() == [[10, 0.1], [20, 0.2]]


WEIGHT = {"norm": 2.0, "mean": 0.5, "deviation": 0.25, "largest": 1.5, "zeros": 0.125}
BIAS = {"norm": math.nan, "zeros": 1.0}
TENSORS = [{"name": "weight", **WEIGHT}, {"name": "bias", **BIAS}]
DYNAMO = {"step": 0, "phase": "training", "trigger": "DYNAMO", "compile_id": "0/0"}
RECORDED: dict[str, tuple[str, list[dict[str, Any]], str, list[list[Any]]]] = {
    # A loss without a rate is as journals were before these fields.
    "learning rate and gradient norm may be missing": (
        "step",
        [
            {"step": 0, "loss": 2.0, "learning_rate": 0.0, "gradient_norm": 2.5},
            {"step": 1, "loss": 1.0, "learning_rate": 1e-3, "gradient_norm": math.inf},
            {"step": 2, "loss": 1.0, "learning_rate": 5e-4, "gradient_norm": None},
            {"step": 3, "loss": 1.0},
        ],
        "step_settings step learning_rate gradient_norm",
        [[0, 0.0, 2.5], [1, 1e-3, math.inf], [2, 5e-4, math.nan], [3, math.nan, math.nan]],
    ),
    # Of a single term nothing is recorded apart.
    "the terms of a loss come one by one": (
        "step",
        [
            {"step": 0, "loss": 3.0, "losses": {"model": 2.0, "L1Loss": math.inf}},
            {"step": 1, "loss": 3.0, "losses": {"model": 1.0, "L1Loss": math.nan}},
            {"step": 2, "loss": 1.0},
        ],
        "loss_terms label role step name value",
        [
            ["baseline", "baseline", 0, "L1Loss", math.inf],
            ["baseline", "baseline", 0, "model", 2.0],
            ["baseline", "baseline", 1, "L1Loss", math.nan],
            ["baseline", "baseline", 1, "model", 1.0],
        ],
    ),
    "gradient statistics are a row for each parameter, in the model's order": (
        "gradient_statistics",
        [{"step": 0, "tensors": TENSORS}, {"step": 6, "tensors": []}],
        "gradient_statistics step name norm mean deviation largest zeros",
        [[0, "weight", *WEIGHT.values()], [0, "bias", math.nan, math.nan, math.nan, math.nan, 1.0]],
    ),
    "of a number recorded twice at a step the last one counts": (
        "value",
        [
            {"step": step, "name": name, "value": value}
            for step, name, value in (
                (1, "a", 1.0),
                (2, "a", 2.0),
                (2, "b", 3.0),
                (2, "a", math.inf),
            )
        ],
        "own_values step name value",
        [[1, "a", 1.0], [2, "a", math.inf], [2, "b", 3.0]],
    ),
    "compilations": (
        "compile_ended",
        [{**DYNAMO, "seconds": 2.5}],
        "compiles step seconds",
        [[0, 2.5]],
    ),
    "compile metrics": (
        "compile_metrics",
        [{**DYNAMO, "function": "step", "line": 3, "total_seconds": 2.25}],
        "compile_metrics total_seconds",
        [[2.25]],
    ),
    "graph breaks": (
        "graph_break",
        [{"step": 0, "reason": "print", "location": "a.py:3", "count": 2}],
        "graph_breaks reason location count",
        [["print", "a.py:3", 2]],
    ),
    "predictions": (
        "prediction",
        [{"split": "test", "file": "artifacts/test.parquet", "num_samples": 20}],
        "predictions file split num_samples",
        [["artifacts/test.parquet", "test", 20]],
    ),
    # The second one by a resumed process, the third one changed.
    "sources": (
        "source",
        [
            {"source": "my.py:Model", "file": "my.py", "sha256": digest}
            for digest in ("aa", "aa", "bb")
        ],
        "sources sha256",
        [["aa"], ["bb"]],
    ),
    "early ends": (
        "stopped",
        [{"step": 10, "reason": "the loss is nan"}],
        "stops label step reason",
        [["baseline", 10, "the loss is nan"]],
    ),
}


@pytest.mark.parametrize("case", RECORDED)
def test_what_was_recorded_comes_back(data_dir: DataDir, case: str) -> None:
    kind, events, query_and_columns, expected = RECORDED[case]
    run = Recording(data_dir.runs, "baseline")
    run.log.extend(kind, events)
    run.log.flush()
    query, *columns = query_and_columns.split()
    with Store.in_memory(data_dir) as store:
        frame = getattr(queries, query)(store, EXPERIMENT_ID)
    rows = frame[columns].astype(object).where(frame[columns].notna(), math.nan).values.tolist()
    assert [pytest.approx(row, nan_ok=True) for row in expected] == rows
    if query == "predictions":
        assert frame["folder"].tolist() == [str(run.run.path)]


def test_thinning_keeps_extremes_and_what_is_no_number(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "baseline")
    losses = [1.0, 1.0, 1.0, 2.0, 5.0, 5.0, math.inf, math.nan, 0.0, *[math.nan] * 3]
    for step, loss in enumerate(losses):
        run.log.append("step", step=step, loss=loss)
    run.log.flush()
    with Store.in_memory(data_dir) as store:
        frame = queries.losses(store, EXPERIMENT_ID, max_points=8)
    assert frame["step"].tolist() == [0, 3, 4, 6, 9]
    assert frame["label"].tolist() == ["baseline"] * 5
