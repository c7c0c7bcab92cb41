"""What a specification of a training script may say."""

from typing import Any

import pytest

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, ScriptSpec


def spec(**changes: Any) -> ExperimentSpec:
    usual = {"task": "script", "model": ModelSpec(source="script:/home/me/train.py"),
             "data": DataSpec(source="script")}  # fmt: skip
    return ExperimentSpec(name="mine", **{**usual, **changes})


def test_a_script_knows_by_itself_how_long_it_trains_and_when_it_evaluates() -> None:
    free, bounded = spec(), spec(script=ScriptSpec(steps=40))
    assert (free.num_steps, bounded.num_steps) == (0, 40)
    assert free.evaluates == "never" and free.precision is None and free.subject == "train.py"
    assert free.user_code == ("/home/me/train.py",)


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
def test_what_a_script_cannot_be_asked_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        spec(**changes)
    assert caught.value.field == field


def test_repeated_blocks_may_be_compiled_one_by_one() -> None:
    assert spec(backends=("inductor:scope=blocks",)).variants[-1].scope == "blocks"


def test_the_folder_is_a_full_path() -> None:
    with pytest.raises(InvalidSpec, match="full path"):
        ScriptSpec(folder="here")
