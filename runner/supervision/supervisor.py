"""The supervisor: one process per data folder, runs the queue, outlives browser and dashboard.

Experiments that share no device and no CPU run at the same time, each in its own thread.
"""

import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from breakeven.runner.disk_space import lacks_room
from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.queue import Experiment, find_experiment
from breakeven.runner.experiments.queue_order import startable
from breakeven.runner.files import FileLock
from breakeven.runner.logs import log, open_log
from breakeven.runner.machine.capabilities import VisibleHardware
from breakeven.runner.machine.cpus import cpu_allowance
from breakeven.runner.machine.occupancy import learn_devices, resource_request, this_machine
from breakeven.runner.machine.placement import Machine, Place, is_full, keep_to, plan
from breakeven.runner.notifications import Notifier
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.heartbeat import Heartbeat
from breakeven.runner.protocol.states import RunState
from breakeven.runner.supervision.exit_records import ExitRecords, say
from breakeven.runner.supervision.orphans import close_orphans
from breakeven.runner.supervision.race import CPUS_PER_COMPILER
from breakeven.runner.supervision.scheduler import Scheduler
from breakeven.runner.supervision.search import Search


def run_experiment(
    data_dir: DataDir,
    experiment: Experiment,
    command: Sequence[str],
    exits: ExitRecords,
    place: Place,
    machine: Machine,
    sign: Callable[[], None] = lambda: None,
    takes_controls: bool = True,
) -> None:
    """Runs an experiment to its end. The calling thread and its processes use only the CPUs of the
    place from then on. `sign` is called often while the work proceeds.
    `takes_controls`: whether controls may be added to the experiment."""
    search = _make_search(experiment) if experiment.spec.kind.has_candidates else None
    if search is not None:
        with suppress(OSError):  # Only a command that waits for the answer reads the file.
            experiment.runs[0].unconfirmed_file.touch()
    scheduler = Scheduler(
        data_dir,
        experiment,
        command,
        exits,
        place,
        sign,
        takes_controls=takes_controls,
        search=search,
    )
    # The scheduler's processes inherit the CPUs of this thread.
    refused = keep_to(place, machine)
    if refused is None:
        scheduler.run()
    else:
        scheduler.give_up(refused)
    if search is not None:
        _confirm(search, data_dir, experiment)


