"""How runs stand between two ticks is told as the next tick will tell it."""

import os

import pandas as pd
import pytest

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording

OF_THE_MOMENT = [
    "label",
    "state",
    "phase",
    "phase_started",
    "compiling_since",
    "steps_done",
    "last_loss",
]


@pytest.fixture
def running(data_dir: DataDir) -> list[Recording]:
    """Three runs that go on, of one block each."""
    me = ProcessIdentity.from_pid(os.getpid())
    labels = ("baseline", "control", "inductor")
    return [
        Recording(data_dir.runs, label).claim(me).start().block([0.1] * 2, [2.0, 1.9])
        for label in labels
    ]


def runs_after_tick(store: Store, *, but: str = "") -> pd.DataFrame:
    """The present state before a tick, which equals the state after it, but for one column."""
    latest = queries.latest_runs(store, EXPERIMENT_ID)
    store.ingest()
    after = queries.list_runs(store, EXPERIMENT_ID)
    columns = [name for name in OF_THE_MOMENT if name != but]
    times = ["phase_started", "compiling_since"]
    frames = (latest, after, queries.latest_runs(store, EXPERIMENT_ID))
    rounded = [
        frame[columns].assign(**{time: frame[time].dt.round("10ms") for time in times})
        for frame in frames
    ]
    for other in (rounded[0], rounded[2]):
        pd.testing.assert_frame_equal(other, rounded[1], check_dtype=False)
    return after.set_index("label")


def test_steps_are_current_without_a_tick(data_dir: DataDir, running: list[Recording]) -> None:
    with Store.open(data_dir) as store:
        store.ingest()
        running[0].block([0.1] * 3, [1.5, 1.4, 1.3])
        running[1].block([0.1], [float("nan")])
        running[2].block([0.1] * 2, [None, None])
        generation = store.generation
        for _ in range(2):  # What was read is not counted again.
            latest = queries.latest_runs(store, EXPERIMENT_ID)
            assert list(latest["steps_done"]) == [5, 3, 4]
        assert store.generation == generation
        after = runs_after_tick(store)
        assert after.loc["baseline", "last_loss"] == 1.3
        assert pd.isna(after.loc["control", "last_loss"])
        assert after.loc["inductor", "last_loss"] == 1.9
        running[0].block([0.1], [1.2])
        assert runs_after_tick(store).loc["baseline", "steps_done"] == 6


def test_phases_are_current_without_a_tick(data_dir: DataDir, running: list[Recording]) -> None:
    with Store.open(data_dir) as store:
        store.ingest()
        running[0].log.append("phase", phase="evaluating")
        running[0].log.flush()
        compiler = running[2].log
        for number in ("0/0", "1/0"):
            compiler.append("compile_started", step=2, trigger="dynamo", compile_id=number)
        compiler.append("compile_ended", step=2, trigger="dynamo", compile_id="0/0", seconds=1.0)
        compiler.flush()
        after = runs_after_tick(store)
        assert after.loc["baseline", "phase"] == "evaluating"
        assert pd.notna(after.loc["inductor", "compiling_since"])
        compiler.append("compile_ended", step=2, trigger="dynamo", compile_id="1/0", seconds=1.0)
        compiler.flush()
        assert pd.isna(runs_after_tick(store).loc["inductor", "compiling_since"])
        compiler.append("compile_started", step=2, trigger="LAZY_BACKWARD", compile_id="1/0")
        compiler.flush()
        assert pd.notna(runs_after_tick(store).loc["inductor", "compiling_since"])
        # A run that ended compiles no more, even if it was killed while it did.
        running[2].end(RunState.FAILED, "killed")
        store.ingest()
        assert pd.isna(queries.list_runs(store, EXPERIMENT_ID)["compiling_since"][2])


def test_a_resumption_takes_steps_back(data_dir: DataDir, running: list[Recording]) -> None:
    with Store.open(data_dir) as store:
        store.ingest()
        running[0].resume(1)
        assert runs_after_tick(store, but="last_loss").loc["baseline", "steps_done"] == 1


def test_a_journal_that_begins_again_is_read(data_dir: DataDir, running: list[Recording]) -> None:
    with Store.open(data_dir) as store:
        store.ingest()
        events = running[1].run.events_file
        content = events.read_bytes()
        events.unlink()
        events.write_bytes(content[: content.index(b"\n") + 1])
        assert queries.latest_runs(store, EXPERIMENT_ID)["steps_done"][1] == 2
        store.ingest()
        assert queries.latest_runs(store, EXPERIMENT_ID)["steps_done"][1] == 0


def test_ended_runs_are_not_read(data_dir: DataDir, running: list[Recording]) -> None:
    with Store.open(data_dir) as store:
        store.ingest()
        with running[0].run.events_file.open("ab") as journal:
            journal.write(b'[1]\n{"kind":\n{"kind":"step","step":"x","loss":3}\n{"kind":"ste')
        latest = queries.latest_runs(store, EXPERIMENT_ID)
        assert list(latest["steps_done"]) == [2, 2, 2]
        running[1].end()
        store.ingest()
        for run in running[:2]:  # One goes on.
            run.run.events_file.unlink()
            os.mkfifo(run.run.events_file)  # Whoever opened it would wait for ever.
        ended = queries.latest_runs(store, EXPERIMENT_ID)
        assert ended["state"][1] == RunState.FINISHED
        assert list(ended["steps_done"]) == [2, 2, 2]
