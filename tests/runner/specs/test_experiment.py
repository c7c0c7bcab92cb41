import json
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.experiment import (
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    RunSpec,
    SpeedSpec,
    StoppingSpec,
    TrainingSpec,
)
from breakeven.runner.specs.fields import Spec
from breakeven.runner.specs.variants import Variant


def experiment(**changes: Any) -> ExperimentSpec:
    return replace(ExperimentSpec(name="trial", backends=("eager", "inductor")), **changes)


def test_experiments_and_runs_survive_the_way_through_json() -> None:
    training = TrainingSpec(
        losses=("model", "0.5*CrossEntropyLoss:weight=(1, 2)"),
        optimizer_options={"betas": (0.9, 0.95), "amsgrad": True, "eps": 1e-6},
        scheduler="multistep",
        scheduler_options={"milestones": (10, 20)},
    )
    data = DataSpec(source="some/file.csv", num_train_samples=77)
    spec = experiment(data=data, training=training, callbacks=("hooks.py:Mine",))
    again = ExperimentSpec.from_json(spec.to_json())
    assert again == spec
    assert again.training.optimizer_options["betas"] == (0.9, 0.95)
    for variant in spec.variants:
        run = RunSpec(experiment_id="x-1", experiment=spec, variant=variant)
        assert RunSpec.from_json(run.to_json()) == run


def test_unknown_missing_and_bad_fields_are_named_with_their_place() -> None:
    with pytest.raises(InvalidSpec, match="name = None: is required"):
        ExperimentSpec.from_dict({})
    content = json.loads(experiment().to_json())
    content["training"]["learning_rat"] = 0.1
    with pytest.raises(InvalidSpec, match=r"training\.learning_rat = 0\.1: is not a field"):
        ExperimentSpec.from_dict(content)
    del content["training"]["learning_rat"]
    content["stopping"]["patience"] = "soon"
    with pytest.raises(InvalidSpec) as caught:
        ExperimentSpec.from_dict(content)
    assert caught.value.field == "stopping.patience"


def test_a_specification_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        experiment().name = "other"  # type: ignore[misc]


def test_an_error_within_a_rule_is_not_taken_for_a_missing_field() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Broken(Spec):
        number: int = 1

        def check_rules(self) -> None:
            len(self.number)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        Broken.from_dict({"number": 2})


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("name", "", "must not be empty"),
        ("name", 3, "must be text"),
        ("backends", ("inductor", "inductor"), "must not name a backend twice"),
        ("backends", ("inductor:cpp.cxx=/a b",) * 2, "must not name a backend twice"),
        ("backends", ("in ductor",), "must be the name of a Dynamo backend"),
        ("devices", ("gpu",), "must name one or several devices"),
        ("devices", (), "must name one or several devices"),
        ("devices", ("cpu", "cuda:0"), "must all be of one kind"),
        ("devices", ("cuda:0", "cuda:0"), "must not name a device twice"),
        ("devices", ("mps", "mps"), "must not name a device twice"),
        ("parallel", "tensor", "must be one of 'ddp', 'fsdp', 'dp'"),
        ("schedule", "parallel", "must be one of 'turns', 'sequential'"),
        ("controls", 21, "must be at most 20: each control is one more whole training"),
        ("block_steps", 0, "must be at least 1"),
        ("block_steps", True, "must be a whole number"),
        ("time_limit_seconds", float("inf"), "must be a finite number"),
        ("cpu_threads", 0, "must be at least 1"),
        ("task", "translation", "must be one of causal_lm, custom"),
        ("callbacks", ("hooks.py",), "must read path.py:Class"),
    ],
)
def test_a_bad_field_is_refused_with_its_value_and_rule(field: str, value: Any, rule: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        experiment(**{field: value})
    assert caught.value.field == field
    offender = value[0] if value in (("in ductor",), ("hooks.py",)) else value
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
        (lambda: DataSpec(num_test_samples=-1), "at least 0"),
        (lambda: DataSpec(sequence_length=3), "at least 4"),
        (lambda: ModelSpec(source="builtin:gpt"), "builtin:bert-tiny"),
        (lambda: Variant(label="a/b", role="backend", backend="eager"), "letters, digits"),
        (
            lambda: Variant(label="a", role="baseline", backend="eager"),
            "must be null unless the role is 'backend'",
        ),
    ],
)
def test_a_bad_part_is_refused(make: Any, rule: str) -> None:
    with pytest.raises(InvalidSpec, match=rule):
        make()


