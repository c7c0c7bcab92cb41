"""The CI gate on recorded journals: what it refuses, with which words and which exit status."""

import shutil
from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.arguments.conditions import parse_conditions
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
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
    return main(["show", "--judged", EXPERIMENT_ID, "--data-folder", str(data_dir.path), *options])


def record(
    data_dir: DataDir,
    label: str,
    spec: ExperimentSpec = SPEC,
    *,
    step_seconds: float = 0.1,
    compile_seconds: float = 0.0,
    accuracy: float | None = 0.8,
    state: RunState = RunState.FINISHED,
    **evaluation: object,
) -> None:
    recording = Recording(data_dir.runs, label, spec).claim().start()
    recording.blocks([step_seconds] * 8, LOSSES, compile_seconds)
    recording.evaluation(accuracy, **evaluation)
    recording.end(state)


def failures(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL ")]


def test_a_good_backend_passes_all_conditions_but_a_limit_below_its_compile_latency(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(data_dir.runs, SPEC)  # compiles for 3 s: 3.1 in the first step less 0.1
    assert gate(data_dir, "slower,parity,accuracy,compile>3.1") == 0
    assert failures(capsys) == []
    monkeypatch.setenv("BREAKEVEN_DATA", str(data_dir.path))
    assert main(["show", "--judged", EXPERIMENT_ID, "--fail-if=compile>2.5"]) == 5
    assert failures(capsys) == ["FAIL inductor: compile>2.5: compile latency 3 s, limit 2.5 s"]


def test_conditions_name_numbers(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    """0.8 of 200 samples, pulled: 161 / 202 = 0.797, standard error sqrt(0.797 x 0.203 / 200) =
    0.02844. One further draw beside two: x sqrt(1.5). A quarter of 1 % over eight backends is a
    chance of 0.0025, two-sided 3.0233 of them: 0.1053."""
    backends: dict[str, dict[str, Any]] = {
        "eager": {"step_seconds": 0.2, "accuracy": 0.69, "compile_seconds": 0.5},
        "aot_eager": {"accuracy": 0.74, "compile_seconds": 0.5},
        "cudagraphs": {"accuracy": 0.99, "compile_seconds": 0.5},
        "inductor": {"accuracy": None, "state": RunState.TIMEOUT, "compile_seconds": 3.0},
    }
    spec = replace(SPEC, backends=tuple(backends))
    for label in ("baseline", "control", *backends):
        record(data_dir, label, spec, **backends.get(label, {}))
    assert gate(data_dir, "slower,compile>1", "accuracy") == 5, "which outranks an unfinished run"
    lines = failures(capsys)
    said = [
        "FAIL eager: slower: its speed does not count, as its training is wrong: after 80 steps "
        "the accuracy is 69.0 %",
        "FAIL eager: accuracy: final accuracy 0.69, worse than equal trainings' 0.8 by 0.11; "
        "limit 0.1",
        "FAIL cudagraphs: slower: its speed does not count, as its training is wrong: ",
        "FAIL inductor: compile>1: compile latency 3 s, limit 1 s",
        "FAIL inductor: accuracy: it has no accuracy to compare with the baseline's",
        "FAIL inductor: unfinished: its state is timeout after 80 of 80 steps: all steps done",
    ]
    assert len(lines) == len(said)
    assert all(any(line.startswith(text) for line in lines) for text in said), lines
    assert gate(data_dir, "compile>9") == 1, "only requested conditions are judged"
    assert len(failures(capsys)) == 1


def test_held_out_loss_is_judged(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    for label, loss in (("baseline", 0.5), ("control", 0.5), ("inductor", 2.0)):
        record(data_dir, label, accuracy=None, loss=loss)
    assert gate(data_dir, "accuracy") == 5
    (line,) = failures(capsys)
    said = "accuracy: final evaluation loss 2, worse than equal trainings' 0.5 by 1.5"
    assert line.startswith(f"FAIL inductor: {said}")


@pytest.mark.parametrize(
    ("spec", "condition", "status", "said"),
    [
        (
            SPEC,
            "slower,parity",
            3,
            "FAIL inductor: parity: it is broken: the loss leaves the band at step 0",
        ),
        (
            replace(SPEC, controls=0),
            "parity",
            4,
            "FAIL inductor: parity: it could not be shown (unknown): ",
        ),
        (
            replace(SPEC, backends=()),
            "slower",
            5,
            "FAIL slower: the experiment has no backend to judge",
        ),
    ],
)
def test_parity_that_is_broken_or_not_shown_and_an_experiment_without_backend_are_refused(
    data_dir: DataDir,
    capsys: pytest.CaptureFixture[str],
    spec: ExperimentSpec,
    condition: str,
    status: int,
    said: str,
) -> None:
    record_experiment(data_dir.runs, spec, backend_offset=0.1)
    assert gate(data_dir, condition) == status
    (line,) = [line for line in failures(capsys) if line.startswith(said)]
    assert line.endswith("limit 1)") is ("broken" in said)


@pytest.mark.parametrize(
    ("slow", "finished", "parity_known", "broken"),
    [
        (False, True, True, False),
        (True, True, True, False),
        (False, True, True, True),
        (False, True, False, False),
        (False, True, False, True),
        (False, False, True, False),
        (True, False, False, True),
    ],
)
def test_a_status_means_the_same_whatever_is_judged(
    data_dir: DataDir, slow: bool, finished: bool, parity_known: bool, broken: bool
) -> None:
    """Without conditions parity is judged; a further condition can only add the status 5. Every two
    of these facts occur together and apart."""
    spec = replace(SPEC, controls=int(parity_known))
    labels = ["baseline", *["control"] * parity_known, "inductor"]
    for label in labels:
        recording = Recording(data_dir.runs, label, spec).claim().start()
        is_backend = label == "inductor"
        seconds = 0.2 if slow and is_backend else 0.1
        losses = [loss + 0.1 * (broken and is_backend) for loss in LOSSES]
        recording.blocks([seconds] * 8, losses, 3.0 * is_backend).evaluation(0.8)
        recording.end(RunState.FINISHED if finished or not is_backend else RunState.FAILED)
    of_parity = 3 if broken and parity_known else 1 if not finished else 0 if parity_known else 4
    assert gate(data_dir) == gate(data_dir, "parity") == of_parity
    is_wrong = broken and (parity_known or finished)  # Its speed does not count.
    of_speed = 5 if slow or is_wrong else None
    assert gate(data_dir, "slower,parity") == (3 if of_parity == 3 else of_speed or of_parity)
    assert gate(data_dir, "slower") == (of_speed or int(not finished))


def test_a_backend_with_too_few_rounds_to_be_slower_in_does_not_pass(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    for label in ("baseline", "control"):
        record(data_dir, label)
    recording = Recording(data_dir.runs, "inductor", SPEC).claim().start()
    for number in range(8):  # The first blocks compile, so that the last five alone are steady.
        losses = LOSSES[10 * number : 10 * number + 10]
        recording.block([0.9] * 10, losses, compiled=[0] if number < 3 else [])
    recording.evaluation(0.8).end()
    assert gate(data_dir, "slower") == 5
    said = "FAIL inductor: slower: too few rounds are paired with the baseline"
    assert failures(capsys) == [said]


@pytest.mark.parametrize(
    ("scenario", "condition", "said"),
    [
        ("cache", "slower", "must be what the scenario 'cache' measures: compile"),
        ("accuracy", "compile>60", "must be what the scenario 'accuracy' measures: nothing"),
        ("train", "slower-than:old>2%", "must name an environment; the experiment has none"),
    ],
)
def test_a_condition_on_what_was_not_measured_is_refused(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str], scenario: str, condition: str, said: str
) -> None:
    record_experiment(data_dir.runs, replace(SPEC, scenario=scenario))
    assert gate(data_dir, condition) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["baseline", "inductor"])
def test_a_run_without_a_folder_is_no_run_that_passes(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    record_experiment(data_dir.runs, replace(SPEC, backends=("inductor", "eager")))
    shutil.rmtree(data_dir.runs / f"{EXPERIMENT_ID}.{missing}")
    assert gate(data_dir, "compile>60") == 1
    line = f"FAIL {missing}: unfinished: its run folder is missing or unreadable"
    out = capsys.readouterr().out
    assert line in out.splitlines() and f"have no numbers: {missing}" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slow", "'slow' is not a condition; choose from"),
        ("slower>2", "'slower>2' is not a condition"),
        ("compile", "'compile' has no valid limit; write 'compile>60'"),
        ("compile>fast", "in quotes"),
        ("compile>-1", "has no valid limit"),
        ("compile>nan", "has no valid limit"),
        (",", "no condition is given"),
    ],
)
def test_a_condition_that_means_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_conditions(text)
