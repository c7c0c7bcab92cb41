"""An investigation that was stopped, or killed, goes on, and repeats no trial."""

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

import breakeven.runner.supervision.supervisor
from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.commands.cli import main
from breakeven.runner.experiments.queue import (
    cancel,
    ensure_supervisor,
    find_experiment,
    resume,
    submit,
)
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec
from breakeven.runner.specs.follow_ups import Finding
from breakeven.runner.specs.scenario_fields import InvestigationSpec
from breakeven.runner.supervision.supervisor import supervise
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.investigation.investigator import Investigation, _Answered
from breakeven.runner.worker.investigation.trial_outcomes import KIND, PASSES, Outcome, Trials
from tests.helpers.loop import FAULTS, NET
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.heavy
BACKEND = f"{FAULTS / 'compiler_faults.py'}:wrong_relu"
SPEC = ExperimentSpec(
    **NET,
    name="cause",
    scenario="investigate",
    backends=(BACKEND,),
    time_limit_seconds=600.0,
    training=TrainingSpec(batch_size=8, max_steps=3, epochs=3, learning_rate=1e-3),
    investigates="experiment.run",
    investigation=InvestigationSpec(problem="differs"),
)
RAISES = Outcome(
    kind="raises",
    step=3,
    error="ValueError: no",
    traceback="line 7",
    max_error=float("nan"),
    out_of_memory=True,
    is_unstable=True,
)
RAISES_OWN = Outcome(kind="raises", step=3, error="the loss is not finite", tensor="layer 1")


def trials(run: RunDir) -> list[dict[str, Any]]:
    events = each_event(run.events_file) if run.events_file.exists() else ()
    return [event for event in events if event["kind"] == KIND]


