"""Settings that torch would refuse after launch are refused before, by torch itself."""

from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.checks import refused_experiments as settings_check
from breakeven.runner.checks.refused_experiments import check, check_settings, settings_to_check
from breakeven.runner.errors import InvalidSpec, ProbeFailed
from breakeven.runner.specs.candidates import search_spec
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.runner.worker.settings_check import first_refused
from tests.helpers.in_process import torch_asked_here
from tests.helpers.machine import MACHINE

pytestmark = pytest.mark.heavy


def spec_with(backends: tuple[str, ...] = (), **training: Any) -> ExperimentSpec:
    return ExperimentSpec(name="x", backends=backends, training=TrainingSpec(**training))


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        (
            spec_with(optimizer_options={"wieght_decay": 0.1}),
            "training.optimizer_options",
            "do not fit torch.optim.Adam: Adam.__init__() got an unexpected keyword argument",
        ),
        (
            spec_with(optimizer_options={"betas": (0.9,)}),
            "training.optimizer_options",
            "torch refuses",
        ),
        (
            spec_with(optimizer_options={"betas": (0.9, 2.0)}),
            "training.optimizer_options",
            "Invalid beta parameter at index 1",
        ),
        (
            spec_with(optimizer="SGD", optimizer_options={"nesterov": True}),
            "training.optimizer_options",
            "Nesterov momentum requires a momentum",
        ),
        (
            spec_with(optimizer_options={"capturable": True}),
            "training.optimizer_options",
            "supported devices",
        ),
        (
            spec_with(parameter_groups=("a.*:lr=0.1", "b.*:optimizer=SGD+momentum=-1")),
            "training.parameter_groups",
            "Invalid momentum value: -1",
        ),
        (
            spec_with(parameter_groups=("a.*:optimizer=Nope",)),
            "training.parameter_groups",
            "torch.optim has no such optimizer",
        ),
        (spec_with(scheduler="step"), "training.scheduler_options", "argument: 'step_size'"),
        (
            spec_with(scheduler="step", scheduler_options={"step_size": 0}),
            "training.scheduler_options",
            "torch refuses it",
        ),
        (
            spec_with(scheduler="plateau", scheduler_options={"factor": 2}),
            "training.scheduler_options",
            "Factor should be < 1.0",
        ),
        (
            spec_with(losses=("CrossEntropyLos",)),
            "training.losses",
            "did you mean 'CrossEntropyLoss'",
        ),
        (
            spec_with(losses=("model", "CrossEntropyLoss:label_smoothing=2")),
            "training.losses",
            "label_smoothing",
        ),
        (spec_with(losses=("MSELoss",)), "training.losses", "whole-number labels"),
        (
            spec_with(("inductor:epilogue_fusoin=false",)),
            "backends",
            "did you mean 'epilogue_fusion'",
        ),
        (spec_with(("inductor:epilogue_fusion=maybe",)), "backends", "got str should be bool"),
        (
            spec_with(("inductor:triton.cudagraph=true",)),
            "backends",
            "did you mean 'triton.cudagraphs'",
        ),
        (
            spec_with(("inductor:mode=max-autotune+triton.cudagraphs=2",)),
            "backends",
            "got int should be bool",
        ),
    ],
)
def test_torch_refuses_a_setting_by_its_field(spec: ExperimentSpec, field: str, said: str) -> None:
    refused = first_refused(spec)
    assert refused["field"] == field and said in refused["rule"], refused


