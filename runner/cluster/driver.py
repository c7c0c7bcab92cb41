"""The supervisor of a cluster (driver): runs queued experiments there and copies their files home.

"Home" is the data folder of the driver. It looks as if the runs were local: folders grow, states
are derived from them, a marker in the folder stops a run. The driver is responsible for every run
that it placed, so a claim names the driver and also the machine. If a machine is lost, its
experiment starts elsewhere: from the latest checkpoints at home if every run has one, else anew;
`attempts/` has the earlier files. If a driver dies, the next driver continues its work.
"""

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from breakeven.runner.cluster.host import (
    Delivery,
    HomeFile,
    NodeFacts,
    initial_files,
    node_facts,
    sizes_at_home,
    store_part,
)
from breakeven.runner.disk_space import lacks_room
from breakeven.runner.errors import InvalidRunFolder, RunnerError
from breakeven.runner.experiments.queue import Experiment, experiments
from breakeven.runner.experiments.queue_order import startable
from breakeven.runner.files import FileLock
from breakeven.runner.machine.occupancy import resource_request
from breakeven.runner.machine.placement import (
    Allocation,
    Place,
    ResourceRequest,
    has_room,
    plan_nodes,
)
from breakeven.runner.notifications import Notifier
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.heartbeat import Heartbeat
from breakeven.runner.protocol.records import Claim, Exit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.supervision.exit_records import ExitRecords, say
from breakeven.runner.supervision.orphans import MAX_ATTEMPTS
from breakeven.runner.texts import printable

POLL_SECONDS = 0.3
QUEUE_SECONDS = 2.0
"""Interval between two reads of the queue."""
OVER_SEVERAL = (
    "a run on several machines does not work with --ray or --slurm; queue it without --ray "
    "or --slurm, and run `breakeven queue start --join` on the others (docs/devices.md)"
)


class JobLost(Exception):
    """The process of an experiment, or its machine, is gone; the message is a sentence."""


class Job(Protocol):
    """The execution of one experiment on a machine."""

    @property
    def node(self) -> str | None:
        """The machine of the job; None while unknown."""

    def delivery(self, known: Mapping[str, Mapping[str, HomeFile]]) -> Delivery | None:
        """The new data since the last delivery; None without an answer yet. Raises `JobLost`."""

    def cancel(self, run_ids: list[str]) -> None:
        """Requests a stop of runs."""

    def end(self) -> None:
        """Ends the job at any moment and frees its resources."""


class Engine(Protocol):
    """Starts jobs on machines."""

    def nodes(self) -> Mapping[str, NodeFacts]:
        """The current machines of the cluster, by name."""

    def start(self, key: str, node: str, place: Place, files: dict[str, dict[str, bytes]]) -> Job:
        """Starts an experiment on a machine; `key` identifies the job: experiment id and attempt.

        Raises `JobLost` if the machine is gone, and `RunnerError` if this experiment cannot be
        started.
        """

    def left_behind(self) -> Mapping[str, Job]:
        """Jobs that an earlier driver started, by key."""


@dataclass(kw_only=True)
class _Placed:
    """An experiment with its job."""

    experiment: Experiment
    job: Job
    allocation: Allocation
    known: dict[str, dict[str, HomeFile]]
    host: str | None = None
    asked_to_stop: set[str] = field(default_factory=set)
    """Runs that have received a request to stop."""


def drive(
    data_dir: DataDir, engine: Engine, *, same_versions: bool = False, linger: float | None = None
) -> bool:
    """Runs the queue on a cluster until it stays empty for `linger` seconds; None: for ever.

    `same_versions`: whether to exclude machines whose versions differ from this machine's. Returns
    False at once if another supervisor holds the data folder.
    """
    lock = FileLock(data_dir.supervisor_lock)
    if not lock.acquire(1.0):
        return False
    with lock:
        _Driver(data_dir, engine, same_versions).work(linger)
    return True


