"""Arms with names, as the terminal shows them: what each changes, the answer, and how to use it."""

import json

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.arms import change_words
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, ScriptSpec
from breakeven.storage.__main__ import main as storage
from breakeven.storage.comparison.plan import plan
from breakeven.storage.words.answer_sentence import answer_words, other_lengths
from tests.helpers.comparisons import compared
from tests.helpers.journals import EXPERIMENT_ID, Recording, falling_losses, record_experiment

COMMIT = "3f2a1bc" + "0" * 33


def spec(*named_arms: str, baseline: str = "") -> ExperimentSpec:
    return ExperimentSpec(
        name="mine",
        task="script",
        model=ModelSpec(source="script:/home/me/train.py"),
        data=DataSpec(source="script"),
        backends=(),
        named_arms=named_arms,
        baseline=baseline,
        block_steps=10,
        script=ScriptSpec(arguments=("--lr", "0.1"), steps=80),
    )


def shown(data_dir: DataDir, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    storage(["show", "--wide", f"--data-folder={data_dir.path}", EXPERIMENT_ID, *arguments])
    return capsys.readouterr().out


def test_changes_of_an_arm_in_words() -> None:
    arm = Arm(
        label="new",
        role="backend",
        revision=COMMIT,
        diff="/home/me/fix.diff",
        variables=("THREADS=8",),
        arguments=("--name", "a b"),
    )
    assert change_words(arm) == "commit 3f2a1bc + fix.diff; THREADS=8; --name 'a b'"
    assert change_words(Arm(label="inductor", role="backend", backend="inductor")) == ""


def test_the_faster_arm_is_recommended_with_the_commands_that_make_it(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record_experiment(data_dir.runs, spec(f"liger=@{COMMIT} A=1 --lr 0.2 --use-liger"))
    text = shown(data_dir, capsys)
    assert "Use liger for 80 steps: " in text
    assert "compiling included" not in text
    assert "\nliger: commit 3f2a1bc; A=1; --lr 0.2 --use-liger\n" in text
    start = "python /home/me/train.py --lr 0.2 --use-liger"
    commands = ["cd /home/me", f"git checkout {COMMIT}", "export A=1", start]
    lines = "\n".join(f"    {command}" for command in commands)
    assert f"to use liger, train with these changes:\n{lines}\n" in text


def test_a_terminal_obeys_nothing_of_an_arm(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record_experiment(data_dir.runs, spec("evil=-- --name '\x1b[31m\nrm `x` | \u202e'"))
    text = shown(data_dir, capsys)
    assert "Use evil for 80 steps: " in text
    assert not {"\x1b", "\u202e"} & {*text}
    assert not [line for line in text.splitlines() if line.startswith("rm ")]


def test_a_slower_arm_is_declined_in_words_that_fit_no_compiler(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record_experiment(data_dir.runs, spec("slow=--slow"), backend_seconds=0.4)
    text = shown(data_dir, capsys)
    assert "Keep the baseline for 80 steps: " in text
    assert " with the baseline, " in text


def test_what_the_baseline_changes_is_shown_once(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record_experiment(data_dir.runs, spec("fp8=--fp8", baseline=f"@{COMMIT}"))
    lines = shown(data_dir, capsys).splitlines()
    assert "baseline: commit 3f2a1bc" in lines
    assert "fp8: commit 3f2a1bc; --fp8" in lines
    assert not [line for line in lines if line.startswith("control:")]


def test_the_cause_of_a_fault_is_not_sought_in_the_compiler_of_an_arm_that_changes_more(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record_experiment(data_dir.runs, spec("new=eager --fp8"))
    output = str(data_dir.path / "next.json")
    arguments = [
        f"--data-folder={data_dir.path}",
        f"{EXPERIMENT_ID}.new",
        f"--output={output}",
        "--budget=9",
    ]
    assert storage(["plan-investigation", *arguments]) == 2
    assert "new changes more than its compiler (--fp8)" in capsys.readouterr().err


def test_the_backend_of_an_arm_with_a_name_is_shown(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    with_backends = spec("graphs=inductor:mode=reduce-overhead", "more=A=1 aot_eager --lr 0.2")
    record_experiment(data_dir.runs, with_backends)
    text = shown(data_dir, capsys)
    assert "\ngraphs: inductor:mode=reduce-overhead\n" in text
    assert "\nmore: aot_eager; A=1; --lr 0.2\n" in text


def test_an_experiment_is_found_by_the_names_of_its_arms(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record_experiment(data_dir.runs, spec("liger=--use-liger", "fp8=--precision fp8"))
    assert {EXPERIMENT_ID} == listed(data_dir, capsys, "--backend=liger")
    assert {EXPERIMENT_ID} == listed(data_dir, capsys, "fp8")
    assert not listed(data_dir, capsys, "--backend=bf16")


def listed(data_dir: DataDir, capsys: pytest.CaptureFixture[str], *wanted: str) -> set[str]:
    storage(["list", f"--data-folder={data_dir.path}", "--json", *wanted])
    return {row["experiment_id"] for row in json.loads(capsys.readouterr().out)}


STEPS_AND_COMPILING = {
    "baseline": (0.2, 3.0),
    "control": (0.2, 3.0),
    "fused": (0.15, 3.0),
    "plain": (0.3, 0.0),
}
"""Seconds of a step and of compiling."""


def record_beside_a_compiled_baseline(data_dir: DataDir, *named_arms: str) -> None:
    arms = spec(*named_arms, baseline="inductor")
    losses = falling_losses(80)
    for arm in arms.arms:
        seconds, compiling = STEPS_AND_COMPILING[arm.label]
        recording = Recording(data_dir.runs, arm.label, arms, EXPERIMENT_ID).claim()
        recording.start()
        offset = 1e-5 if arm.role == "control" else 0.0
        recording.blocks([seconds] * 8, [loss + offset for loss in losses], compiling)
        recording.end()


def test_beside_a_compiled_baseline_totals_include_both_compile_times(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record_beside_a_compiled_baseline(data_dir, "fused=--fused", "plain=none")
    text = shown(data_dir, capsys)
    # 3 + 80 x 0.15 instead of 3 + 80 x 0.2 s.
    assert "Use fused for 80 steps: 15 s instead of 19 s, compiling included; it learns" in text
    assert "\nbreak-even of fused: at once\n" in text
    # 3 s ahead, and 0.1 s behind in each step.
    assert "\nbreak-even of plain: until 30 steps (30 to 30), about 9.00 s" in text
    assert "\nbaseline: inductor\n" in text
    assert "compile" not in text.partition("\n")[0].replace("compiling included", "")


def test_an_arm_that_compiles_nothing_is_used_until_its_slower_steps_take_its_lead_away(
    data_dir: DataDir,
) -> None:
    record_beside_a_compiled_baseline(data_dir, "plain=none")
    result = compared(data_dir)
    # 20 x 0.3 s instead of 3 + 20 x 0.2 s.
    short = plan(result, 20)
    answer = (
        "Use plain for 20 steps: 6.0 s instead of 7.0 s, compiling included; it learns the same"
    )
    assert str(answer_words(short)) == f"{answer} thing."
    assert other_lengths(short) == "From 30 steps (30 to 30) on, keep the baseline."
    assert str(answer_words(plan(result, 80))) == (
        "Keep the baseline for 80 steps: 19 s with the baseline, 24 s with plain."
    )
    assert other_lengths(plan(result, 80)) == "Below 30 steps (30 to 30), use plain."
    assert str(answer_words(plan(result, None))).startswith("Below 30 steps (30 to 30), use plain;")
