"""What runs recorded of their course comes back, one row for each number."""

import math

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.specs.experiment import EvaluationSpec
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec


def test_the_terms_of_a_loss_come_one_by_one(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "baseline")
    run.log.append("step", step=0, loss=3.0, losses={"model": 2.0, "L1Loss": math.inf})
    run.log.append("step", step=1, loss=3.0, losses={"model": 1.0, "L1Loss": math.nan})
    run.log.append("step", step=2, loss=1.0)  # of a single term nothing is recorded apart
    run.log.flush()
    with Store.in_memory(data_dir) as store:
        frame = queries.loss_terms(store, EXPERIMENT_ID)
    assert frame.columns.tolist() == ["run_id", "label", "role", "step", "name", "value"]
    assert frame[["step", "name", "value"]].values.tolist()[:3] == [
        [0, "L1Loss", math.inf],
        [0, "model", 2.0],
        [1, "L1Loss", pytest.approx(math.nan, nan_ok=True)],
    ]
    assert len(frame) == 4


def test_gradient_statistics_are_a_row_for_each_parameter_in_the_models_order(
    data_dir: DataDir,
) -> None:
    run = Recording(data_dir.runs, "baseline")
    weight = {"norm": 2.0, "mean": 0.5, "deviation": 0.25, "largest": 1.5, "zeros": 0.125}
    bias = {"norm": math.nan, "zeros": 1.0}
    for step in (0, 5):
        tensors = [{"name": "weight", **weight}, {"name": "bias", **bias}]
        run.log.append("gradient_statistics", step=step, tensors=tensors)
    run.log.append("gradient_statistics", step=6, tensors=[])
    run.log.flush()
    with Store.in_memory(data_dir) as store:
        frame = queries.gradient_statistics(store, EXPERIMENT_ID)
    assert frame["step"].tolist() == [0, 0, 5, 5]
    assert frame["name"].tolist() == ["weight", "bias"] * 2
    assert frame.iloc[0][[*weight]].to_dict() == weight
    assert math.isnan(frame["norm"][1])
    assert frame["zeros"].tolist() == [0.125, 1.0] * 2


def test_of_a_number_recorded_twice_at_a_step_the_last_one_counts(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "baseline")
    for step, name, value in [(1, "a", 1.0), (2, "a", 2.0), (2, "b", 3.0), (2, "a", math.inf)]:
        run.log.append("value", step=step, name=name, value=value)
    run.log.flush()
    with Store.in_memory(data_dir) as store:
        frame = queries.own_values(store, EXPERIMENT_ID)
    assert frame[["step", "name", "value"]].values.tolist() == [
        [1, "a", 1.0],
        [2, "a", math.inf],
        [2, "b", 3.0],
    ]


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
    found = frame[["split", "compiled", "name", "num_samples"]].values.tolist()
    assert found == [
        ["validation", False, "accuracy", 200],
        ["validation", False, "loss", 200],
        ["test", True, "f1", 9],
        ["test", True, "loss", 9],
    ]
    assert frame["value"].tolist()[:3] == [0.5, 2.0, 0.25]
    assert math.isnan(frame["value"][3])


def test_the_primary_split_without_a_compiler_speaks_for_a_run(data_dir: DataDir) -> None:
    spec = experiment_spec(evaluation=EvaluationSpec(splits=("train", "validation")))
    run = Recording(data_dir.runs, "inductor", spec)
    for accuracy in (0.1, 0.2):
        run.block([0.1] * 10, [1.0] * 10)
        run.evaluation(accuracy, split="train", compiled=False)
        run.evaluation(0.9, split="train", compiled=True)
        run.evaluation(0.8, split="validation", compiled=False)
    with Store.in_memory(data_dir) as store:
        frame = queries.evaluations(store, EXPERIMENT_ID)
    assert frame[["step", "accuracy"]].values.tolist() == [[10, 0.1], [20, 0.2]]


def test_an_evaluation_that_was_repeated_counts_once(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "baseline").evaluation(0.5).evaluation(0.75)
    with Store.in_memory(data_dir) as store:
        assert queries.evaluations(store, EXPERIMENT_ID)["accuracy"].tolist() == [0.75]
        assert len(queries.evaluation_metrics(store, EXPERIMENT_ID)) == 2
    assert run.run_id


def test_predictions_name_their_files_wherever_the_run_folder_lies(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "baseline")
    run.log.append("prediction", split="test", file="artifacts/test.parquet", num_samples=20)
    run.log.flush()
    with Store.in_memory(data_dir) as store:
        frame = queries.predictions(store, EXPERIMENT_ID)
    assert frame["folder"].tolist() == [str(run.run.path)]
    assert frame["file"].tolist() == ["artifacts/test.parquet"]
    assert frame[["split", "num_samples"]].values.tolist() == [["test", 20]]


def test_sources_and_early_ends_come_back(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "baseline")
    for sha256 in ("aa", "aa", "bb"):  # the second one by a resumed process, the third one changed
        run.log.append("source", source="my.py:Model", file="sources/my.py", sha256=sha256)
    run.block([0.1] * 10, [1.0] * 10).stop("the loss is nan")
    with Store.in_memory(data_dir) as store:
        assert queries.sources(store, EXPERIMENT_ID)["sha256"].tolist() == ["aa", "bb"]
        stops = queries.stops(store, EXPERIMENT_ID)
    assert stops[["label", "step", "reason"]].values.tolist() == [
        ["baseline", 10, "the loss is nan"]
    ]


def test_of_a_stretch_the_first_lowest_and_highest_point_are_drawn_whatever_number_they_are(
    data_dir: DataDir,
) -> None:
    run = Recording(data_dir.runs, "baseline")
    losses = [1.0, 1.0, 1.0, 2.0, 5.0, 5.0, math.inf, math.nan, 0.0, *[math.nan] * 3]
    for step, loss in enumerate(losses):
        run.log.append("step", step=step, loss=loss)
    run.log.flush()
    with Store.in_memory(data_dir) as store:
        frame = queries.losses(store, EXPERIMENT_ID, max_points=8)
    assert frame["step"].tolist() == [0, 3, 4, 7, 8, 9]
    assert frame["label"].tolist() == ["baseline"] * 6