class _Driver:
    def __init__(self, data_dir: DataDir, engine: Engine, same_versions: bool) -> None:
        self._data_dir = data_dir
        self._engine = engine
        self._notifier = Notifier()
        self._exits = ExitRecords()
        self._placed: dict[str, _Placed] = {}
        self._me = ProcessIdentity.from_pid(os.getpid())
        self._required_versions = node_facts().versions if same_versions else None
        self._logged: set[str] = set()
        """Messages that were already logged."""
        self._heartbeat = Heartbeat(data_dir)
        self._worked_at: set[str] = set()
        self._trend_threads: list[threading.Thread] = []

    def work(self, linger: float | None) -> None:
        self._continue_earlier_jobs()
        idle_since, look_next = time.monotonic(), 0.0
        while True:
            self._heartbeat.beat()
            self._exits.write_owed()
            for placed in list(self._placed.values()):
                self._update(placed)
            if time.monotonic() >= look_next:
                self._start_waiting(self._engine.nodes())
                look_next = time.monotonic() + QUEUE_SECONDS
            if self._placed or startable(self._data_dir) or self._exits.is_owing:
                idle_since = time.monotonic()
            elif self._worked_at:
                self._check_trends()
            elif linger is not None and time.monotonic() - idle_since >= linger:
                break
            time.sleep(POLL_SECONDS)
        for thread in self._trend_threads:
            thread.join()
        self._notifier.finish()

    def _check_trends(self) -> None:
        """Reads trends in a thread: this takes a while, and work may come meanwhile."""
        ended, self._worked_at = self._worked_at, set()
        thread = threading.Thread(target=self._notifier.trends_broke, args=(self._data_dir, ended))
        self._trend_threads = [*filter(threading.Thread.is_alive, self._trend_threads), thread]
        thread.start()

    def _continue_earlier_jobs(self) -> None:
        """Continues the jobs of an earlier driver; restarts experiments whose job is gone."""
        left = dict(self._engine.left_behind())
        for experiment in experiments(self._data_dir):
            job = left.pop(_key(experiment), None)
            unfinished = [
                run for run in experiment.runs if not run.is_recorded and _was_placed_here(run)
            ]
            if job is not None and not all(run.is_recorded for run in experiment.runs):
                say(f"{experiment.experiment_id}: continued")
                self._place(
                    experiment, job, Allocation(node=job.node or "", place=_unknown_place())
                )
                for run in unfinished:
                    if (claim := run.read_claim()) is not None:
                        run.write_claim(replace(claim, process=self._me, supervisor=self._me))
                continue
            if job is not None:
                job.end()
            if unfinished:
                self._begin_elsewhere(experiment, "its machine was gone when the driver restarted")
        for job in left.values():  # of experiments that have ended, or have a later attempt
            job.end()

    def _place(self, experiment: Experiment, job: Job, allocation: Allocation) -> None:
        known = {run.run_id: sizes_at_home(run) for run in experiment.runs}
        self._placed[experiment.experiment_id] = _Placed(
            experiment=experiment, job=job, allocation=allocation, known=known
        )

    def _start_waiting(self, nodes: Mapping[str, NodeFacts]) -> None:
        waiting = {
            experiment.experiment_id: experiment
            for experiment in startable(self._data_dir)
            if experiment.experiment_id not in self._placed
        }
        if not waiting:
            return
        machines = {name: node.machine for name, node in nodes.items() if self._fits(node)}
        held = {key: placed.allocation for key, placed in self._placed.items()}
        requests = [_anywhere(resource_request(experiment)) for experiment in waiting.values()]
        for request in requests:
            if machines and not any(has_room(request, machine) for machine in machines.values()):
                self._say_once(
                    f"{request.key}: waits for a machine with {', '.join(request.devices)}"
                )
        for key, allocation in plan_nodes(requests, held, machines).items():
            experiment = waiting[key]
            try:
                if experiment.spec.nodes > 1:
                    raise RunnerError(OVER_SEVERAL)
                files = initial_files(experiment)
                job = self._engine.start(_key(experiment), allocation.node, allocation.place, files)
            except JobLost as error:  # The next look starts it again.
                say(f"{key}: {error}")
                continue
            except (RunnerError, OSError) as error:
                for run in experiment.runs:
                    if run.state is RunState.QUEUED:
                        self._exits.write(run, RunState.FAILED, f"not started: {error}", None)
                self._report_end(experiment)
                continue
            say(f"{key}: placed on {allocation.node[:12]}, {allocation.place.devices}")
            self._place(experiment, job, allocation)

    def _fits(self, node: NodeFacts) -> bool:
        if self._required_versions is None or node.versions == self._required_versions:
            return True
        other = {
            name: version
            for name, version in node.versions.items()
            if self._required_versions.get(name) != version
        }
        self._say_once(f"machine {node.host} is skipped because its versions differ: {other}")
        return False

    def _say_once(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            say(text)

    def _update(self, placed: _Placed) -> None:
        experiment, key = placed.experiment, placed.experiment.experiment_id
        stopped = [
            run.run_id
            for run in experiment.runs
            if run.cancel_requested and run.run_id not in placed.asked_to_stop
        ]
        try:
            if stopped:
                placed.job.cancel(stopped)
                placed.asked_to_stop.update(stopped)
            delivery = placed.job.delivery(placed.known)
        except OSError as error:  # from a file system that home and machines share
            self._say_once(f"{key}: its state cannot be read: {error}")
            return
        except JobLost as error:
            if lacks_room(self._data_dir.runs):
                return  # Moving files to `attempts/` needs disk space, too.
            say(f"{key}: {error}")
            placed.job.end()
            del self._placed[key]
            self._begin_elsewhere(experiment, f"machine {placed.host or 'unknown'} was lost")
            return
        if delivery is None:
            return
        with suppress(OSError):  # The disk is full: the next request repeats the missing parts.
            try:
                self._store_delivery(placed, delivery)
            except RunnerError as error:
                self._refuse(placed, error)
                return
            if delivery.is_over:
                placed.job.end()
                del self._placed[key]
                self._record_missing_ends(experiment)
                self._report_end(experiment)

    def _refuse(self, placed: _Placed, error: RunnerError) -> None:
        """Ends an experiment whose machine sent invalid data; others continue."""
        placed.job.end()
        del self._placed[placed.experiment.experiment_id]
        for run in placed.experiment.runs:
            if not run.is_recorded:
                why = f"data from machine {placed.host} were refused: {error}"
                self._exits.write(run, RunState.FAILED, why, None)
        self._report_end(placed.experiment)

    def _report_end(self, experiment: Experiment) -> None:
        """Notifies of each run and the experiment: no process here sees the end of a remote run."""
        self._worked_at.add(experiment.experiment_id)
        for run in experiment.runs:
            status = run.status
            self._notifier.run_ended(run.run_id, status.state, status.reason or "")
        self._notifier.experiment_ended(experiment)

    def _store_delivery(self, placed: _Placed, delivery: Delivery) -> None:
        runs = {run.run_id: run for run in placed.experiment.runs}
        for run_id in {*delivery.claims, *(part.run_id for part in delivery.parts)} - runs.keys():
            raise InvalidRunFolder(f"{printable(run_id)} is not a run of the experiment")
        key = placed.experiment.experiment_id
        if placed.host is None:
            placed.host = delivery.host
            node = placed.job.node or placed.allocation.node
            placed.allocation = Allocation(node=node, place=delivery.place)
        for run_id, claim in delivery.claims.items():
            self._claim(runs[run_id], claim, delivery.host)
        for part in delivery.parts:
            store_part(runs[part.run_id], part, placed.known[part.run_id])
        for run_id, text in delivery.specs.items():
            spec = RunSpec.from_json(text)
            if spec.run_id != run_id or spec.experiment.fallback_of != key:
                raise InvalidRunFolder(
                    f"{printable(run_id)} is not a run that repeats the experiment"
                )
            run = self._data_dir.run_dir(run_id)
            if not run.path.exists():
                run.write_spec(spec)

    def _claim(self, run: RunDir, there: Claim, host: str) -> None:
        """Writes the claim once: with the machine, its start time there, and this driver."""
        if not run.claim_file.exists():
            claim = Claim.by(self._me, there.devices, there.cpus)
            run.write_claim(replace(claim, time=there.time, node=host))

    def _record_missing_ends(self, experiment: Experiment) -> None:
        """Records runs as failed that ended there without a record, for instance on a full disk."""
        for run in experiment.runs:
            if not run.is_recorded:
                why = "it ended there without an exit record"
                self._exits.write(run, RunState.FAILED, why, None)

    def _begin_elsewhere(self, experiment: Experiment, why: str) -> None:
        """Marks lost runs and queues them again; all runs together, because compared runs must be
        measured on one machine."""
        lost = [run for run in experiment.runs if not run.is_recorded]
        for run in [run for run in lost if run.cancel_requested]:
            self._exits.write(run, RunState.CANCELLED, f"stopped on request; {why}", None)
            lost.remove(run)
        if any(run.attempt >= MAX_ATTEMPTS for run in lost):
            for run in lost:
                self._exits.write(run, RunState.LOST, why, None)
        elif lost:
            goes_on = all(run.has_checkpoint for run in lost)
            how = "resumes from its latest checkpoints" if goes_on else "starts again"
            say(f"{experiment.experiment_id}: {why}; it {how}")
            for run in lost:
                if run.claim_file.exists():
                    run.write_exit(Exit.now(RunState.LOST, f"{why}; it {how} elsewhere", None))
            # All runs that have begun, including finished runs, but not cancelled ones.
            begun = [
                run
                for run in experiment.runs
                if run.state is not RunState.CANCELLED
                and (run.claim_file.exists() or run.is_recorded)
            ]
            for run in lost if goes_on else begun:
                run.reopen() if goes_on else run.begin_anew()


def _key(experiment: Experiment) -> str:
    """The key of a job. It has the attempt, so that jobs of earlier attempts are not continued."""
    return f"{experiment.experiment_id}.{max(run.attempt for run in experiment.runs)}"


def _was_placed_here(run: RunDir) -> bool:
    """Whether a driver on this host placed the run."""
    with suppress(RunnerError):
        claim = run.read_claim()
        return claim is not None and claim.node is not None and claim.is_from_this_host
    return False


def _anywhere(request: ResourceRequest) -> ResourceRequest:
    """The request without GPU numbers: on a cluster any GPU will do."""
    names = ("cuda" if name.startswith("cuda") else name for name in request.devices)
    return replace(request, devices=tuple(names))


def _unknown_place() -> Place:
    """Stands for a whole machine until the job reports its place."""
    return Place(devices=(), cpus=frozenset(), exclusive=True)
