"""Arms with names: their words, what they inherit from the baseline, and the arguments of a run."""

from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.arms import read_changes, with_arguments, words_of_arm
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, ScriptSpec
from breakeven.runner.specs.follow_ups import timed_again

MAIN, HEAD = "a" * 40, "b" * 40


def script(*named_arms: str, **changes: Any) -> ExperimentSpec:
    usual: dict[str, Any] = {"backends": (), "script": ScriptSpec(arguments=("--lr", "0.1"))}
    return ExperimentSpec(
        name="mine",
        task="script",
        model=ModelSpec(source="script:/home/me/train.py"),
        data=DataSpec(source="script"),
        named_arms=named_arms,
        **{**usual, **changes},
    )


def arm_of(spec: ExperimentSpec, label: str) -> Arm:
    (arm,) = (arm for arm in spec.arms if arm.label == label)
    return arm


def test_an_arm_changes_any_of_arguments_variables_revision_diff_and_backend() -> None:
    text = (
        f"new=@{HEAD} @/home/me/fix.diff OMP_NUM_THREADS=8 inductor:mode=max-autotune --use-liger x"
    )
    arm = arm_of(script(text), "new")
    assert arm.role == "backend"
    assert (arm.revision, arm.diff) == (HEAD, "/home/me/fix.diff")
    assert arm.variables == ("OMP_NUM_THREADS=8",)
    assert (arm.backend, arm.mode) == ("inductor", "max-autotune")
    assert arm.arguments == ("--use-liger", "x")


def test_words_after_the_first_argument_are_arguments() -> None:
    changes = read_changes("--compiler inductor OMP_NUM_THREADS=8 @main", "baseline")
    assert changes.arguments == ("--compiler", "inductor", "OMP_NUM_THREADS=8", "@main")


def test_two_dashes_make_any_word_an_argument() -> None:
    changes = read_changes("-- inductor", "baseline")
    assert (changes.backend, changes.arguments) == (None, ("inductor",))
    assert changes.text == "-- inductor"


def test_names_in_small_letters_are_arguments_such_as_those_of_hydra() -> None:
    assert read_changes("lr=0.1 A=1", "baseline").arguments == ("lr=0.1", "A=1")


def test_an_arm_has_what_the_baseline_changes_unless_it_names_another() -> None:
    baseline = f"@{MAIN} SEED=1 THREADS=2 --precision bf16"
    spec = script("pr=@" + HEAD, "seed=SEED=2", baseline=baseline, backends=("eager",))
    assert arm_of(spec, "baseline").revision == arm_of(spec, "control").revision == MAIN
    assert arm_of(spec, "eager").arguments == ("--precision", "bf16")
    assert arm_of(spec, "pr").revision == HEAD
    assert arm_of(spec, "pr").variables == ("SEED=1", "THREADS=2")
    assert arm_of(spec, "seed").variables == ("THREADS=2", "SEED=2")
    assert arm_of(spec, "seed").revision == MAIN


def test_further_controls_differ_from_the_baseline_in_their_weights_alone() -> None:
    spec = script("fp8=--fp8", baseline="--precision bf16", more_controls=2)
    # Six controls in all may be needed for the outcome of an arm that changes the arguments.
    assert [arm.arguments for arm in spec.further_controls] == [("--precision", "bf16")] * 5
    assert len(replace(spec, same="steps").further_controls) == 2
    assert replace(spec, more_controls=0).further_controls == ()


@pytest.mark.parametrize(
    ("arm", "rule"),
    [
        ("--use-liger", "must read NAME=CHANGES"),
        ("baseline=--x", "Breakeven's own"),
        ("a b=--x", "must read NAME=CHANGES"),
        ("none=", "changes nothing"),
        ("none=none", "changes nothing"),
        ("pr=@main", "full name of a commit"),
        ("fix=@fix.diff", "full path"),
        ("both=inductor eager", "must name one backend"),
        (f"both=@{HEAD} @{MAIN}", "must name one revision"),
        ("open='--x", "open quotation"),
        ("cache=TORCHINDUCTOR_CACHE_DIR=/tmp", "Breakeven itself sets"),
        ("other=CUDA_VISIBLE_DEVICES=1", "Breakeven itself sets"),
        ("odd=inductor:scope=everything", "scope"),
    ],
)
def test_what_is_no_arm_is_refused_with_a_reason(arm: str, rule: str) -> None:
    with pytest.raises(InvalidSpec, match=rule):
        script(arm)


def test_an_arm_that_is_the_baseline_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="changes nothing: it is the baseline"):
        script("pr=@" + MAIN, baseline="@" + MAIN)


def test_two_arms_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="the name of another arm, 'eager'"):
        script("eager=--x", backends=("eager",))


def test_beside_a_compiled_baseline_an_arm_is_compiled_unless_it_names_none() -> None:
    baseline = "inductor:mode=reduce-overhead --precision bf16"
    spec = script("fp8=--fp8", "plain=none", "eager=eager", baseline=baseline)
    for label in ("baseline", "control", "fp8"):
        assert (arm_of(spec, label).backend, arm_of(spec, label).mode) == (
            "inductor",
            "reduce-overhead",
        )
    assert arm_of(spec, "plain").backend is None
    assert arm_of(spec, "plain").arguments == ("--precision", "bf16")
    assert (arm_of(spec, "eager").backend, arm_of(spec, "eager").mode) == ("eager", None)
    assert arm_of(spec, "control").perturbation_seed == 0
    assert words_of_arm(spec, spec.arms[0]) == ("inductor:mode=reduce-overhead; --precision bf16")