def test_a_run_must_be_one_of_its_experiments_variants() -> None:
    stranger = Variant(label="tvm", role="backend", backend="tvm")
    with pytest.raises(InvalidSpec, match="one of the experiment's own variants"):
        RunSpec(experiment_id="x", experiment=experiment(), variant=stranger)


def test_the_variants_are_baseline_control_and_one_for_each_backend() -> None:
    variants = experiment().variants
    assert [variant.label for variant in variants] == ["baseline", "control", "eager", "inductor"]
    assert [variant.backend for variant in variants] == [None, None, "eager", "inductor"]
    assert [variant.perturbation for variant in variants] == [0, 1e-5, 0, 0]
    # Each of several controls changes the weights in its own way, and keeps its label.
    _, *controls, backend = experiment(controls=3, backends=("control-2",)).variants
    assert [variant.label for variant in controls] == ["control", "control-2", "control-3"]
    assert [variant.perturbation for variant in controls] == [1e-5] * 3
    assert len({variant.perturbation_seed for variant in controls}) == 3
    assert backend.label == "backend-control-2"


@pytest.mark.parametrize(("written", "controls"), [(True, 1), (False, 0)])
def test_a_specification_of_version_0_1_says_whether_there_is_a_control(
    written: bool, controls: int
) -> None:
    content = json.loads(experiment().to_json())
    del content["controls"]
    assert ExperimentSpec.from_dict({**content, "control": written}).controls == controls


def test_dropout_goes_where_a_backend_draws_its_own_random_numbers() -> None:
    assert experiment().has_dropout
    assert not experiment(backends=("cudagraphs",)).has_dropout
    assert experiment(backends=("cudagraphs",), model=ModelSpec(dropout="keep")).has_dropout
    assert not experiment(model=ModelSpec(dropout="off")).has_dropout


# Steps


@pytest.mark.parametrize(
    ("training", "steps_per_epoch", "num_steps"),
    [
        # 30 samples in batches of 8: three full ones and 6 samples left.
        ({"epochs": 3}, 3, 9),
        ({"epochs": 3, "max_steps": 5}, 3, 5),
        ({"last_batch": "pad"}, 4, 4),
        ({"last_batch": "dynamic"}, 4, 4),
        ({"gradient_accumulation": 2}, 2, 2),  # of two batches and of one
        ({"gradient_accumulation": 2, "last_batch": "pad"}, 2, 2),
        ({"gradient_accumulation": 5, "last_batch": "pad"}, 1, 1),
    ],
)
def test_the_last_batch_and_the_last_window_make_a_step_or_not(
    training: dict[str, Any], steps_per_epoch: int, num_steps: int
) -> None:
    training = {"batch_size": 8, "epochs": 1, **training}
    spec = experiment(data=DataSpec(num_train_samples=30), training=TrainingSpec(**training))
    assert (spec.steps_per_epoch, spec.num_steps) == (steps_per_epoch, num_steps)


# Parts that must fit one another


