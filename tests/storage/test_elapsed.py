"""What an experiment has spent its time on, worked out by hand from the times of its journals."""

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Claim, Exit
from breakeven.runner.protocol.states import RunState
from breakeven.runner.worker.event_log import EventLog
from breakeven.storage import queries
from breakeven.storage.__main__ import main
from breakeven.storage.index.store import Store
from breakeven.storage.queries.time_use import elapsed
from tests.helpers.journals import EXPERIMENT_ID, GONE, Recording, experiment_spec

T0 = 1_800_000_000.0


def run(
    folder: Path,
    label: str,
    phases: list[tuple[float, str]],
    compiled: Sequence[tuple[float, float]] = (),
    claimed: float = 0.0,
    ended: float | None = None,
) -> Recording:
    """A run with these phases and compilations (end, seconds), in seconds after `T0`."""
    recording = Recording(folder, label, experiment_spec(controls=0))
    claim = Claim(host="box", process=GONE, supervisor=GONE, time=T0 + claimed)
    recording.run.write_claim(claim)
    events: list[tuple[float, str, dict[str, object]]] = [
        (at, "phase", {"phase": phase}) for at, phase in phases
    ]
    events += [
        (
            end,
            "compile_ended",
            {
                "step": 0,
                "phase": "training",
                "trigger": "DYNAMO",
                "compile_id": str(end),
                "seconds": seconds,
            },
        )
        for end, seconds in compiled
    ]
    for at, kind, fields in sorted(events, key=lambda event: event[0]):
        recording.log.append(kind, time=T0 + at, **fields)
    recording.log.flush()
    if ended is not None:
        recording.log.close()
        record = Exit(state=RunState.FINISHED, reason="done", returncode=0, time=T0 + ended)
        recording.run.write_exit(record)
    return recording


def record(folder: Path) -> None:
    run(
        folder,
        "baseline",
        ended=100.0,
        phases=[
            (1, "preparing"),
            (10, "waiting"),
            (11, "training"),
            (15, "waiting"),
            (70, "training"),
            (75, "evaluating"),
            (80, "waiting"),
            (90, "done"),
        ],
    )
    run(
        folder,
        "inductor",
        compiled=[(60, 38), (40, 15), (68, 6)],
        claimed=2.0,
        ended=96.0,
        phases=[
            (3, "preparing"),
            (13, "waiting"),
            (16, "training"),
            (69, "waiting"),
            (80, "training"),
            (84, "profiling"),
            (88, "done"),
        ],
    )


def spans_of(
    data_dir: DataDir, until: float | None = None
) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """From when to when, by label and kind, in the order of time."""
    spans: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with Store.in_memory(data_dir) as store:
        for row in queries.activities(store, EXPERIMENT_ID, until).itertuples():
            span = (round(row.start, 6), round(row.end, 6))
            spans.setdefault((row.label, row.kind), []).append(span)
    return spans


