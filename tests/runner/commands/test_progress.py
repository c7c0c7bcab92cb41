"""What the terminal shows of a run, read from its journal."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.commands import cli, start, waiting
from breakeven.runner.commands.waiting import watch
from breakeven.runner.experiments import queue_order
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Claim, Exit
from breakeven.runner.protocol.run_progress import RunProgress
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import DataSpec, EvaluationSpec, ExperimentSpec, ModelSpec
from breakeven.runner.specs.follow_ups import investigation
from breakeven.runner.specs.workload import SCRIPT_DATA, SCRIPT_TASK
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

LOSSES = falling_losses(40)


def progress(run: Recording) -> RunProgress:
    state = RunProgress(run.run, run.spec)
    state.update()
    return state


def test_an_investigation_counts_trials_and_names_the_last_one(tmp_path: Path) -> None:
    spec = investigation(experiment_spec(), EXPERIMENT_ID, "inductor", "raises")
    run = Recording(tmp_path, "inductor", spec)
    for number, (what, outcome) in enumerate([("no compiler", "passes"), ("eager", "raises")], 1):
        run.log.append(
            "investigation_trial", number=number, stage="stages", what=what, outcome=outcome
        )
    run.log.flush()
    line = waiting._line("inductor", progress(run))
    assert "    2 trials" in line
    assert line.endswith("eager raises")


def test_seconds_of_compiling_are_those_of_all_graphs(tmp_path: Path) -> None:
    run, now = Recording(tmp_path, "inductor"), time.time()
    # 100 s of one graph with another within it, and a third that goes on for 20 s.
    for ago, kind, number in (
        (150, "started", "0/0"),
        (140, "started", "0/1"),
        (130, "ended", "0/1"),
        (50, "ended", "0/0"),
        (20, "started", "1/0"),
    ):
        run.log.append(
            f"compile_{kind}",
            time=now - ago,
            step=0,
            trigger="DYNAMO",
            compile_id=number,
            seconds=30.0,
        )
    run.log.flush()
    now = progress(run)
    now.state = RunState.RUNNING
    assert "compiling 2 min" in waiting._line("inductor", now)


@pytest.mark.parametrize(
    ("splits", "evaluations", "held_out"),
    [
        (
            ("train", "validation"),
            [
                (0.75, {"split": "train", "compiled": False}),
                (0.25, {"split": "train", "compiled": True}),
                (0.5, {"split": "validation", "compiled": False}),
            ],
            ("accuracy", 0.75),
        ),
        (("validation",), [(None, {"split": "validation", "compiled": False})], ("loss", 0.5)),
        (("validation",), [(0.8, {})], ("accuracy", 0.8)),  # of a journal without splits
    ],
)
def test_the_first_split_that_is_evaluated_counts_and_the_weights_without_a_compiler(
    tmp_path: Path, splits: tuple[str, ...], evaluations: list[Any], held_out: tuple[str, float]
) -> None:
    spec = experiment_spec(evaluation=EvaluationSpec(splits=splits))
    run = Recording(tmp_path, "inductor", spec)
    for accuracy, fields in evaluations:
        run.evaluation(accuracy, loss=0.5, **fields)
    assert progress(run).held_out == held_out


def test_steps_are_those_since_the_checkpoint_or_iterations_of_a_check(tmp_path: Path) -> None:
    run = Recording(tmp_path, "inductor").blocks([0.1] * 2, LOSSES[:20]).checkpoint()
    run.block([0.1] * 5, LOSSES[20:25])
    run.log.append("error", error="X", message="gone", traceback="", out_of_memory=False)
    run.resume(20)
    state = progress(run)
    assert (state.steps_done, state.checkpoint_step, state.error) == (20, 20, "")
    # A check of correctness has done its iterations when it is recorded.
    run = Recording(tmp_path / "check", "inductor", experiment_spec(scenario="accuracy"))
    assert (progress(run).steps_done, progress(run).num_steps) == (0, 2)
    run.log.append("accuracy_status", part="training", status="pass", iterations=2)
    run.log.flush()
    assert progress(run).steps_done == 2


def test_the_terminal_says_why_training_stopped_early(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = DataDir(tmp_path)
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label).claim().start().blocks([0.1] * 2, LOSSES[:20])
        run.stop("loss is not finite").end()
    watch(data_dir, find_experiment(data_dir, EXPERIMENT_ID))
    assert capsys.readouterr().out.count("stopped after step 20: loss is not finite") == 3


def test_lines_wider_than_the_terminal_are_drawn_over_in_all_their_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    drawn = waiting._redraw(["a" * 81, "b" * 80 + " ", "c", ""], 0)
    assert drawn == 2 + 1 + 1 + 1
    waiting._redraw(["d"], drawn)
    assert capsys.readouterr().out.endswith("c\n\n\x1b[5A\x1b[Jd\n")


def lines_of_a_log(
    data_dir: DataDir,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    moments: Iterator[object],
) -> list[str]:
    """What `watch` prints into a log, if it looks after each of these moments and after the last
    one the runs have ended."""

    sleep = time.sleep

    def to_next_moment(seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            next(moments)
        else:  # a thread that another test has left
            sleep(seconds)

    monkeypatch.setattr("time.sleep", to_next_moment)
    watch(data_dir, find_experiment(data_dir, EXPERIMENT_ID))
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("baseline")]


def recordings(data_dir: DataDir, spec: ExperimentSpec) -> list[Recording]:
    return [Recording(data_dir.runs, label, spec) for label in ("baseline", "control", "inductor")]


def test_a_log_gets_a_line_for_each_quarter_however_many_turns_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = DataDir(tmp_path)
    runs = recordings(data_dir, experiment_spec(num_steps=400))

    def moments() -> Iterator[None]:
        for run in runs:
            run.run.write_claim(Claim.by(ProcessIdentity.from_pid(os.getpid())))
            run.start()
        for turn in range(40):
            for phase in ("training", "evaluating", "waiting"):
                for run in runs:
                    run.log.append("phase", phase=phase)
                    if phase == "training":
                        run.block([0.1] * 10, [1 / (turn + 1)] * 10)
                    run.log.flush()
                yield
        for run in runs:
            run.end()
        yield

    lines = lines_of_a_log(data_dir, monkeypatch, capsys, moments())
    assert [line.split()[2:4] for line in lines] == [
        ["0/400", "queued"],
        ["10/400", "training"],
        ["100/400", "training"],
        ["200/400", "training"],
        ["300/400", "training"],
        ["400/400", "training"],
        ["400/400", "finished"],
    ]


def test_a_log_of_unknown_length_gets_a_line_whenever_the_steps_have_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data_dir = DataDir(tmp_path)
    model, data = ModelSpec(source="script:/home/me/train.py"), DataSpec(source=SCRIPT_DATA)
    script = ExperimentSpec(name="train.py", task=SCRIPT_TASK, model=model, data=data)
    runs = recordings(data_dir, script)

    def moments() -> Iterator[None]:
        for run in runs:
            run.run.write_claim(Claim.by(ProcessIdentity.from_pid(os.getpid())))
            run.start(num_steps=None)
        for _ in range(50):
            for run in runs:
                run.block([0.1] * 10, [0.5] * 10)
            yield
        for run in runs:
            run.end()
        yield

    lines = lines_of_a_log(data_dir, monkeypatch, capsys, moments())
    steps = [int(line.split("]")[1].split()[0]) for line in lines]
    # 500 steps, ten at a time: the first look past 0, 8, 16, 32, 64, 128 and 256 steps.
    assert steps == [0, 10, 20, 40, 70, 130, 260, 500]


@pytest.mark.parametrize(
    ("phases", "state", "ends"),
    [
        (["training"], RunState.RUNNING, False),
        (["training", "evaluating"], RunState.RUNNING, False),  # which is timed
        (["training", "checking"], RunState.RUNNING, True),
        (["training", "checking", "training", "done"], RunState.RUNNING, True),
        (["done"], RunState.QUEUED, False),  # further rounds are about to begin
        (["training"], RunState.FAILED, True),
    ],
)
def test_a_run_ends_once_nothing_is_timed_any_more(
    tmp_path: Path, phases: list[str], state: RunState, ends: bool
) -> None:
    run = Recording(tmp_path, "inductor", experiment_spec(num_steps=40)).start()
    run.blocks([0.1] * 4, LOSSES)
    for phase in phases:
        run.log.append("phase", phase=phase)
    run.log.flush()
    seen = progress(run)
    seen.state = state
    assert seen.is_ending is ends


@pytest.mark.heavy
def test_the_process_that_prints_the_table_starts_while_runs_end_and_prints_it_then(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data_dir = DataDir(tmp_path)
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label).start().blocks([0.1] * 4, LOSSES)
        run.run.write_claim(Claim.by(ProcessIdentity.from_pid(os.getpid())))
        run.log.append("phase", phase="done")
        run.log.flush()
    storage, called = waiting.Storage(data_dir), list[Any]()

    def start_and_end() -> None:
        storage.start()
        called.append(storage._process)
        for folder in data_dir.run_dirs():
            folder.write_exit(Exit.now(RunState.FINISHED, "training is over", 0))

    watch(data_dir, find_experiment(data_dir, EXPERIMENT_ID), start_and_end)
    assert storage.run("show", [EXPERIMENT_ID]) in (0, 4)
    assert len(called) == 1 and called[0].returncode is not None, "one process does both"
    assert "speedup" in capfd.readouterr().out


@pytest.mark.heavy
def test_a_process_that_gets_no_command_ends_without_a_word() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "breakeven.storage", "-"], input="", text=True, capture_output=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_resume_says_which_runs_go_on_from_which_step_and_starts_a_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[DataDir] = []
    monkeypatch.setattr(start, "ensure_supervisor", started.append)  # what it does: test_resume
    data_dir = DataDir(tmp_path)
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label).claim().start().blocks([0.1] * 2, LOSSES[:20])
        run.checkpoint()
        if label != "control":
            run.run.checkpoints.mkdir(parents=True)
            (run.run.checkpoints / "step-00000020.pt").touch()
        run.end(RunState.CANCELLED)
    assert cli.main(["resume", EXPERIMENT_ID, f"--data-folder={tmp_path}"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "baseline resumes from step 20",
        "inductor resumes from step 20",
    ]
    assert [folder.path for folder in started] == [tmp_path]


def test_resume_refuses_where_no_run_left_a_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for label in ("baseline", "control", "inductor"):
        Recording(DataDir(tmp_path).runs, label).claim().end(RunState.LOST)
    assert cli.main(["resume", EXPERIMENT_ID, f"--data-folder={tmp_path}"]) == cli.BAD_INPUT
    assert "checkpoint" in capsys.readouterr().err


def test_the_terminal_names_what_the_experiment_waits_for_and_what_to_do(data_dir: DataDir) -> None:
    earlier, later = (submit(data_dir, experiment_spec(name=name)) for name in ("earlier", "mine"))

    def ahead(experiment_id: str = later) -> list[str]:
        return waiting._ahead(data_dir, find_experiment(data_dir, experiment_id))

    here = f" --data-folder={data_dir.path}"
    assert ahead(earlier) == []
    assert ahead() == [
        f"Waits for {earlier} (earlier), queued earlier in the same data folder: `breakeven queue "
        f"cancel {earlier}{here}` ends it, `breakeven queue next {later}{here}` starts this "
        "experiment first."
    ]
    queue_order.move(data_dir, later)
    assert ahead() == []
    claim = Claim.by(ProcessIdentity.from_pid(os.getpid()), devices=("cpu",), cpus="0-3")
    find_experiment(data_dir, earlier).runs[0].write_claim(claim)
    assert ahead() == [
        f"Waits for {earlier} (earlier), running in the same data folder: "
        f"`breakeven queue cancel {earlier}{here}` ends it."
    ]
    queue_order.hold(data_dir, later)
    assert f"`breakeven queue release {later}{here}`" in ahead()[0]
    queue_order.pause(data_dir)
    assert f"`breakeven queue continue{here}`" in ahead()[0]
