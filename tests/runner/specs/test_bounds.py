"""Every number of a specification has a range with a reason, and no number breaks a reader."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, fields
from typing import Any, get_args, get_type_hints

import pytest

from breakeven.runner.arguments.options import FIELDS
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec, TrainingSpec
from breakeven.runner.specs.fields import FLOAT32_MAX, Bounds, Spec
from breakeven.runner.specs.scenario_fields import InvestigationSpec, TuneSpec


def specifications(kind: type = Spec) -> Iterator[type]:
    """Everything that people ask for; what a journal says is checked where it is read."""
    for child in kind.__subclasses__():
        if child.__module__.startswith(("breakeven.runner.specs.", "breakeven.runner.suites.")):
            yield child
            yield from specifications(child)


NUMERIC = [
    (kind, name)
    for kind in specifications()
    for name, hint in get_type_hints(kind).items()
    if name in kind.__annotations__ and {int, float} & {hint, *get_args(hint)}
]


def test_all_numbers_of_specifications_are_tested_here() -> None:
    prompted = {path for path, field in FIELDS.items() if field.kind in (int, float)}
    others = {
        kind._path + name
        for kind, name in NUMERIC  # type: ignore[attr-defined]
        if kind in (Arm, TuneSpec, InvestigationSpec)
    }
    numeric = {kind._path + name for kind, name in NUMERIC}  # type: ignore[attr-defined]
    others |= {"family_place", "family_level"}  # which queueing sets
    assert numeric == prompted | others and len(NUMERIC) == len(numeric) > 30
    assert set(specifications()) >= {ExperimentSpec, RunSpec, Arm}


@pytest.mark.parametrize(("kind", "name"), NUMERIC)
def test_every_number_has_a_range_with_a_reason_around_its_default(kind: type, name: str) -> None:
    notes = get_args(get_type_hints(kind, include_extras=True)[name])
    bounds = next(note for note in notes if isinstance(note, Bounds))
    assert -math.inf < bounds.least < bounds.most < math.inf and len(bounds.why) > 10
    bounds.check(name, next(field.default for field in fields(kind) if field.name == name))


HUGE: list[Any] = [10**19, 10**400, -(10**400), 1e300, -1e300, math.inf, math.nan]
JUST_BEYOND = {
    "training.batch_size": 0,
    "training.learning_rate": 0.0,
    "training.max_steps": 0,
    "training.clip_value": 0.0,
    "training.clip_norm": 0.0,
    "training.warmup_steps": -1,
    "training.seed": 2**32,
    "data.num_eval_samples": 0,
    "data.num_test_samples": -1,
    "data.sequence_length": 3,
    "block_steps": 0,
    "controls": 21,
    "cpu_threads": 4097,
    "evaluation.every": 0,
    "stopping.patience": 0,
    "stopping.min_delta": -0.1,
    "checkpoints.every": 0,
    "checkpoints.keep_last": 0,
    "speed.target_width": 1.5,
}


@pytest.mark.parametrize(
    "path", [path for path, field in FIELDS.items() if field.kind in (int, float)]
)
def test_numbers_beyond_a_range_and_of_any_size_are_refused_with_words(path: str) -> None:
    content = asdict(ExperimentSpec(name="x"))
    section, _, name = path.rpartition(".")
    for value in (*HUGE, JUST_BEYOND.get(path, math.nan)):
        (content[section] if section else content)[name] = value
        with pytest.raises(InvalidSpec) as caught:
            ExperimentSpec.from_json(json.dumps(content))
        assert caught.value.field == path
        assert "must be" in caught.value.rule and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"name": "x", "block_steps": ' + "9" * 5000 + "}", "is not valid JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"name": "\\ud800"}', "valid Unicode without NUL"),
        ('{"name": "a\\u0000b"}', "without NUL"),
        ('{"name": "x", "\\ud800": 1}', "is not a field"),
        ('{"name": "x", "model": {"source": "' + "a" * 10**6 + '"}}', "at most 4,096 characters"),
        ('{"name": "x", "training": {"optimizer_options": {"eps": NaN}}}', "a finite number"),
        ('{"name": "x", "training": {"optimizer_options": {"eps": ' + "9" * 400 + "}}}", "at most"),
        ('{"name": "x", "training": {"optimizer_options": {"b": [0.1, Infinity]}}}', "a finite"),
        ('{"name": "x", "backends": ["inductor:a=' + "9" * 400 + '"]}', "at most 9,223,372"),
    ],
)
def test_json_of_a_stranger_is_refused_with_words(content: str, said: str) -> None:
    with pytest.raises(InvalidSpec, match=said) as caught:
        ExperimentSpec.from_json(content)
    assert str(caught.value).encode() and len(str(caught.value)) < 800


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TrainingSpec(max_steps=10**9), "at most 100,000,000: the run's journal has"),
        (lambda: TrainingSpec(clip_norm=1e39), r"at most 3.4e\+38: float32 holds no larger"),
        (lambda: TrainingSpec(losses=("1e300*model",)), "a weight within the range of float32"),
        (lambda: TrainingSpec(parameter_groups=("*:lr=1e9",)), "and at most 10,000"),
        # 1,000 samples in batches of 8 are 125 steps.
        (
            lambda: ExperimentSpec(name="x", training=TrainingSpec(epochs=10**7)),
            "makes 1,250,000,000 steps and must make at most 100,000,000",
        ),
        (
            lambda: ExperimentSpec(name="x", backends=tuple(f"b{i}" for i in range(65))),
            "at most 64: each is a process",
        ),
        (
            lambda: Arm(label="b" * 151, role="backend", backend="eager"),
            "at most 150 bytes: it names the run's folder",
        ),
    ],
)
def test_what_is_too_much_is_refused_with_the_reason(make: Any, said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        make()


def test_the_ends_of_a_range_belong_to_it_unless_it_begins_above() -> None:
    Bounds(1, 9, "x").check("field", 1)
    Bounds(1, 9, "x").check("field", 9)
    Bounds(1, 9, "x").check("field", None)
    with pytest.raises(InvalidSpec, match="field = 0: must be above 0"):
        Bounds(0, FLOAT32_MAX, "x", above=True).check("field", 0)
    with pytest.raises(InvalidSpec, match="field = 10: must be at most 9: x"):
        Bounds(1, 9, "x").check("field", 10)