def _make_search(experiment: Experiment) -> Search:
    runs = dict(zip(experiment.runs, experiment.arms, strict=True))
    cpus = cpu_allowance().usable
    return Search(experiment.spec, runs, max(min(cpus, 2), cpus // CPUS_PER_COMPILER, 1))


def _confirm(search: Search, data_dir: DataDir, experiment: Experiment) -> None:
    try:
        if not any(run.cancel_requested for run in experiment.runs):
            search.confirm(data_dir, experiment)
    except RunnerError as error:
        say(f"{experiment.experiment_id}: its answer cannot be confirmed: {error}")
    with suppress(OSError):
        experiment.runs[0].unconfirmed_file.unlink()


WORKER_COMMAND = (sys.executable, "-m", "breakeven.runner.worker")
LINGER_SECONDS = 10.0
"""How long an idle supervisor waits for more work before it ends."""
POLL_SECONDS = 0.5
LOOK_AT_LEAST_SECONDS = 30.0
"""Longest time between two reads of the queue while an experiment runs and no file changed."""
LOCK_PATIENCE_SECONDS = 1.0
"""Other processes hold the lock for a moment to see whether a supervisor works."""


def supervise(
    data_dir: DataDir, command: Sequence[str] = WORKER_COMMAND, *, exclusive: bool = False
) -> bool:
    """Runs the queue until it has been empty for a while; with `exclusive`, one experiment at a
    time. Returns False at once if another supervisor holds the data folder."""
    lock = FileLock(data_dir.supervisor_lock)
    if not lock.acquire(LOCK_PATIENCE_SECONDS):
        return False
    open_log(data_dir.logs, "supervisor")
    log.info("supervisor begins")
    work = _QueueWorker(data_dir, command, exclusive)
    while True:
        with lock:
            work.heartbeat.beat()
            close_orphans(data_dir, work.exits)
            work.run_queue()
        # Users who submitted while the lock was held relied on this supervisor.
        if not work.waiting() or not lock.acquire(LOCK_PATIENCE_SECONDS):
            # No measurement runs now, and the lock is free for the next supervisor.
            work.notifier.trends_broke(data_dir, work.worked_at)
            work.notifier.finish()
            log.info("supervisor ends: nothing waits")
            return True


@dataclass(frozen=True, kw_only=True)
class _AtWork:
    """A running experiment and its place."""

    experiment: Experiment
    place: Place
    tried: frozenset[tuple[str, int]]
    """Run and attempt of each run that waited when the experiment began. A run that a user resumes
    meanwhile is a new attempt and comes later."""


class _QueueWorker:
    """Runs the queue, and remembers runs whose end cannot be recorded."""

    def __init__(self, data_dir: DataDir, command: Sequence[str], exclusive: bool) -> None:
        self.notifier = Notifier()
        self.exits = ExitRecords(self.notifier)
        self.heartbeat = Heartbeat(data_dir)
        self.worked_at: set[str] = set()
        """Ids of the experiments that have run."""
        self._data_dir = data_dir
        self._command = command
        self._exclusive = exclusive
        self._at_work: dict[str, _AtWork] = {}
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        """Ids of experiments whose thread has ended."""
        self._given_up: set[tuple[str, int]] = set()
        """Run and attempt of runs whose end could not be recorded: they still look queued."""
        self._probed_in_vain: VisibleHardware | None = None
        """The visible state of this machine when torch last failed to list devices."""
        self._machine = Machine(cpus=frozenset())
        """The machine as it was when the last experiment began."""
        self._seen: tuple[object, ...] = ()
        self._look_next = 0.0

    def run_queue(self) -> None:
        """Runs experiments until the queue stays empty for a while and all ends are recorded."""
        idle_since = time.monotonic()
        self._seen = ()
        while True:
            self.heartbeat.beat()
            self.exits.write_owed()
            self._start_waiting()
            if self._at_work:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > LINGER_SECONDS and not self.exits.is_owing:
                return
            self._wait_for_an_end()

    def waiting(self) -> list[Experiment]:
        """The queued experiments that could start, in order."""
        return [
            experiment
            for experiment in startable(self._data_dir)
            if experiment.experiment_id not in self._at_work
            and not _queued_attempts(experiment) <= self._given_up
        ]

    def _start_waiting(self) -> None:
        held = {key: work.place for key, work in self._at_work.items()}
        if held and (self._exclusive or is_full(held, self._machine)):
            return
        if (held and not self._may_have_changed()) or lacks_room(self._data_dir.runs):
            return
        waiting = {experiment.experiment_id: experiment for experiment in self.waiting()}
        if not waiting:
            return
        requests = [resource_request(experiment) for experiment in waiting.values()]
        self._machine = this_machine(self._data_dir)
        begins = plan(requests, held, self._machine).begins
        # Listing devices with torch takes seconds of CPU and opens them: never during a
        # measurement, and not before an experiment whose runs list them while they load.
        if not held and not any(waiting[key].runs[0].is_unchecked for key in begins):
            self._probed_in_vain = learn_devices(self._data_dir, requests, self._probed_in_vain)
            self._machine = this_machine(self._data_dir)
            begins = plan(requests, held, self._machine).begins
        for key in list(begins)[: 1 if self._exclusive else None]:
            self._begin(waiting[key], begins[key])

    def _may_have_changed(self) -> bool:
        """Whether to read the queue: with thousands of folders this takes time, and may disturb a
        measurement."""
        marks: list[object] = []
        for path in (self._data_dir.runs, self._data_dir.queue_file):
            with suppress(OSError):
                marks.append(path.stat().st_mtime_ns)
        seen = (*marks, *self._at_work)
        if seen == self._seen and time.monotonic() < self._look_next:
            return False
        self._seen, self._look_next = seen, time.monotonic() + LOOK_AT_LEAST_SECONDS
        return True

    def _begin(self, experiment: Experiment, place: Place) -> None:
        key = experiment.experiment_id
        tried = frozenset(_queued_attempts(experiment))
        self._at_work[key] = _AtWork(experiment=experiment, place=place, tried=tried)
        self.heartbeat.sign(key)
        threading.Thread(
            target=self._run_experiment, args=(experiment, place), name=key, daemon=True
        ).start()

    def _run_experiment(self, experiment: Experiment, place: Place) -> None:
        try:
            run_experiment(
                self._data_dir,
                experiment,
                self._command,
                self.exits,
                place,
                self._machine,
                lambda: self.heartbeat.sign(experiment.experiment_id),
            )
        except Exception:  # The other experiments continue.
            traceback.print_exc()
            log.exception("goes on without %s", experiment.experiment_id)
        finally:
            self.heartbeat.forget(experiment.experiment_id)
            self._ended.put(experiment.experiment_id)

    def _wait_for_an_end(self) -> None:
        with suppress(queue.Empty):
            ended = self._at_work.pop(self._ended.get(timeout=POLL_SECONDS))
            self._report_end(ended.experiment.experiment_id)
            self._given_up.update(ended.tried & _queued_attempts(ended.experiment))

    def _report_end(self, experiment_id: str) -> None:
        self.worked_at.add(experiment_id)
        if self.notifier.has_addresses:
            with suppress(RunnerError):  # The experiment was deleted, or its folders are damaged.
                # It may have more controls than when it began.
                experiment = find_experiment(self._data_dir, experiment_id)
                is_idle = not (self._at_work or self.waiting())
                self.notifier.experiment_ended(experiment, with_answer=is_idle)


def _queued_attempts(experiment: Experiment) -> set[tuple[str, int]]:
    runs = (run for run in experiment.runs if run.state is RunState.QUEUED)
    return {(run.run_id, run.attempt) for run in runs}
