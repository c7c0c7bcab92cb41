"""What measures a run again asks for: nothing that it does not need, and all else as it was."""

from dataclasses import replace

import pytest

from breakeven.runner.errors import RunnerError
from breakeven.runner.specs.experiment import ModelSpec, SpeedSpec, TrainingSpec
from breakeven.runner.specs.investigations import replay
from tests.helpers.journals import experiment_spec

RECORDED = experiment_spec(
    backends=("eager", "inductor:scope=forward", "cudagraphs"), controls=2, suite_run="nightly",
    fallback_of="earlier", schedule="sequential",
    training=TrainingSpec(batch_size=8, seed=7, learning_rate=0.5),
)  # fmt: skip


def test_it_has_that_backend_baseline_and_controls_and_the_same_settings():
    made = replay(RECORDED, "first", "inductor-forward")
    assert [one.label for one in made.variants] == [
        "baseline", "control", "control-2", "inductor-forward"
    ]  # fmt: skip
    assert made.replay_of == "first" and made.suite_run is None and made.fallback_of is None
    same = replace(made, backends=RECORDED.backends, replay_of=None, suite_run="nightly",
                   fallback_of="earlier", model=RECORDED.model)  # fmt: skip
    assert same == RECORDED


def test_there_is_a_control_even_where_none_was_recorded():
    assert replay(replace(RECORDED, controls=0), "first", "eager").controls == 1


@pytest.mark.parametrize(("asked", "said"), [("auto", "off"), ("keep", "keep"), ("off", "off")])
def test_dropout_stays_as_it_was_when_the_backend_that_decided_it_is_gone(asked: str, said: str):
    """Captured graphs draw random numbers of their own, so that nobody had dropout beside them."""
    model = ModelSpec(dropout=asked)  # type: ignore[arg-type]
    made = replay(replace(RECORDED, model=model), "first", "eager")
    assert made.model.dropout == said
    assert made.has_dropout == (said == "keep")


def test_repeats_are_measured_again_together():
    spec = experiment_spec(scenario="speed", speed=SpeedSpec(repeats=3), backends=("inductor",))
    for label in ("inductor", "inductor-2"):
        made = replay(spec, "first", label)
        assert made.backends == ("inductor",) and made.speed.repeats == 3


def test_of_baseline_and_control_nothing_else_runs():
    assert replay(RECORDED, "first", "control").backends == ()


def test_a_run_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(RunnerError, match="no run 'inductr'; there are baseline, control"):
        replay(RECORDED, "first", "inductr")


def test_what_has_no_timed_baseline_is_refused_with_what_to_do():
    with pytest.raises(
        RunnerError, match=r"'cache' times no run .* run the whole experiment again"
    ):
        replay(experiment_spec(scenario="cache"), "first", "inductor-cold-1")