def test_every_second_counts_once(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    record(data_dir.runs)
    main(["show", "--wide", EXPERIMENT_ID, f"--data-folder={data_dir.path}"])
    assert capsys.readouterr().out.splitlines()[-1] == (
        "time: 1 min 40 s (compiling 44 s, profiles 4.0 s, evaluating 5.0 s, training steps 22 s, "
        "loading 11 s, finishing 12 s, waiting 2.0 s)"
    )
    with Store.in_memory(data_dir) as store:
        seconds, until = elapsed(store, EXPERIMENT_ID)
        runs = queries.list_runs(store, EXPERIMENT_ID).set_index("label")
    # Loading from 0 to 11, when a run trains; one that compiles within another counts once: 22 to
    # 60, and 62 to 68. Steps: 11 to 15, 16 to 22, 60 to 62, 68 to 69, 70 to 75, 80 to 84. From 15
    # to 16 and from 69 to 70 nobody had a turn; what remains after 88 ends the processes.
    assert seconds == pytest.approx(
        {
            "compiling": 44,
            "profiling": 4,
            "evaluating": 5,
            "steps": 22,
            "loading": 11,
            "finishing": 12,
            "waiting": 2,
        }
    )
    assert until == T0 + 100 and sum(seconds.values()) == pytest.approx(100)
    assert runs["compiled_seconds"].to_dict() == pytest.approx({"baseline": 0, "inductor": 44})


def test_what_each_run_did_when_lies_on_one_axis_of_time(data_dir: DataDir) -> None:
    """The axis begins with the first claim. A stretch is a third of a second, so that each part has
    a row of its own; between the claim and the journal's first line a run loads, too."""
    record(data_dir.runs)
    assert spans_of(data_dir) == {
        ("baseline", "loading"): [(0, 1), (1, 10)],
        ("baseline", "steps"): [(11, 15), (70, 75)],
        ("baseline", "evaluating"): [(75, 80)],
        ("baseline", "finishing"): [(90, 100)],
        ("inductor", "loading"): [(2, 3), (3, 13)],
        ("inductor", "steps"): [(16, 69), (80, 84)],
        ("inductor", "compiling"): [(22, 60), (25, 40), (62, 68)],
        ("inductor", "profiling"): [(84, 88)],
        ("inductor", "finishing"): [(88, 96)],
    }


def test_a_resumed_run_begins_with_its_newest_process(data_dir: DataDir) -> None:
    """A check of random numbers is a part of its own, in which something may compile. Nothing has
    an exit record of the process before: its phases count, the last of them up to its last line."""
    phases = [
        (1.0, "preparing"),
        (2.0, "training"),
        (5000.0, "preparing"),
        (5010.0, "training"),
        (5020.0, "checking"),
    ]
    run(data_dir.runs, "baseline", phases, [(5028.0, 6.0)], claimed=4998.0, ended=5030.0)
    assert spans_of(data_dir) == {
        ("baseline", "loading"): [(0, 2), (2, 12)],
        ("baseline", "steps"): [(12, 22)],
        ("baseline", "checking"): [(22, 32)],
        ("baseline", "compiling"): [(24, 30)],
    }
    with Store.in_memory(data_dir) as store:
        seconds, _ = elapsed(store, EXPERIMENT_ID)
    assert seconds == pytest.approx(
        {"steps": 10, "loading": 12, "checking": 4, "compiling": 6, "earlier": 1}
    )


def test_time_never_runs_backwards_when_a_run_is_resumed(data_dir: DataDir) -> None:
    """Stopped 100 s after the claim and claimed again at 500 s: 100 s so far, not 0."""
    stopped = run(data_dir.runs, "baseline", [(1, "preparing"), (10, "training")], ended=100.0)
    with Store.open(data_dir) as store:
        store.ingest_all()
        assert sum(elapsed(store, EXPERIMENT_ID)[0].values()) == pytest.approx(100)
        stopped.run.reopen()
        store.ingest_all()
        stopped.run.write_claim(Claim(host="box", process=GONE, supervisor=GONE, time=T0 + 500))
        journal = EventLog(stopped.run.events_file)
        journal.append("phase", time=T0 + 501, phase="preparing")
        journal.flush()
        store.ingest_all()
        assert elapsed(store, EXPERIMENT_ID) == ({"loading": 1, "earlier": 100}, T0 + 501)
        journal.append("phase", time=T0 + 510, phase="training")
        journal.append("phase", time=T0 + 530, phase="waiting")
        journal.flush()
        store.ingest_all()
        seconds, _ = elapsed(store, EXPERIMENT_ID)
    assert seconds == pytest.approx({"steps": 20, "loading": 10, "earlier": 100})


def test_a_compilation_that_goes_on_reaches_to_the_latest_line(data_dir: DataDir) -> None:
    """It began at 12 s, and another run's journal goes on until 30 s."""
    recording = run(data_dir.runs, "inductor", [(1, "preparing"), (10, "training")])
    recording.log.append(
        "compile_started", time=T0 + 12, step=0, trigger="DYNAMO", compile_id="0/0"
    )
    recording.log.flush()
    run(data_dir.runs, "baseline", [(1, "preparing"), (30, "waiting")])
    assert spans_of(data_dir)["inductor", "compiling"] == [(12, 30)]
    assert spans_of(data_dir, T0 + 50)["inductor", "compiling"] == [(12, 50)]
    assert spans_of(data_dir, T0 + 20)["inductor", "compiling"] == [(12, 30)]


def test_before_a_run_was_claimed_nothing_is_told(data_dir: DataDir) -> None:
    Recording(data_dir.runs, "baseline", experiment_spec(controls=0))
    with Store.in_memory(data_dir) as store:
        assert elapsed(store, EXPERIMENT_ID) == ({}, None)


def test_a_graph_that_ended_between_two_ticks_is_not_forgotten(data_dir: DataDir) -> None:
    recording = Recording(data_dir.runs, "inductor", experiment_spec(controls=0))
    recording.claim(ProcessIdentity.from_pid(os.getpid())).start()
    with Store.open(data_dir) as store:
        store.ingest()
        for at, kind, number in (
            (0, "started", "0/0"),
            (1, "started", "0/1"),
            (4, "ended", "0/1"),
            (30, "ended", "0/0"),
            (31, "started", "1/0"),
        ):
            recording.log.append(
                f"compile_{kind}",
                time=T0 + at,
                step=0,
                trigger="DYNAMO",
                compile_id=number,
                seconds=30.0,
            )
        recording.log.flush()
        latest = queries.latest_runs(store, EXPERIMENT_ID)
    (row,) = latest.to_dict("records")
    assert row["compiled_seconds"] == pytest.approx(30)
    assert row["compiling_since"] == pd.Timestamp(T0 + 31, unit="s", tz="UTC")