@pytest.mark.slow  # Each of the three attempts loads torch twice.
def test_a_stopped_and_then_killed_search_goes_on_with_the_next_trial(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(CODE_VARIABLE, str(FAULTS))
    monkeypatch.setattr(breakeven.runner.supervision.supervisor, "LINGER_SECONDS", 0.0)
    experiment_id = submit(data_dir, SPEC)
    (run,) = find_experiment(data_dir, experiment_id).runs
    supervisor = ensure_supervisor(data_dir)
    assert supervisor is not None
    wait_until(lambda: len(trials(run)) >= 3)
    cancel(find_experiment(data_dir, experiment_id))
    wait_until(run.exit_file.exists)
    assert run.state is RunState.CANCELLED
    stopped = trials(run)

    assert main(["resume", experiment_id, f"--data-folder={data_dir.path}"]) == 0
    assert f"resumes after {len(stopped)} trials" in capsys.readouterr().out
    wait_until(lambda: len(trials(run)) > len(stopped))
    claim = run.read_claim()
    assert claim is not None and claim.supervisor is not None
    os.kill(claim.supervisor.pid, signal.SIGKILL)
    os.kill(claim.process.pid, signal.SIGKILL)
    supervisor.wait()
    wait_until(lambda: run.state is RunState.LOST)
    killed = trials(run)

    supervise(data_dir)
    assert (run.state, run.attempt) == (RunState.FINISHED, 3)
    every = trials(run)
    assert every[: len(killed)] == killed and killed[: len(stopped)] == stopped
    name = every[1]["what"]
    assert [(trial["stage"], trial["what"]) for trial in every] == [
        ("reproduction", "no compiler"),
        ("reproduction", name),
        ("reproduction", name),
        ("stages", "eager"),
        ("stages", "aot_eager"),
        ("stages", name),
        ("stages", name),
        ("stages", "aot_eager"),
        ("graphs", "graph 1 of 3"),
        *[("program", "repro.py")] * 3,
        *[("program", "repro.py eager")] * 2,
    ]
    assert [trial["number"] for trial in every] == [*range(1, len(every) + 1)]
    finding = [
        event for event in each_event(run.events_file) if event["kind"] == "investigation_finding"
    ][-1]
    assert (finding["cause"], finding["program_fails"]) == ("backend", 3)


@pytest.fixture
def run(data_dir: DataDir) -> RunDir:
    run = RunDir(data_dir.runs / "20261122-101500-123456-7f3a.inductor")
    run.path.mkdir(parents=True)
    return run


def made(
    run: RunDir, *given_outcomes: tuple[str, Outcome], torch: str = "2.9", code: str = "a1"
) -> list[Outcome]:
    """The outcomes of an attempt's trials: recorded ones, else those given here."""
    log = EventLog(run.events_file)
    log.append("environment", python="3.12", versions={"torch": torch})
    log.append("source", source="train.py", sha256=code)
    attempt = Trials(run, log)
    outcomes = [
        attempt.made("stages", what, lambda given=given: given) for what, given in given_outcomes
    ]
    log.close()
    return outcomes


def test_a_search_that_ended_early_can_go_on_without_a_checkpoint(data_dir: DataDir) -> None:
    experiment = find_experiment(data_dir, submit(data_dir, SPEC))
    (run,) = experiment.runs
    run.write_exit(Exit.now(RunState.CANCELLED, "stopped on request", 75))
    assert resume(experiment) == ["compiler_faults.wrong_relu"]
    assert run.state is RunState.QUEUED


def test_a_process_that_may_have_died_with_the_attempt_is_no_outcome(run: RunDir) -> None:
    crashes = Outcome(kind="crashes", error="the process ended with exit status -9")
    made(run, ("eager", RAISES), ("inductor", crashes))
    assert made(run, ("eager", PASSES), ("inductor", PASSES))[1] == PASSES
    assert [trial["number"] for trial in trials(run)] == [1, 2, 3]
    # A third attempt has the outcome of the second one.
    assert made(run, ("eager", PASSES), ("inductor", RAISES))[1] == PASSES


@pytest.mark.parametrize("changes", [{"torch": "2.10"}, {"code": "b2"}])
def test_outcomes_of_other_code_or_another_torch_are_no_outcomes_of_a_later_attempt(
    run: RunDir, changes: dict[str, str]
) -> None:
    made(run, ("eager", RAISES), ("inductor", RAISES))
    assert made(run, ("eager", PASSES), **changes) == [PASSES]
    # The next attempt has what this one found, and nothing of the first one.
    again = made(run, ("eager", RAISES), ("inductor", PASSES), **changes)
    assert again == [PASSES, PASSES]


def test_trials_of_another_program_replace_the_recorded_ones(run: RunDir) -> None:
    made(run, ("eager", PASSES), ("repro.py", RAISES))
    log = EventLog(run.events_file)
    log.append("environment", python="3.12", versions={"torch": "2.9"})
    log.append("source", source="train.py", sha256="a1")
    attempt = Trials(run, log)
    attempt.made("stages", "eager", lambda: RAISES)
    attempt.forget()  # The program was made small anew, otherwise.
    attempt.made("stages", "repro.py", lambda: PASSES)
    log.close()
    assert made(run, ("eager", RAISES), ("repro.py", RAISES)) == [PASSES, PASSES]


def test_a_later_attempt_has_the_recorded_outcomes_and_makes_all_trials_after_another_one(
    run: RunDir,
) -> None:
    made(run, ("eager", RAISES), ("aot_eager", RAISES), ("inductor", RAISES))
    other = Outcome(kind="crashes")
    first, changed, last = made(run, ("eager", PASSES), ("other", other), ("inductor", PASSES))
    # NaN equals nothing, not even itself.
    assert repr(first) == repr(RAISES) and (changed, last) == (other, PASSES)
    assert [(trial["number"], trial["what"]) for trial in trials(run)] == [
        (1, "eager"),
        (2, "aot_eager"),
        (3, "inductor"),
        (4, "other"),
        (5, "inductor"),
    ]


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [
        (Outcome(kind="crashes", error="the process ended with exit status -9"), "unstable"),
        (Outcome(kind="raises", error="OutOfMemoryError: no", out_of_memory=True), "unstable"),
        (RAISES_OWN, "own code"),
    ],
)
def test_a_trial_without_a_compiler_that_is_killed_or_lacks_memory_blames_no_code(
    outcome: Outcome, cause: str
) -> None:
    search = Investigation.__new__(Investigation)
    search._context = SimpleNamespace(experiment=SPEC)  # type: ignore[assignment]
    search._wanted, search._step, search._finding = SPEC.investigation, 0, Finding()
    search._trial = lambda *arguments: outcome  # type: ignore[method-assign]
    with pytest.raises(_Answered):
        search._reproduce()
    assert search._finding.cause == cause


@pytest.mark.parametrize(
    ("backend", "outcomes"),
    [
        (
            "inductor",
            {
                "eager": [PASSES],
                "aot_eager": [PASSES, RAISES],
                "aot_eager_decomp_partition": [RAISES, RAISES],
            },
        ),
        (
            "eager:scope=forward",
            {"eager:scope=forward": [RAISES, RAISES], "eager": [PASSES, RAISES]},
        ),
        (
            "eager:scope=forward",
            {"eager:scope=forward": [RAISES, RAISES, PASSES], "eager": [PASSES, PASSES]},
        ),
    ],
    ids=["stage", "setting", "rest"],
)
def test_a_fault_that_comes_and_goes_names_no_stage_and_no_setting(
    backend: str, outcomes: dict[str, list[Outcome]]
) -> None:
    search = Investigation.__new__(Investigation)
    search._context = SimpleNamespace(experiment=SPEC)  # type: ignore[assignment]
    search._wanted, search._finding, search._fault = SPEC.investigation, Finding(), RAISES
    search._arm = parse_backend(backend)
    with pytest.raises(_Answered):
        search._find_part(lambda stage, arm: outcomes[arm.text].pop(0))
    assert search._finding.cause == "unstable"
    assert not any(outcomes.values())
