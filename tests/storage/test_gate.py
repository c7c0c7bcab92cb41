"""The CI gate on recorded journals: what it refuses, with which words and which exit status."""

from typing import Any

import pytest

from breakeven.runner.commands.conditions import parse_conditions
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.states import RunState
from breakeven.storage.__main__ import main
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)

pytestmark = pytest.mark.heavy  # whole commands over stores of their own: many seconds

SPEC = experiment_spec(num_steps=80, block_steps=10)
LOSSES = falling_losses(80)


def gate(data_dir: DataDir, *conditions: str) -> int:
    options = [f"--fail-if={condition}" for condition in conditions]
    return main(["show", EXPERIMENT_ID, "--data-folder", str(data_dir.path), *options])


def record(
    data_dir: DataDir,
    label: str,
    *,
    step_seconds: float = 0.1,
    compile_seconds: float = 0.0,
    accuracy: float | None = 0.8,
    state: RunState = RunState.FINISHED,
    **evaluation: object,
) -> None:
    recording = Recording(data_dir.runs, label, SPEC).claim().start()
    recording.blocks([step_seconds] * 8, LOSSES, compile_seconds)
    recording.evaluation(accuracy, **evaluation)
    recording.end(state)


def failures(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL ")]


def test_a_good_backend_passes_every_condition(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record_experiment(data_dir.runs, SPEC)  # compiles for 3 s
    assert gate(data_dir, "slower,parity,accuracy,compile>3.1") == 0
    assert failures(capsys) == []


@pytest.mark.parametrize(
    ("inductor", "condition", "status", "said"),
    [
        ({"step_seconds": 0.2}, "slower", 5, "slower: speedup 0.50x ("),
        ({"step_seconds": 0.2}, "parity,accuracy", 0, None),  # only what is asked for is judged
        # 0.8 of 200 samples, pulled: 161 / 202 = 0.797, standard error sqrt(0.797 x 0.203 / 200) =
        # 0.02844. One further draw beside two: x sqrt(1.5). A quarter of 1 % is a chance of 0.0025,
        # two-sided 3.0233 of them: 0.1053. Learned are 0.8 less the share of always guessing.
        ({"accuracy": 0.69}, "accuracy", 5,
         "accuracy: final accuracy 0.69, worse than equal trainings' 0.8 by 0.11; limit 0.1053"),
        ({"accuracy": 0.74}, "accuracy", 0, None),
        ({"accuracy": 0.99}, "accuracy", 0, None),
        ({"accuracy": None}, "accuracy", 5,
         "accuracy: it has no accuracy to compare with the baseline's"),
        ({"state": RunState.TIMEOUT}, "slower", 1,
         "unfinished: its state is timeout after 80 of 80 steps: all steps done"),
    ],
    ids=["slower", "slower and not asked for", "accuracy below what sampling explains",
         "accuracy within sampling", "accuracy that is better", "accuracy never measured",
         "unfinished"],
)  # fmt: skip
def test_a_condition_refuses_a_backend_with_the_numbers_that_it_rests_on(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str], inductor: dict[str, Any],
    condition: str, status: int, said: str | None,
) -> None:  # fmt: skip
    for label in ("baseline", "control"):
        record(data_dir, label)
    record(data_dir, "inductor", **inductor)
    assert gate(data_dir, condition) == status
    told = failures(capsys)
    assert [one.startswith(f"FAIL inductor: {said}") for one in told] == [True] * bool(said)


def test_a_task_without_accuracy_is_judged_by_its_held_out_loss(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    for label, loss in (("baseline", 0.5), ("control", 0.5), ("inductor", 2.0)):
        record(data_dir, label, accuracy=None, loss=loss)
    assert gate(data_dir, "accuracy") == 5
    (line,) = failures(capsys)
    assert line.startswith(
        "FAIL inductor: accuracy: final evaluation loss 2, worse than equal trainings' 0.5 by 1.5"
    )


def test_a_compile_latency_above_the_limit_is_refused_with_both_numbers(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record_experiment(data_dir.runs, SPEC)
    assert gate(data_dir, "compile>2.5") == 5
    assert failures(capsys) == [
        "FAIL inductor: compile>2.5: compile latency 3 s, limit 2.5 s"
    ]  # 3.1 s of the first step minus a steady one of 0.1 s


def test_a_broken_parity_is_refused_although_the_run_is_fast(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record_experiment(data_dir.runs, SPEC, backend_offset=0.1)
    assert gate(data_dir, "slower") == 0
    capsys.readouterr()
    assert gate(data_dir, "parity") == 5
    (line,) = failures(capsys)
    assert line.startswith(
        "FAIL inductor: parity: it is broken: the loss leaves the band at step 0"
    )
    assert line.endswith("limit 1)")


def test_a_parity_that_could_not_be_shown_is_refused(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = experiment_spec(num_steps=80, block_steps=10, controls=0)
    record_experiment(data_dir.runs, spec)
    assert gate(data_dir, "parity") == 5
    (line,) = failures(capsys)
    assert line.startswith("FAIL inductor: parity: it could not be shown (unknown): ")


def test_several_conditions_give_a_line_each_and_outrank_an_unfinished_run(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record(data_dir, "baseline")
    record(data_dir, "control", state=RunState.CANCELLED)
    record(data_dir, "inductor", step_seconds=0.2, compile_seconds=3.0, accuracy=0.5)
    assert gate(data_dir, "slower,compile>1", "accuracy") == 5
    kinds = [line.split(": ")[:2] for line in failures(capsys)]
    assert kinds == [
        ["FAIL inductor", "slower"],
        ["FAIL inductor", "compile>1"],
        ["FAIL inductor", "accuracy"],
        ["FAIL control", "unfinished"],
    ]


def test_without_a_backend_nothing_can_be_shown(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record_experiment(data_dir.runs, experiment_spec(num_steps=80, backends=()))
    assert gate(data_dir, "slower") == 5
    assert failures(capsys) == ["FAIL slower: the experiment has no backend to judge"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slow", "'slow' is no condition; choose from"),
        ("slower>2", "'slower>2' is no condition"),
        ("compile", "'compile' has no limit; write 'compile>60'"),
        ("compile>fast", "in quotes"),
        ("compile>-1", "has no limit"),
        ("compile>nan", "has no limit"),
        (",", "no condition is given"),
    ],
)
def test_a_condition_that_means_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_conditions(text)


def test_conditions_read_as_they_are_written() -> None:
    (slower, limit) = parse_conditions("slower, compile>1.5")
    assert [str(slower), str(limit)] == ["slower", "compile>1.5"]
    assert limit.limit == 1.5


def test_the_data_folder_is_the_one_that_the_environment_names(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record_experiment(data_dir.runs, SPEC)
    monkeypatch.setenv("BREAKEVEN_DATA", str(data_dir.path))
    assert main(["show", EXPERIMENT_ID]) == 0
    assert "inductor" in capsys.readouterr().out
