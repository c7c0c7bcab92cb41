"""Launch's form: optional settings, options as text, variants of backends, and what is said."""

from dataclasses import replace
from typing import Any

import pytest
from test_views_pages import MACHINE, WITH_GPU, folder, keep, opened, text  # noqa: F401

from runner.options import parse_options, write_options
from runner.queue import experiments
from runner.run_dir import DataDir
from runner.spec import ExperimentSpec, TrainingSpec
from views.presets import PRESETS, adjusted


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("", {}),
        ("weight_decay=0.01", {"weight_decay": 0.01}),
        (" num_cycles = 2 , last=1e-3,", {"num_cycles": 2, "last": 1e-3}),
        ("fused=true, foreach=false", {"fused": True, "foreach": False}),
        ("betas=(0.9, 0.95), mode=triangular", {"betas": (0.9, 0.95), "mode": "triangular"}),
        ("milestones=(30,)", {"milestones": (30,)}),
    ],
)
def test_options_are_read_as_numbers_truth_values_lists_and_text(
    written: str, options: dict[str, Any]
):
    found = parse_options(written)
    assert found == options
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in options.items()
    }
    assert parse_options(write_options(found)) == options


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("weight_decay", "'weight_decay' must read name=value"),
        ("=3", "'=3' must read name=value"),
        ("weight decay=3", "'weight decay=3' must read name=value"),
        ("a=", "'a=' must read name=value"),
        ("a=1, a=2", "'a' is given twice"),
        ("a=nan", "'nan' is not a finite number"),
        ("a=(1, two)", "'(1, two)' must hold numbers"),
        ("a=()", "'()' must hold numbers"),
        ("a=(1", "'(1' has a parenthesis without its other half"),
    ],
)
def test_options_that_cannot_be_read_are_named(written: str, said: str):
    with pytest.raises(ValueError) as error:
        parse_options(written)
    assert said in str(error.value)


def test_every_setting_of_the_folded_group_reaches_the_experiment(folder: DataDir):  # noqa: F811
    app = opened("launch")
    app.selectbox(key="quick.scheduler").set_value("cosine_with_restarts")
    app.number_input(key="quick.warmup_steps").set_value(5)
    app.text_input(key="quick.scheduler_options").set_value("num_cycles=2")
    app.text_input(key="quick.optimizer_options").set_value("weight_decay=0.01, betas=(0.8, 0.9)")
    app.number_input(key="quick.gradient_accumulation").set_value(4)
    app.number_input(key="quick.max_steps").set_value(45)
    app.number_input(key="quick.clip_norm").set_value(1.5)
    app.number_input(key="quick.clip_value").set_value(0.5)
    app.toggle(key="quick.record_gradient_norm").set_value(True)
    app.selectbox(key="quick.evaluation").set_value("steps")
    app.number_input(key="quick.evaluate_every").set_value(15)
    app.run()
    # 960 samples / 8 = 120 batches, 4 a step: 30 steps an epoch; 45 steps are 1.5 epochs.
    assert "**45 steps** each: 1.5 epochs of 30 steps of 4 x 8 samples" in text(app)
    app.button(key="launch").click().run()
    (experiment,) = experiments(folder)
    assert experiment.spec.training == TrainingSpec(
        learning_rate=1e-3, batch_size=8, scheduler="cosine_with_restarts", warmup_steps=5,
        scheduler_options={"num_cycles": 2},
        optimizer_options={"weight_decay": 0.01, "betas": (0.8, 0.9)},
        gradient_accumulation=4, max_steps=45, clip_norm=1.5, clip_value=0.5,
        record_gradient_norm=True, evaluation="steps", evaluate_every=15,
    )  # fmt: skip


def test_what_is_left_empty_is_not_set_and_presets_are_as_they_were(folder: DataDir):  # noqa: F811
    app = opened("launch")
    assert app.number_input(key="quick.max_steps").value is None
    assert app.number_input(key="quick.clip_norm").value is None
    app.button(key="launch").click().run()
    (experiment,) = experiments(folder)
    preset = adjusted(PRESETS["quick"].spec, MACHINE)
    assert set(experiment.spec.backends) == set(preset.backends)
    assert replace(experiment.spec, backends=preset.backends) == preset


def test_options_that_cannot_be_read_are_said_beside_their_field_and_stay(
    folder: DataDir,  # noqa: F811
):
    app = opened("launch")
    app.text_input(key="quick.optimizer_options").set_value("weight_decay")
    app.number_input(key="quick.evaluate_every").set_value(3).run()
    said = "'weight_decay' must read name=value"
    assert [entry.value for entry in app.caption if said in entry.value]
    assert "training.optimizer_options" in app.error[0].value
    assert app.text_input(key="quick.optimizer_options").value == "weight_decay"
    assert app.number_input(key="quick.evaluate_every").value == 3, "fields after it are shown"
    assert app.button[-1].disabled


def test_the_loss_scaler_is_offered_for_fp16_alone(folder: DataDir):  # noqa: F811
    keep(folder, WITH_GPU)
    app = opened("launch")
    assert "quick.scaler_options" not in [field.key for field in app.text_input]
    app.selectbox(key="quick.precision").set_value("fp16").run()
    app.text_input(key="quick.scaler_options").set_value("init_scale=1024").run()
    app.button(key="launch").click().run()
    (experiment,) = experiments(folder)
    assert experiment.spec.training.scaler_options == {"init_scale": 1024}


def test_backends_can_be_typed_with_settings(folder: DataDir):  # noqa: F811
    app = opened("launch")
    app.multiselect(key="quick.backends").set_value(["inductor", "inductor:mode=max-autotune"])
    app.run()
    assert "`inductor-max-autotune`" in text(app)
    app.multiselect(key="quick.backends").set_value(["inductor", "inductor:mode=fast"]).run()
    assert "inductor:mode=fast" in app.error[0].value
    app.multiselect(key="quick.backends").set_value(["nobody:scope=forward"]).run()
    assert "this machine has" in app.error[0].value


def test_an_address_brings_back_typed_backends_and_options(folder: DataDir):  # noqa: F811
    typed = ["inductor", "inductor:scope=forward+dynamic=true"]
    app = opened("launch", **{"quick.backends": typed, "quick.clip_norm": "0.5",
                              "quick.optimizer_options": "weight_decay=0.1"})  # fmt: skip
    assert app.multiselect(key="quick.backends").value == typed
    assert app.number_input(key="quick.clip_norm").value == 0.5
    assert app.text_input(key="quick.optimizer_options").value == "weight_decay=0.1"


def test_a_preset_keeps_or_drops_a_backend_whatever_its_settings():
    variants = ExperimentSpec(
        name="variants", backends=("inductor:scope=forward", "cudagraphs", "eager:dynamic=true")
    )
    assert adjusted(variants, WITH_GPU).backends == variants.backends
    assert adjusted(variants, MACHINE).backends == ("inductor:scope=forward", "eager:dynamic=true")