PYTHON = "/opt/torch211/bin/python"


def test_an_arm_may_have_a_python_of_its_own() -> None:
    spec = script(f"new=@{HEAD} python={PYTHON} A=1 eager --fp8", "old=--x", backends=())
    arm = arm_of(spec, "new")
    assert (arm.python, arm.revision, arm.backend) == (PYTHON, HEAD, "eager")
    assert [spec.environment_python(arm) for arm in spec.arms] == [None, None, PYTHON, None]
    assert spec.other_pythons == (PYTHON,)
    assert not replace(spec, named_arms=(f"new=python={PYTHON}",)).changed_labels, "same training"
    assert words_of_arm(spec, arm).split("; ")[1:3] == ["commit bbbbbbb", "Python of torch211"]
    text = read_changes(f"python={PYTHON} --fp8", "x").text
    assert text == f"python={PYTHON} --fp8"
    assert read_changes(f"-- python={PYTHON}", "x").arguments == (f"python={PYTHON}",)


def test_an_arms_python_replaces_that_of_the_baseline_and_of_the_experiment() -> None:
    others = {
        "environments": ("mine=/opt/mine/bin/python",),
        "baseline": "python=/opt/a/bin/python",
    }
    spec = script("new=python=/opt/b/bin/python", "same=--x", **others)
    pythons = [spec.environment_python(arm) for arm in spec.arms]
    assert pythons == [f"/opt/{name}/bin/python" for name in "aaba"]
    assert [arm.environment for arm in spec.arms] == ["mine"] * 4


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ("python=bin/python", "must name the Python by its full path"),
        ("python=", "must name one Python"),
        ("python=/a/bin/python python=/b/bin/python", "must name one Python"),
    ],
)
def test_a_python_that_no_run_finds_is_refused(changes: str, rule: str) -> None:
    with pytest.raises(InvalidSpec, match=rule):
        script(f"new={changes}")


def test_the_backend_of_the_baseline_is_no_arm() -> None:
    with pytest.raises(InvalidSpec, match="backends = 'inductor': changes nothing"):
        script(baseline="inductor", backends=("inductor",))
    with pytest.raises(InvalidSpec, match=r"baseline = .*: has a mode or an option"):
        script("fp8=--fp8", baseline="eager:mode=max-autotune")


def test_only_a_script_has_arguments_and_revisions() -> None:
    with pytest.raises(InvalidSpec, match="only a script has them"):
        ExperimentSpec(name="mine", named_arms=("fp8=--fp8",))


def test_a_training_of_breakeven_can_differ_in_variables_and_compiler() -> None:
    spec = ExperimentSpec(name="mine", backends=(), named_arms=("two=OMP_NUM_THREADS=2 eager",))
    assert arm_of(spec, "two").variables == ("OMP_NUM_THREADS=2",)


def test_no_run_is_forked_if_an_arm_must_start_afresh_for_its_variables() -> None:
    usual: dict[str, Any] = {"name": "mine", "backends": ()}
    assert ExperimentSpec(**usual, named_arms=("new=eager",)).may_fork_runs
    assert not ExperimentSpec(**usual, named_arms=("new=A=1",)).may_fork_runs


def test_an_arm_that_is_timed_again_comes_alone() -> None:
    spec = script("fp8=--fp8", "liger=--liger", backends=("eager",))
    assert timed_again(spec, "fp8").arm_texts == ("fp8=--fp8",)
    assert timed_again(spec, "eager").arm_texts == ("eager",)


@pytest.mark.parametrize("scenario", ["speed", "accuracy", "cache"])
def test_other_scenarios_have_no_arms_with_names(scenario: Any) -> None:
    with pytest.raises(InvalidSpec, match="only a whole training has arms"):
        ExperimentSpec(name="mine", scenario=scenario, named_arms=("two=OMP_NUM_THREADS=2",))


@pytest.mark.parametrize(
    ("arguments", "changes", "merged"),
    [
        ("--lr 0.1 data", "--use-liger", "--lr 0.1 data --use-liger"),
        ("--lr 0.1 data", "--lr 0.2", "--lr 0.2 data"),
        ("--lr=0.1 data", "--lr 0.2", "--lr 0.2 data"),
        ("--lr 0.1 data", "--lr=0.2", "--lr=0.2 data"),
        ("--betas 0.9 0.99 data", "--betas 0.8 0.95", "--betas 0.8 0.95 data"),
        ("--fp8 data", "--fp8", "--fp8 data"),
        ("lr=0.1 model=gpt", "lr=0.2", "lr=0.2 model=gpt"),
        ("--shift -1 data", "--shift -2", "--shift -2 data"),
        ("data", "other", "data other"),
        ("--lr 0.1 --lr 0.2", "--lr 0.3", "--lr 0.1 --lr 0.3"),
    ],
)
def test_an_option_replaces_the_one_of_its_name_or_is_appended(
    arguments: str, changes: str, merged: str
) -> None:
    assert with_arguments(arguments.split(), changes.split()) == tuple(merged.split())
