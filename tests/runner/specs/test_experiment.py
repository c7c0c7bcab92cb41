"""The rules of an experiment, its training and a script; and its name."""

import json
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs import experiment as specs
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, RunSpec
from breakeven.runner.specs.fields import Spec
from breakeven.runner.specs.training import (
    CheckpointSpec,
    EvaluationSpec,
    Loss,
    ParameterGroup,
    StoppingSpec,
    TrainingSpec,
    parse_loss,
    parse_parameter_group,
)
from breakeven.runner.specs.workload import experiment_name, usual_name

SCRIPT: dict[str, Any] = {
    "task": "script",
    "model": ModelSpec(source="script:/home/me/train.py"),
    "data": DataSpec(source="script"),
    "backends": (),
}


def experiment(**changes: Any) -> ExperimentSpec:
    return ExperimentSpec(**{"name": "trial", "backends": ("eager", "inductor"), **changes})


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
    for arm in spec.arms:
        run = RunSpec(experiment_id="x-1", experiment=spec, arm=arm)
        assert RunSpec.from_json(run.to_json()) == run
    with pytest.raises(FrozenInstanceError):
        spec.name = "other"  # type: ignore[misc]


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
        ("block_steps", True, "must be a whole number"),
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
        (lambda: TrainingSpec(optimizer="torch.optim.Adam"), "name of a class in torch.optim"),
        (lambda: TrainingSpec(precision="int8"), "one of"),  # type: ignore[arg-type]
        (lambda: DataSpec(source="builtin:novels"), "builtin:reviews"),
        (lambda: ModelSpec(source="builtin:gpt"), "builtin:bert-tiny"),
        (lambda: specs.ScriptSpec(folder="here"), "full path"),
        (lambda: specs.ScriptSpec(module="train.py:main"), "name of a module"),
        (lambda: specs.ScriptSpec(module="a=b"), "name of a module"),
        (lambda: specs.ScriptSpec(module="a/b=c:d"), "name of a module"),
        (lambda: specs.ScriptSpec(variables=("A=1", "A=2")), "each name once"),
        (lambda: specs.ScriptSpec(variables=("1A=1",)), "NAME=VALUE"),
        (lambda: specs.ScriptSpec(ranks=65), "at most 64"),
        (lambda: Arm(label="a/b", role="backend", backend="eager"), "letters, digits"),
        (lambda: TrainingSpec(optimizer_options={"betas": [0.9, 0.99]}), "named values"),
        (lambda: TrainingSpec(warmup_steps=5, scheduler="plateau"), "which has no warm-up"),
        (lambda: TrainingSpec(warmup_steps=5, scheduler="step"), "which has no warm-up"),
        (lambda: TrainingSpec(scaler_options={"growth_interval": 5}), "for precision 'fp16' only"),
        (lambda: EvaluationSpec(splits=("test", "test")), "must not name a split twice"),
        (lambda: EvaluationSpec(splits=()), "at least one of train, validation, test"),
        (lambda: EvaluationSpec(metric="bleu"), "one of"),  # type: ignore[arg-type]
        (
            lambda: RunSpec(
                experiment_id="x",
                experiment=experiment(),
                arm=Arm(label="tvm", role="backend", backend="tvm"),
            ),
            "one of the experiment's own arms",
        ),
    ],
)
def test_a_bad_part_is_refused(make: Any, rule: str) -> None:
    with pytest.raises(InvalidSpec, match=rule):
        make()


def test_the_arms_are_baseline_control_and_one_for_each_backend() -> None:
    arms = experiment().arms
    assert [arm.label for arm in arms] == ["baseline", "control", "eager", "inductor"]
    assert [arm.backend for arm in arms] == [None, None, "eager", "inductor"]
    assert [arm.perturbation for arm in arms] == [0, 1e-5, 0, 0]
    # Each of several controls changes the weights in its own way, and keeps its label.
    _, *controls, backend = experiment(controls=3, backends=("control-2",)).arms
    assert [arm.label for arm in controls] == ["control", "control-2", "control-3"]
    assert [arm.perturbation for arm in controls] == [1e-5] * 3
    assert len({arm.perturbation_seed for arm in controls}) == 3
    assert backend.label == "backend-control-2"


