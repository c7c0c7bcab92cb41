"""What each phase of compiling takes, beside what it took last time."""

import time

import pandas as pd
import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage import queries
from breakeven.storage.compiling.timeline import (
    PhaseTimes,
    exclusive_phase_seconds,
    phase_times,
    phases_by_run,
)
from breakeven.storage.index.store import Store
from breakeven.storage.remaining import costs_of
from tests.helpers.journals import EXPERIMENT_ID, Recording

NOW, LAST = "20261122-093015-123456-7f3b", "20261121-093015-123456-7f3a"
SECONDS = {
    "total_seconds": 10.0,
    "aot_seconds": 8.0,
    "inductor_seconds": 7.0,
    "code_seconds": 5.0,
    "kernel_seconds": 1.0,
}
ALONE = {
    "Dynamo": 2.0,
    "AOTAutograd": 1.0,
    "Inductor lowering": 2.0,
    "Code generation": 4.0,
    "Triton and C++": 1.0,
}


def record(data_dir: DataDir, experiment_id: str, *, compiled: bool, share: float = 1.0) -> None:
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label, experiment_id=experiment_id).claim().start()
        if label == "inductor":
            run.log.append(
                "compile_started", step=0, phase="training", trigger="DYNAMO", compile_id="0/0"
            )
        if label == "inductor" and compiled:
            run.log.append(
                "compile_ended",
                step=0,
                phase="training",
                trigger="DYNAMO",
                compile_id="0/0",
                seconds=10.0 * share,
            )
            reported = {name: seconds * share for name, seconds in SECONDS.items()}
            run.log.append(
                "compile_metrics",
                step=0,
                phase="training",
                compile_id="0/0",
                function="forward",
                **reported,
            )
        if compiled:
            run.blocks([0.2] * 4, [1.0] * 40, 10.0 * share if label == "inductor" else 0.0)
            run.end()
        run.log.flush()


def times(data_dir: DataDir) -> list[PhaseTimes]:
    with Store.in_memory(data_dir) as store:
        runs = queries.list_runs(store, NOW)
        runs.loc[runs["label"] == "inductor", "compiling_since"] = pd.Timestamp.now(tz="UTC")
        return phase_times(store, NOW, runs, [costs_of(store, LAST)])


def test_while_it_compiles_only_the_phases_of_last_time_are_known(data_dir: DataDir):
    record(data_dir, LAST, compiled=True)
    record(data_dir, NOW, compiled=False)
    (run,) = times(data_dir)
    assert (run.label, run.seconds_by_phase, run.earlier_seconds_by_phase) == (
        "inductor",
        {},
        pytest.approx(ALONE),
    )
    after = {seconds: run.phase_after(seconds) for seconds in (0.0, 2.5, 4.9, 9.5, 10.5)}
    assert after == {
        0.0: "Dynamo",
        2.5: "AOTAutograd",
        4.9: "Inductor lowering",
        9.5: "Triton and C++",
        10.5: None,
    }


def test_once_torch_has_reported_both_are_told_phase_by_phase(data_dir: DataDir):
    record(data_dir, LAST, compiled=True)
    record(data_dir, NOW, compiled=True, share=2.0)
    (run,) = times(data_dir)
    assert run.seconds_by_phase == pytest.approx(
        {phase: 2 * seconds for phase, seconds in ALONE.items()}
    )
    assert run.earlier_seconds_by_phase == pytest.approx(ALONE)


def test_the_first_time_there_is_nothing_to_compare_with(data_dir: DataDir):
    record(data_dir, LAST, compiled=False)
    record(data_dir, NOW, compiled=True)
    (run,) = times(data_dir)
    assert run.earlier_seconds_by_phase == {} and run.phase_after(1.0) is None


def test_graphs_that_are_not_reported_yet_count_together(data_dir: DataDir):
    run = Recording(data_dir.runs, "inductor", experiment_id=NOW).claim().start()
    for number, seconds in (("0/0", 40.0), ("1/0", 5.0)):
        run.log.append(
            "compile_ended",
            step=0,
            phase="training",
            trigger="DYNAMO",
            compile_id=number,
            seconds=seconds,
            time=time.time() + float(number[0]) * seconds,
        )
    run.log.flush()
    with Store.in_memory(data_dir) as store:
        runs = queries.list_runs(store, NOW)
        runs["compiling_since"] = since = pd.Timestamp.now(tz="UTC")
        (phases,) = phase_times(store, NOW, runs, [])
    assert (since - phases.since).total_seconds() == pytest.approx(45.0, abs=0.1)


@pytest.mark.parametrize(
    ("function", "seconds", "alone"),
    [
        ("forward", SECONDS, [2.0, 1.0, 2.0, 4.0, 1.0]),
        # A backward of its own spent nothing in Dynamo.
        (
            None,
            {"total_seconds": 5.0, "inductor_seconds": 4.0, "code_seconds": 3.0},
            [0.0, 1.0, 1.0, 3.0, 0.0],
        ),
        # A phase that a cache spared takes nothing from the ones around it.
        (
            "forward",
            {"total_seconds": 3.0, "aot_seconds": 2.0, "kernel_seconds": 0.5},
            [1.0, 1.5, 0.0, 0.0, 0.5],
        ),
    ],
)
def test_each_phase_is_given_without_those_that_lie_in_it(
    function: str | None, seconds: dict[str, float], alone: list[float]
) -> None:
    frame = pd.DataFrame([{"function": function, **{name: seconds.get(name) for name in SECONDS}}])
    alone_by_phase = exclusive_phase_seconds(frame).iloc[0]
    assert alone_by_phase[list(ALONE)].tolist() == pytest.approx(alone)


def test_frames_of_a_run_add_up_and_those_of_evaluating_do_not_count(data_dir: DataDir) -> None:
    run = Recording(data_dir.runs, "inductor")
    for phase, total in (("training", 3.0), ("training", 2.0), ("evaluating", 9.0)):
        run.log.append(
            "compile_metrics",
            step=0,
            phase=phase,
            compile_id="0/0",
            function="f",
            total_seconds=total,
            aot_seconds=1.0,
        )
    run.log.flush()
    with Store.in_memory(data_dir) as store:
        seconds = phases_by_run(store, EXPERIMENT_ID).set_index("phase")["seconds"]
    assert (seconds["Dynamo"], seconds["AOTAutograd"], seconds.sum()) == (3.0, 2.0, 5.0)
