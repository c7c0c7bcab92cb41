"""Losses, parameter groups, evaluation, stopping, checkpoints: what can be asked for."""

from typing import Any

import pytest

from breakeven.runner.errors import InvalidSpec
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


@pytest.mark.parametrize(
    ("text", "loss"),
    [
        ("model", Loss(name="model", weight=1, options={})),
        ("0.5*model", Loss(name="model", weight=0.5, options={})),
        ("1e-3*MSELoss", Loss(name="MSELoss", weight=0.001, options={})),
        (
            "2*CrossEntropyLoss:label_smoothing=0.1+weight=(1,2)",
            Loss(name="CrossEntropyLoss", weight=2,
                 options={"label_smoothing": 0.1, "weight": (1, 2)}),
        ),
    ],
)  # fmt: skip
def test_a_loss_is_written_with_its_weight_and_settings(text: str, loss: Loss) -> None:
    assert parse_loss(text) == loss


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


@pytest.mark.parametrize(
    ("text", "group"),
    [
        (
            "classifier.*:optimizer=SGD+lr=0.01+momentum=0.9",
            ParameterGroup(pattern="classifier.*", optimizer="SGD", learning_rate=0.01,
                           options={"momentum": 0.9}),
        ),
        (
            "*.bias:lr=1",
            ParameterGroup(pattern="*.bias", optimizer=None, learning_rate=1.0, options={}),
        ),
    ],
)  # fmt: skip
def test_a_parameter_group_is_a_pattern_with_settings(text: str, group: ParameterGroup) -> None:
    assert parse_parameter_group(text) == group


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


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: TrainingSpec(max_steps=0), r"max_steps = 0: must be at least 1"),
        (lambda: TrainingSpec(clip_value=0.0), "clip_value = 0.0: must be above 0"),
        (lambda: TrainingSpec(clip_norm=0.0), "clip_norm = 0.0: must be above 0"),
        (lambda: TrainingSpec(optimizer_options={"betas": [0.9, 0.99]}), "named values"),
        (lambda: TrainingSpec(warmup_steps=-1), "at least 0"),
        (lambda: TrainingSpec(warmup_steps=5, scheduler="plateau"), "which has no warm-up"),
        (lambda: TrainingSpec(warmup_steps=5, scheduler="step"), "which has no warm-up"),
        (lambda: TrainingSpec(scaler_options={"growth_interval": 5}), "for precision 'fp16' only"),
        (lambda: TrainingSpec(seed=2**32), "at most 4,294,967,295: random generators take 32 bits"),
        (lambda: EvaluationSpec(every=0), "at least 1"),
        (lambda: EvaluationSpec(splits=("test", "test")), "must not name a split twice"),
        (lambda: EvaluationSpec(splits=()), "at least one of train, validation, test"),
        (lambda: EvaluationSpec(metric="bleu"), "one of"),  # type: ignore[arg-type]
        (lambda: StoppingSpec(patience=0), "stopping.patience = 0: must be at least 1"),
        (lambda: StoppingSpec(min_delta=-0.1), "at least 0"),
        (lambda: CheckpointSpec(every=0), "checkpoints.every = 0: must be at least 1"),
        (lambda: CheckpointSpec(keep_last=0), "at least 1"),
    ],
)
def test_a_bad_part_of_the_training_is_refused(make: Any, rule: str) -> None:
    with pytest.raises(InvalidSpec, match=rule):
        make()


def test_whether_more_is_better_depends_on_the_metric() -> None:
    assert EvaluationSpec(metric="loss").lower_is_better
    assert EvaluationSpec(metric="perplexity").lower_is_better
    assert not EvaluationSpec(metric="roc_auc").lower_is_better
