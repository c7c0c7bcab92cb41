"""People and supervisors change the data folder in any order, and die between any two writes.

Hypothesis draws what they do; whatever it is, nothing that was acknowledged is lost or doubled,
every run has one state, and what was interrupted can be done again.
`BREAKEVEN_FUZZ_EXAMPLES=40` draws for longer.
"""

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments import queue_order, trash
from breakeven.runner.experiments.labels import change_labels
from breakeven.runner.experiments.queue import can_resume, cancel, find_experiment, resume, submit
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Claim, Labels
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.supervision.exit_records import ExitRecords
from breakeven.runner.supervision.orphans import close_orphans
from breakeven.storage.index.store import Store
from tests.faults.mortal import Died, dying
from tests.helpers.journals import GONE, experiment_spec

pytestmark = pytest.mark.heavy

SPEC = experiment_spec(backends=("eager",), controls=0)
DEATHS = st.one_of(st.none(), st.integers(0, 12))
"""After how many writes somebody dies."""
PICKS = st.integers(0, 3)
ENDS = (RunState.FINISHED, RunState.FAILED, RunState.CANCELLED, RunState.TIMEOUT)


class DataFolder(RuleBasedStateMachine):
    """A data folder, and what its users saw."""

    def __init__(self) -> None:
        super().__init__()
        memory = Path("/dev/shm")
        parent = memory if os.access(memory, os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="breakeven-deaths-", dir=parent))
        self.data_dir = DataDir(self.folder)
        self.acknowledged: list[str] = []
        self.rows: Counter[tuple[str, int]] = Counter()
        """What runs wrote, by run and a number of its own."""
        self.ends: dict[tuple[str, int], RunState] = {}
        """How attempts ended, as it was recorded."""
        self.labels: dict[str, set[str]] = {}
        """Notes that an experiment may have: two after a death."""

    def teardown(self) -> None:
        self.come_to_rest()
        shutil.rmtree(self.folder)

    def picked(self, pick: int) -> str:
        return self.acknowledged[pick % len(self.acknowledged)]

    def do(self, after: int | None, act: Callable[[], object]) -> bool:
        """Does something; whether it was done to its end. Errors are messages."""
        try:
            with dying(after):
                act()
        except (Died, RunnerError):
            return False
        return True

    @initialize(end=st.sampled_from(ENDS))
    def some_are_there(self, end: RunState) -> None:
        """One that ended and has checkpoints, one whose supervisor vanished, one that waits."""
        self.submit(None)
        self.begin(None)
        self.end(None, 0, end, has_checkpoint=True)
        self.submit(None)
        self.begin(None)
        self.submit(None)

    # People

    @rule(after=DEATHS)
    def submit(self, after: int | None) -> None:
        submitted: list[str] = []
        if self.do(after, lambda: submitted.append(submit(self.data_dir, SPEC))):
            self.acknowledged += submitted
            self.labels[submitted[0]] = {""}

    @rule(after=DEATHS, pick=PICKS)
    def duplicate(self, after: int | None, pick: int) -> None:
        submitted: list[str] = []

        def act() -> None:
            experiment = find_experiment(self.data_dir, self.picked(pick))
            submitted.append(queue_order.duplicate(self.data_dir, experiment))

        if self.do(after, act):
            self.acknowledged += submitted
            self.labels[submitted[0]] = {""}

    @rule(after=DEATHS, pick=PICKS, by=st.sampled_from([None, -1, 1, 3]))
    def move(self, after: int | None, pick: int, by: int | None) -> None:
        def act() -> None:
            queue_order.move(self.data_dir, self.picked(pick), by=by)

        if self.do(after, act) and by is None:
            first = queue_order.waiting(self.data_dir)[0]
            assert first.experiment_id == self.picked(pick)

    @rule(after=DEATHS, pick=PICKS, held=st.booleans())
    def hold(self, after: int | None, pick: int, held: bool) -> None:
        change = queue_order.hold if held else queue_order.release
        if self.do(after, lambda: change(self.data_dir, self.picked(pick))):
            assert (self.picked(pick) in queue_order.read_order(self.data_dir).held) == held

    @rule(after=DEATHS, paused=st.booleans())
    def pause(self, after: int | None, paused: bool) -> None:
        if self.do(after, lambda: queue_order.pause(self.data_dir, paused=paused)):
            assert queue_order.read_order(self.data_dir).paused == paused
            assert not (paused and queue_order.startable(self.data_dir))

    @rule(after=DEATHS, pick=PICKS)
    def stop(self, after: int | None, pick: int) -> None:
        def act() -> None:
            cancel(find_experiment(self.data_dir, self.picked(pick)))

        if self.do(after, act):
            runs = find_experiment(self.data_dir, self.picked(pick)).runs
            assert all(run.cancel_requested or run.is_recorded for run in runs)

    @rule(after=DEATHS, pick=PICKS)
    def resume(self, after: int | None, pick: int) -> None:
        before = [run for run in self.runs(self.picked(pick)) if can_resume(run)]
        if self.do(after, lambda: resume(find_experiment(self.data_dir, self.picked(pick)))):
            assert before and all(run.state is RunState.QUEUED for run in before)

    @rule(after=DEATHS, pick=PICKS)
    def delete(self, after: int | None, pick: int) -> None:
        if self.do(after, lambda: trash.delete(self.data_dir, self.picked(pick))):
            assert not self.runs(self.picked(pick))

    @rule(after=DEATHS, pick=PICKS)
    def undo(self, after: int | None, pick: int) -> None:
        if self.do(after, lambda: trash.restore(self.data_dir, self.picked(pick))):
            assert self.runs(self.picked(pick))

    @rule(after=DEATHS, pick=PICKS, note=st.sampled_from(["a", "b"]), archived=st.booleans())
    def archive(self, after: int | None, pick: int, note: str, archived: bool) -> None:
        change = Labels(notes=note, archived=archived)
        there = [run.run_id for run in self.runs(self.picked(pick))]

        def act() -> None:
            change_labels(self.data_dir, self.picked(pick), lambda _: change)

        if self.do(after, act):
            self.labels[self.picked(pick)] = {note}
        elif there:
            self.labels[self.picked(pick)].add(note)

    # Supervisors and runs

    @rule(after=DEATHS)
    def begin(self, after: int | None) -> None:
        """The first of the queue is claimed; its processes never live, as after a power cut."""

        def act() -> None:
            for experiment in queue_order.startable(self.data_dir)[:1]:
                for run in experiment.runs:
                    if run.state is RunState.QUEUED:
                        run.write_claim(
                            Claim(host=os.uname().nodename, process=GONE, supervisor=GONE, time=1.0)
                        )
                        self.write(run)

        self.do(after, act)

    def write(self, run: RunDir) -> None:
        number = len(self.rows)
        with run.events_file.open("a") as journal:
            journal.write(
                json.dumps({"v": 1, "seq": number, "kind": "step", "time": 1.0, "mark": number})
                + "\n"
            )
        self.rows[run.run_id, number] += 1

    @rule(after=DEATHS, pick=PICKS, end=st.sampled_from(ENDS), has_checkpoint=st.booleans())
    def end(self, after: int | None, pick: int, end: RunState, has_checkpoint: bool) -> None:
        for run in self.runs(self.picked(pick)):
            if run.claim_file.exists() and not run.is_recorded:
                if has_checkpoint:
                    run.checkpoints.mkdir(parents=True, exist_ok=True)
                    (run.checkpoints / "1.pt").touch()

                def act(run: RunDir = run) -> None:
                    ExitRecords().write(run, end, "over", 0)

                if self.do(after, act):
                    self.ends[run.run_id, run.attempt] = end

    @rule(after=DEATHS)
    def supervise(self, after: int | None) -> None:
        """The next supervisor closes or reopens what an earlier one left."""
        if self.do(after, lambda: close_orphans(self.data_dir, ExitRecords())):
            states = [run.state for run in self.data_dir.run_dirs()]
            assert all(
                run.is_recorded for run in self.data_dir.run_dirs() if run.state is RunState.LOST
            ), states

    @rule()
    def rebuild(self) -> None:
        """The index is made anew from the folders: as many rows as the journals that count have."""
        with Store.in_memory(self.data_dir) as store:
            ((runs,),) = store.rows("SELECT count(*) FROM runs")
        assert runs == len(
            {run.run_id for run in self.data_dir.run_dirs() if run.spec_file.exists()}
        )

    # What holds at any time

    def runs(self, experiment_id: str) -> list[RunDir]:
        return [run for run in self.data_dir.run_dirs() if run.run_id.startswith(experiment_id)]

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        rows: Counter[tuple[str, int]] = Counter()
        for journal in self.folder.rglob("events.jsonl"):
            folder = next(picked for picked in journal.parents if (picked / "spec.json").exists())
            for line in journal.read_text().splitlines():
                rows[folder.name, json.loads(line)["mark"]] += 1
        assert rows == self.rows

    @invariant()
    def every_experiment_is_there_once_in_the_list_or_in_the_trash(self) -> None:
        for experiment_id in self.acknowledged:
            there = [
                file.parent.name for file in self.folder.glob(f"**/{experiment_id}.*/spec.json")
            ]
            assert sorted(there) == sorted(
                f"{experiment_id}.{picked.label}" for picked in SPEC.arms
            )

    @invariant()
    def every_run_has_one_state_and_an_end_that_was_told_stays(self) -> None:
        for run in self.data_dir.run_dirs():
            assert run.state in RunState
            end = self.ends.get((run.run_id, run.attempt))
            if end is not None and run.is_recorded:
                assert run.state is end

    @invariant()
    def labels_are_the_old_ones_or_the_new(self) -> None:
        for experiment_id, possible in self.labels.items():
            for file in self.folder.glob(f"**/{experiment_id}.baseline/labels.json"):
                assert json.loads(file.read_text())["notes"] in possible

    def come_to_rest(self) -> None:
        """Whatever was interrupted, it can be done again: all is stopped and deleted."""
        close_orphans(self.data_dir, ExitRecords())
        for experiment_id in self.acknowledged:
            with suppress(RunnerError):  # it is in the trash
                trash.restore(self.data_dir, experiment_id)
            experiment = find_experiment(self.data_dir, experiment_id)
            cancel(experiment)
            assert experiment.is_over
            trash.delete(self.data_dir, experiment_id)
        self.every_experiment_is_there_once_in_the_list_or_in_the_trash()
        self.nothing_is_lost_or_doubled()


TestDataFolder = DataFolder.TestCase
TestDataFolder.settings = settings(
    max_examples=int(os.environ.get("BREAKEVEN_FUZZ_EXAMPLES", "3")),
    stateful_step_count=30,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # shrinking would take minutes
    suppress_health_check=list(HealthCheck),
)
