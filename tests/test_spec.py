import json
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from runner.errors import InvalidSpec
from runner.spec import DataSpec, ExperimentSpec, ModelSpec, RunSpec, TrainingSpec
from runner.variants import Variant


def experiment(**changes: Any) -> ExperimentSpec:
    return replace(ExperimentSpec(name="trial", backends=("eager", "inductor")), **changes)


def test_an_experiment_survives_the_way_through_json() -> None:
    spec = experiment(data=DataSpec(source="some/file.csv", num_train_samples=77))
    assert ExperimentSpec.from_json(spec.to_json()) == spec


def test_a_run_survives_the_way_through_json() -> None:
    spec = experiment()
    for variant in spec.variants:
        run = RunSpec(experiment_id="x-1", experiment=spec, variant=variant)
        assert RunSpec.from_json(run.to_json()) == run


def test_a_specification_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        experiment().name = "other"  # type: ignore[misc]


def test_an_unknown_field_is_refused_by_name() -> None:
    content = json.loads(experiment().to_json())
    content["training"]["learning_rat"] = 0.1
    with pytest.raises(InvalidSpec, match=r"training\.learning_rat = 0\.1: is not a field"):
        ExperimentSpec.from_dict(content)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(InvalidSpec, match="name = None: is required"):
        ExperimentSpec.from_dict({})


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("name", "", "must not be empty"),
        ("name", 3, "must be text"),
        ("backends", ("inductor", "inductor"), "must not name a backend twice"),
        ("backends", ("in ductor",), "must be the name of a Dynamo backend"),
        ("devices", ("cuda",), "must name exactly one device"),
        ("devices", ("cpu", "cuda:0"), "must name exactly one device"),
        ("schedule", "parallel", "must be one of 'turns', 'sequential'"),
        ("control", 1, "must be true or false"),
        ("block_steps", 0, "must be at least 1"),
        ("block_steps", True, "must be a whole number"),
        ("time_limit_seconds", float("inf"), "must be a finite number"),
        ("cpu_threads", 0, "must be at least 1"),
    ],
)
def test_a_bad_field_is_refused_with_its_value_and_rule(field: str, value: Any, rule: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        experiment(**{field: value})
    assert caught.value.field == field
    offender = "in ductor" if value == ("in ductor",) else value
    assert repr(offender) in str(caught.value)
    assert rule in str(caught.value)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: TrainingSpec(batch_size=0), "at least 1"),
        (lambda: TrainingSpec(learning_rate=0.0), "above 0"),
        (lambda: TrainingSpec(learning_rate=float("nan")), "finite"),
        (lambda: TrainingSpec(optimizer="torch.optim.Adam"), "name of a class in torch.optim"),
        (lambda: TrainingSpec(precision="int8"), "one of"),  # type: ignore[arg-type]
        (lambda: DataSpec(num_eval_samples=0), "at least 1"),
        (lambda: DataSpec(source="builtin:novels"), "builtin:reviews"),
        (lambda: ModelSpec(source="builtin:gpt"), "builtin:bert-tiny"),
        (lambda: Variant(label="a/b", role="backend", backend="eager"), "letters, digits"),
        (lambda: Variant(label="a", role="baseline", backend="eager"), "only for a backend"),
    ],
)
def test_a_bad_part_is_refused(make: Any, rule: str) -> None:
    with pytest.raises(InvalidSpec, match=rule):
        make()


def test_a_batch_larger_than_the_data_is_refused() -> None:
    data, training = DataSpec(num_train_samples=7), TrainingSpec(batch_size=8)
    with pytest.raises(InvalidSpec, match=r"training\.batch_size = 8: .*not one batch"):
        experiment(data=data, training=training)


def test_precisions_of_the_gpu_are_refused_on_the_cpu() -> None:
    with pytest.raises(InvalidSpec, match="needs a CUDA device"):
        experiment(training=TrainingSpec(precision="tf32"))


def test_a_run_must_be_one_of_its_experiments_variants() -> None:
    stranger = Variant(label="tvm", role="backend", backend="tvm")
    with pytest.raises(InvalidSpec, match="one of the experiment's own variants"):
        RunSpec(experiment_id="x", experiment=experiment(), variant=stranger)


def test_the_variants_are_baseline_control_and_one_for_each_backend() -> None:
    variants = experiment().variants
    assert [variant.label for variant in variants] == ["baseline", "control", "eager", "inductor"]
    assert [variant.backend for variant in variants] == [None, None, "eager", "inductor"]
    assert [variant.perturbation for variant in variants] == [0, 1e-5, 0, 0]


def test_steps_count_full_batches_only() -> None:
    # 100 samples make 12 full batches of 8 (4 samples are left out); 3 epochs make 36 steps.
    spec = experiment(
        data=DataSpec(num_train_samples=100), training=TrainingSpec(batch_size=8, epochs=3)
    )
    assert (spec.steps_per_epoch, spec.num_steps) == (12, 36)


def test_dropout_goes_where_a_backend_draws_its_own_random_numbers() -> None:
    assert experiment().has_dropout
    assert not experiment(backends=("cudagraphs",)).has_dropout
    assert experiment(backends=("cudagraphs",), model=ModelSpec(dropout="keep")).has_dropout
    assert not experiment(model=ModelSpec(dropout="off")).has_dropout
