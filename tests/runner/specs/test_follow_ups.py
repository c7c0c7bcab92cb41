"""Experiments about one run: its investigation, and what times it again, change nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.errors import InvalidSpec, RunnerError
from breakeven.runner.specs.experiment import ExperimentSpec, ModelSpec, RunSpec, SpeedSpec
from breakeven.runner.specs.follow_ups import investigation, timed_again
from breakeven.runner.specs.training import TrainingSpec
from tests.helpers.journals import experiment_spec

SPEC = ExperimentSpec.from_dict(
    {
        "name": "nightly",
        "backends": ["eager", "inductor:mode=max-autotune", "cudagraphs"],
        "training": {"batch_size": 4, "last_batch": "drop", "seed": 7},
        "data": {"num_train_samples": 32},
        "suite_run": "20261126-1",
    }
)
LABEL = "inductor-max-autotune"


def test_one_run_of_the_backend_does_the_work_of_the_run_whose_fault_is_named() -> None:
    made = investigation(SPEC, "20261126", LABEL, "differs", step=12, budget_seconds=600)
    (arm,) = made.arms
    assert arm == next(known for known in SPEC.arms if known.label == LABEL)
    # 32 samples in batches of 4 are 8 steps of one epoch.
    assert (made.num_steps, made.further_controls, made.profiles) == (8, (), False)
    assert RunSpec(experiment_id="x", experiment=made, arm=arm).run_id == f"x.{LABEL}"
    assert made.investigates == f"20261126.{LABEL}"
    assert (made.investigation.problem, made.investigation.step) == ("differs", 12)
    assert (made.name, made.time_limit_seconds) == (f"cause of {LABEL} in nightly", 600)
    assert (made.training, made.data, made.suite_run) == (SPEC.training, SPEC.data, None)
    assert ExperimentSpec.from_json(made.to_json()) == made


def test_a_run_with_larger_batches_is_investigated_in_its_own_batch_size() -> None:
    spec = replace(SPEC, backends=("inductor:mode=max-autotune+batch_times=4",))
    made = investigation(spec, "20261126", f"{LABEL}-batch_times_4", "raises")
    # 32 samples in batches of 16 are 2 steps of one epoch.
    assert (made.training.batch_size, made.num_steps) == (16, 2)
    assert made.backends == ("inductor:mode=max-autotune",)
    assert made.model.dropout == ("keep" if spec.has_dropout else "off")


def test_dropout_is_off_where_another_backend_of_the_experiment_had_decided_so() -> None:
    # cudagraphs draws its own random numbers, so no run of the experiment had dropout.
    assert investigation(SPEC, "x", "eager", "raises").model.dropout == "off"
    alone = replace(SPEC, backends=("eager",))
    assert investigation(alone, "x", "eager", "raises").model.dropout == "keep"


def test_a_run_that_makes_forward_passes_is_investigated_by_forward_passes() -> None:
    timed = replace(SPEC, scenario="speed", speed=SpeedSpec(part="inference"))
    made = investigation(timed, "x", LABEL, "raises")
    assert (made.investigation.part, made.is_inference) == ("inference", True)
    assert investigation(SPEC, "x", LABEL, "raises").trains


@pytest.mark.parametrize(
    ("changes", "label", "why"),
    [
        ({}, "baseline", "baseline has no compiler, so no compiler is to blame"),
        ({"backends": ("none:tf32=true",)}, "none-tf32_true", "has no compiler"),
        ({}, "onnx", "no run 'onnx'"),
        ({"devices": ("cpu", "cpu")}, LABEL, "must name one device for an investigation"),
    ],
)
def test_a_run_that_cannot_be_investigated_is_refused_in_a_sentence(
    changes: dict[str, Any], label: str, why: str
) -> None:
    spec = ExperimentSpec.from_dict({"name": "n", "backends": SPEC.backends, **changes})
    with pytest.raises(RunnerError, match=why):
        investigation(spec, "20261126", label, "raises")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, "investigates"),
        ({"investigates": "a.b", "backends": ("eager", "inductor")}, "backends"),
        ({"investigates": "a.b", "backends": ()}, "backends"),
        ({"investigates": "a.b", "backends": ("none:tf32=true",)}, "backends"),
    ],
)
def test_a_specification_that_is_no_investigation_is_refused(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        ExperimentSpec(name="n", scenario="investigate", **changes)
    assert refused.value.field == field


RECORDED = experiment_spec(
    backends=("eager", "inductor:scope=forward", "cudagraphs"),
    controls=2,
    suite_run="nightly",
    fallback_of="earlier",
    schedule="sequential",
    training=TrainingSpec(batch_size=8, seed=7, learning_rate=0.5),
)


def test_it_has_that_backend_baseline_and_controls_and_the_same_settings():
    made = timed_again(RECORDED, "inductor-forward")
    assert [made_arm.label for made_arm in made.arms] == [
        "baseline",
        "control",
        "control-2",
        "inductor-forward",
    ]
    assert made.suite_run is None and made.fallback_of is None
    same = replace(
        made,
        backends=RECORDED.backends,
        suite_run="nightly",
        fallback_of="earlier",
        model=RECORDED.model,
    )
    assert same == RECORDED


@pytest.mark.parametrize(("dropout", "said"), [("auto", "off"), ("keep", "keep"), ("off", "off")])
def test_dropout_stays_as_it_was_when_the_backend_that_decided_it_is_gone(dropout: str, said: str):
    """Captured graphs draw random numbers of their own, so that nobody had dropout beside them."""
    model = ModelSpec(dropout=dropout)  # type: ignore[arg-type]
    made = timed_again(replace(RECORDED, model=model), "eager")
    assert made.model.dropout == said
    assert made.has_dropout == (said == "keep")


REPEATED = experiment_spec(scenario="speed", speed=SpeedSpec(repeats=3), backends=("inductor",))


@pytest.mark.parametrize(
    ("spec", "label", "backends", "controls"),
    [
        (REPEATED, "inductor", ("inductor",), 1),
        (REPEATED, "inductor-2", ("inductor",), 1),
        (replace(RECORDED, controls=0), "eager", ("eager",), 1),
        (RECORDED, "control", (), 2),  # of baseline and control nothing else runs
    ],
)
def test_repeats_are_measured_again_together_and_beside_a_control(
    spec: ExperimentSpec, label: str, backends: tuple[str, ...], controls: int
):
    made = timed_again(spec, label)
    assert (made.backends, made.controls, made.speed) == (backends, controls, spec.speed)


@pytest.mark.parametrize(
    ("spec", "label", "why"),
    [
        (RECORDED, "inductr", "no run 'inductr'; there are baseline, control"),
        (experiment_spec(scenario="cache"), "inductor-cold-1", r"'cache' times no run"),
    ],
)
def test_what_cannot_be_measured_again_is_refused_with_what_to_do(
    spec: ExperimentSpec, label: str, why: str
):
    with pytest.raises(RunnerError, match=why):
        timed_again(spec, label)