def test_specifications_of_earlier_versions_are_read() -> None:
    content = json.loads(experiment().to_json())
    del content["controls"]
    for written, controls in ((True, 1), (False, 0)):
        assert ExperimentSpec.from_dict({**content, "control": written}).controls == controls
    unnamed = replace(experiment(**SCRIPT), name="My script").to_json()
    assert ExperimentSpec.from_json(unnamed).name == "me/train.py"


def test_dropout_goes_where_a_backend_draws_its_own_random_numbers() -> None:
    assert experiment().has_dropout
    assert not experiment(backends=("cudagraphs",)).has_dropout
    assert experiment(backends=("cudagraphs",), model=ModelSpec(dropout="keep")).has_dropout
    assert not experiment(model=ModelSpec(dropout="off")).has_dropout


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
    experiment(training=TrainingSpec(optimizer="none"), scenario="speed")
    experiment(**ON_MPS)
    experiment(checkpoints=CheckpointSpec(every=10, unit="steps"))


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
        ("mine.py:load now", False, False),
    ],
)
def test_a_data_source_says_by_its_form_what_it_is(
    source: str, is_file: bool, is_user_code: bool
) -> None:
    data = DataSpec(source=source)
    assert (data.is_file, data.is_user_code) == (is_file, is_user_code)


def test_all_code_of_the_user_is_listed_in_one_place() -> None:
    spec = experiment(
        model=ModelSpec(source="mine.py:net"),
        data=DataSpec(source="mine.py:samples"),
        callbacks=("hooks.py:Mine",),
        backends=("/my/own.py:compile", "thunder.dynamo:Compiler", "inductor"),
    )
    assert sorted(spec.user_code) == [
        "/my/own.py:compile",
        "hooks.py:Mine",
        "mine.py:net",
        "mine.py:samples",
    ]
    assert experiment(**SCRIPT).user_code == ("/home/me/train.py",)
    assert experiment().user_code == ()


def larger(times: int, **changes: Any) -> ExperimentSpec:
    """100 samples in batches of 4: 25 steps an epoch."""
    usual = {
        "training": TrainingSpec(batch_size=4, warmup_steps=10),
        "data": DataSpec(num_train_samples=100),
    }
    return experiment(backends=(f"none:batch_times={times}",), **{**usual, **changes})


def test_a_run_with_larger_batches_makes_as_many_times_fewer_steps() -> None:
    spec = larger(8, speed=specs.SpeedSpec(batches=8))
    baseline, _, arm = spec.arms
    full, work = (
        RunSpec(experiment_id="x", experiment=spec, arm=chosen).work for chosen in (baseline, arm)
    )
    assert full == spec
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
        (2, {key: SCRIPT[key] for key in ("task", "model", "data")}, "for a script"),
    ],
)
def test_larger_batches_are_refused_where_nothing_could_judge_them(
    times: int, changes: dict[str, Any], rule: str
) -> None:
    assert larger(25).arms[-1].batch_times == 25
    with pytest.raises(InvalidSpec, match=rule):
        larger(times, **changes)


# Losses, parameter groups and metrics of a training


@pytest.mark.parametrize(
    ("text", "name", "weight", "options"),
    [
        ("model", "model", 1, {}),
        ("0.5*model", "model", 0.5, {}),
        ("1e-3*MSELoss", "MSELoss", 0.001, {}),
        (
            "2*CrossEntropyLoss:label_smoothing=0.1+weight=(1,2)",
            "CrossEntropyLoss",
            2,
            {"label_smoothing": 0.1, "weight": (1, 2)},
        ),
    ],
)
def test_a_loss_is_written_with_its_weight_and_settings(
    text: str, name: str, weight: float, options: dict[str, Any]
) -> None:
    assert parse_loss(text) == Loss(name=name, weight=weight, options=options)


@pytest.mark.parametrize(
    ("losses", "rule"),
    [
        ((), "at least one loss"),
        (("model", "0.5*model"), "must not name a loss twice"),
        (("half*model",), "must read `name`"),
        (("-1*model",), "must read `name`"),
        (("*model",), "must read `name`"),
        (("torch.nn.MSELoss",), "must read `name`"),
        (("model:weight=2",), "only a criterion of torch.nn takes"),
        (("MSELoss:mean",), "must read name=value"),
    ],
)
def test_a_loss_that_cannot_be_is_refused(losses: tuple[str, ...], rule: str) -> None:
    with pytest.raises(InvalidSpec, match=rule) as caught:
        TrainingSpec(losses=losses)
    assert caught.value.field == "training.losses"