@pytest.mark.parametrize(
    "spec",
    [
        spec_with(optimizer_options={"betas": (0.9, 0.95), "fused": True, "weight_decay": 0.01}),
        spec_with(
            parameter_groups=("classifier.*:optimizer=SGD+lr=0.01+momentum=0.9", "*.bias:lr=1")
        ),
        spec_with(scheduler="step", scheduler_options={"step_size": 30, "gamma": 0.5}),
        spec_with(scheduler="plateau", scheduler_options={"patience": 2}),
        spec_with(scheduler="linear", warmup_steps=10),
        spec_with(losses=("model", "0.5*CrossEntropyLoss:label_smoothing=0.1+weight=(1,2)")),
        spec_with(("eager", "inductor:epilogue_fusion=false", "inductor:mode=max-autotune")),
        spec_with(("inductor:mode=max-autotune+triton.cudagraphs=false+epilogue_fusion=false",)),
        replace(spec_with(losses=("MSELoss",)), task="custom"),
        # Torch takes these only on a GPU, where a run adds `capturable` by itself.
        replace(
            spec_with(scheduler="linear", optimizer_options={"foreach": True}), devices=("cuda:0",)
        ),
        replace(spec_with(optimizer_options={"capturable": True}), devices=("cuda:0",)),
        spec_with(optimizer="Adafactor", scheduler="cosine"),
    ],
)
def test_torch_takes_what_fits_it(spec: ExperimentSpec) -> None:
    assert first_refused(spec) == {}


@pytest.mark.slow
def test_form_and_command_line_ask_torch_in_another_process_once() -> None:
    wrong = spec_with(optimizer_options={"wieght_decay": 0.1})
    for samples in (800, 900):  # what torch has no say in is no reason to ask again
        with pytest.raises(InvalidSpec, match="unexpected keyword argument") as caught:
            check(replace(wrong, data=DataSpec(num_train_samples=samples)), MACHINE)
        assert caught.value.field == "training.optimizer_options"
        assert caught.value.value == {"wieght_decay": 0.1}
    answers = settings_check._first_refused.cache_info()
    assert answers.hits >= 1 and answers.currsize >= 1


@pytest.mark.parametrize(
    "setting",
    ["loader_workers=8", "batch_times=16", "optimizer=fused", "optimize_ddp=no_optimization"],
)
def test_an_inductor_option_is_asked_about_without_settings_of_breakeven(setting: str) -> None:
    """The settings that torch checks belong to no script, no data and no devices."""
    script = ModelSpec(source="script:/x/train.py")
    option = f"coordinate_descent_tuning=true+{setting}"
    backends = (f"inductor:{option}", f"inductor:{option}+shape_padding=true")
    spec = spec_with() if setting[:12] != "optimize_ddp" else replace(spec_with(), nodes=2)
    if setting == "loader_workers=8":
        spec = replace(spec, task="script", model=script, data=DataSpec(source="script"))
    settings = settings_to_check(replace(spec, backends=backends))
    assert settings is not None
    tried = "inductor:coordinate_descent_tuning=true"
    assert settings.backends == (tried, f"{tried}+shape_padding=true")


def test_a_refused_backend_is_named_with_all_of_its_settings() -> None:
    named = "inductor:no_such=1+optimizer=fused"
    with (
        torch_asked_here(),
        pytest.raises(InvalidSpec, match="no configuration 'no_such'") as caught,
    ):
        check_settings(spec_with(("inductor", named)))
    assert caught.value.value == named


def test_usual_settings_are_not_asked_about() -> None:
    assert (
        settings_to_check(spec_with(("inductor", "inductor:mode=max-autotune"), optimizer="SGD"))
        is None
    )
    assert settings_to_check(spec_with(batch_size=32, precision="bf16", clip_norm=1.0)) is None
    for other in (
        spec_with(("inductor:a=1",)),
        spec_with(warmup_steps=1),
        spec_with(losses=("MSELoss",)),
    ):
        assert settings_to_check(other) is not None


def test_a_torch_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_check, "COMMAND", ("sh", "-c", "echo broken torch >&2; exit 1"))
    with pytest.raises(ProbeFailed, match="broken torch"):
        check_settings(spec_with(optimizer_options={"eps": 1e-7}))


def test_candidates_of_the_table_wait_for_no_torch_and_others_are_checked() -> None:
    work = ExperimentSpec(name="x")
    assert settings_to_check(search_spec(work, steps=1000)) is None
    mistyped = replace(work, backends=("inductor", "inductor:cpp_wraper=true"))
    checked = settings_to_check(search_spec(mistyped, steps=1000, named=True))
    assert checked.backends == ("inductor:cpp_wraper=true",)