NEVER = EvaluationSpec(when="never")
ON_MPS = {"devices": ("mps",)}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"data": DataSpec(num_train_samples=7)}, r"training\.batch_size = 8: .*no batch"),
        ({"training": TrainingSpec(precision="tf32")}, "needs a CUDA device"),
        ({"training": TrainingSpec(optimizer="none")}, "must not be 'none' for a whole training"),
        ({**ON_MPS, "scenario": "accuracy"}, "scenario = .accuracy.: needs double precision"),
        ({**ON_MPS, "backends": ("cudagraphs",)}, "backends = .*must not capture CUDA graphs"),
        ({**ON_MPS, "backends": ("inductor:mode=reduce-overhead",)}, "not capture CUDA graphs"),
        ({**ON_MPS, "training": TrainingSpec(precision="fp16")}, "on the CPU and on MPS choose"),
        ({"evaluation": NEVER, "training": TrainingSpec(scheduler="plateau")}, "evaluation.when"),
        ({"evaluation": NEVER, "stopping": StoppingSpec(patience=2)}, "evaluation.when"),
        ({"evaluation": NEVER, "stopping": StoppingSpec(threshold=0.9)}, "evaluation.when"),
        ({"evaluation": EvaluationSpec(splits=("test",))}, "evaluation.splits"),
        ({"evaluation": EvaluationSpec(predictions=("test",))}, "evaluation.predictions"),
    ],
)
def test_parts_that_do_not_fit_one_another_are_refused(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(InvalidSpec, match=rule):
        experiment(**changes)


def test_parts_that_fit_one_another_are_taken() -> None:
    evaluation = EvaluationSpec(splits=("validation", "test"), predictions=("test",))
    experiment(evaluation=evaluation, data=DataSpec(num_test_samples=5))
    without = TrainingSpec(optimizer="none")
    assert experiment(training=without, scenario="speed").training.optimizer == "none"
    assert experiment(**ON_MPS).device == "mps"


# What a source is


@pytest.mark.parametrize(
    ("source", "is_file", "is_user_code"),
    [
        ("builtin:reviews", False, False),
        ("yelp_review_full", False, False),
        ("somebody/reviews", False, False),
        ("reviews.csv", True, False),
        ("/data/reviews", True, False),
        ("./photos", True, False),
        ("~/reviews.parquet", True, False),
        ("/data/mine.py:load", False, True),
        ("mine.py:load", False, True),
        ("mine.py:load now", False, False),
    ],
)
def test_a_data_source_says_by_its_form_what_it_is(
    source: str, is_file: bool, is_user_code: bool
) -> None:
    data = DataSpec(source=source)
    assert (data.is_file, data.is_user_code) == (is_file, is_user_code)
    if is_user_code:
        assert ModelSpec(source=source).is_user_code


def test_all_code_of_ones_own_is_listed_in_one_place() -> None:
    spec = experiment(
        model=ModelSpec(source="mine.py:net"),
        data=DataSpec(source="mine.py:samples"),
        callbacks=("hooks.py:Mine",),
    )
    assert spec.user_code == ("mine.py:net", "mine.py:samples", "hooks.py:Mine")
    backends = ("/my/own.py:compile", "thunder.dynamo:Compiler", "inductor")
    assert experiment(backends=backends).user_code == ("/my/own.py:compile",)
    assert experiment().user_code == ()


def larger(times: int, **changes: Any) -> ExperimentSpec:
    """100 samples in batches of 4: 25 steps an epoch."""
    return ExperimentSpec(
        name="trial", backends=(f"none:batch_times={times}",),
        data=DataSpec(num_train_samples=100),
        **{"training": TrainingSpec(batch_size=4, warmup_steps=10), **changes},
    )  # fmt: skip


def test_a_run_with_larger_batches_makes_as_many_times_fewer_steps() -> None:
    spec = larger(8, speed=SpeedSpec(batches=8))
    baseline, _, variant = spec.variants
    whole, work = (RunSpec(experiment_id="x", experiment=spec, variant=one).work
                   for one in (baseline, variant))  # fmt: skip
    assert whole == spec
    assert (work.training.batch_size, work.training.warmup_steps) == (32, 1)
    # 100 samples are 3 batches of 32; 10 steps of a turn are one step of eight times as many.
    assert (work.num_steps, work.block_steps, work.num_fixed_batches) == (3, 1, 3)
    assert (work.has_dropout, work.data) == (spec.has_dropout, spec.data)
    steps = replace(spec.training, max_steps=50)
    assert replace(spec, training=steps).with_batch(8).num_steps == 7  # 50 / 8 = 6.25


@pytest.mark.parametrize(
    ("times", "changes", "rule"),
    [
        (26, {}, "at most 25"),
        (2, {"scenario": "speed"}, "except for a training or a search"),
        (2, {"devices": ("cuda:0", "cuda:1")}, "on one device"),
        (2, {"task": "script", "model": ModelSpec(source="script:/a.py"),
             "data": DataSpec(source="script")}, "for a script"),
    ],
)  # fmt: skip
def test_larger_batches_are_refused_where_nothing_could_judge_them(
    times: int, changes: dict[str, Any], rule: str
) -> None:
    assert larger(25).variants[-1].batch_times == 25
    with pytest.raises(InvalidSpec, match=rule):
        replace(larger(times if times > 25 else 2), **changes)