def test_a_parameter_group_is_a_pattern_with_settings() -> None:
    assert parse_parameter_group("classifier.*:optimizer=SGD+lr=0.01+momentum=0.9") == (
        ParameterGroup(
            pattern="classifier.*", optimizer="SGD", learning_rate=0.01, options={"momentum": 0.9}
        )
    )
    assert parse_parameter_group("*.bias:lr=1") == ParameterGroup(
        pattern="*.bias", optimizer=None, learning_rate=1.0, options={}
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("classifier.*", "must read `pattern:setting=value`"),
        (":lr=0.1", "must read `pattern:setting=value`"),
        ("*:optimizer=3", "must name a class in torch.optim"),
        ("*:lr=fast", "must have an lr above 0"),
        ("*:lr=-1", "must have an lr above 0"),
    ],
)
def test_a_parameter_group_that_cannot_be_is_refused(text: str, rule: str) -> None:
    with pytest.raises(InvalidSpec, match=rule) as caught:
        TrainingSpec(parameter_groups=(text,))
    assert caught.value.field == "training.parameter_groups"
    assert repr(text) in str(caught.value)


def test_whether_more_is_better_depends_on_the_metric() -> None:
    metrics = ("loss", "perplexity", "roc_auc")
    assert [EvaluationSpec(metric=metric).lower_is_better for metric in metrics] == [
        True,
        True,
        False,
    ]


# Scripts


def test_a_script_knows_by_itself_how_long_it_trains_and_when_it_evaluates() -> None:
    free, bounded = experiment(**SCRIPT), experiment(**SCRIPT, script=specs.ScriptSpec(steps=40))
    assert (free.num_steps, bounded.num_steps) == (0, 40)
    assert free.evaluates == "never" and free.precision is None and free.subject == "train.py"
    blocks = experiment(**SCRIPT | {"backends": ("inductor:scope=blocks",)})
    assert blocks.arms[-1].scope == "blocks"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"task": "causal_lm"}, "model.source"),
        ({"model": ModelSpec(source="script:train.py")}, "model.source"),
        ({"model": ModelSpec()}, "model.source"),
        ({"data": DataSpec()}, "data.source"),
        ({"scenario": "speed"}, "scenario"),
        ({"scenario": "accuracy"}, "scenario"),
        ({"backends": ("inductor:scope=forward",)}, "backends"),
    ],
)
def test_settings_that_do_not_apply_to_a_script_are_refused(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidSpec) as caught:
        experiment(**SCRIPT | changes)
    assert caught.value.field == field


# Names


@pytest.mark.parametrize(
    ("model", "data", "name"),
    [
        ("builtin:bert-tiny", "builtin:reviews", "bert-tiny on reviews"),
        ("google/bert", "/home/me/ag_news.csv", "bert on ag_news.csv"),
        ("script:/home/me/nanogpt/train.py", "script", "nanogpt/train.py"),
        ("script:/home/me/nanogpt/finetune.py", "script", "finetune.py"),
        ("script:/train.py", "script", "train.py"),
    ],
)
def test_what_has_no_name_is_called_after_what_it_trains(model: str, data: str, name: str) -> None:
    assert usual_name(model, data) == name
    assert (
        experiment_name("My script", model, data) == experiment_name("My data", model, data) == name
    )
    assert experiment_name("Mine", model, data) == "Mine"


def test_an_unnamed_experiment_says_what_tells_it_from_others() -> None:
    how: dict[str, Any] = {"precision": "bf16", "batch_size": 32, "backends": ("inductor", "tvm")}
    named = usual_name("builtin:bert-base", "builtin:reviews", **how, device="cuda:0")
    assert named == "bert-base on reviews, bf16, batch 32, inductor, tvm, cuda:0"
    assert usual_name("script:finetune.py", "script", **how) == "finetune.py, inductor, tvm"
