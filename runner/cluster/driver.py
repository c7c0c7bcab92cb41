"""The supervisor of a cluster: places what waits on its machines, and brings all of it home.

At home everything is as if it ran here: folders grow, states are derived from them, stopping is a
marker in the folder. The driver answers for every run that it placed, so a claim names the driver
and also the machine. If a machine is lost, its experiment begins elsewhere: from the latest
checkpoints at home if every run has one, else anew; `attempts/` holds the earlier files. The next
driver takes up the work of a driver that died.
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
    at_home,
    facts,
    files_of,
    store,
)
from breakeven.runner.errors import InvalidRunFolder, RunnerError
from breakeven.runner.files import FileLock, lacks_room
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.process import ProcessIdentity
from breakeven.runner.folders.queue import Experiment, experiments
from breakeven.runner.folders.queue_order import startable
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import Claim, Exit, RunState
from breakeven.runner.machine.occupancy import resource_request
from breakeven.runner.machine.placement import (
    Allocation,
    Machine,
    Place,
    ResourceRequest,
    has_room,
    plan_nodes,
)
from breakeven.runner.notifications import Notifier
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.supervision.exits import ExitRecords, say
from breakeven.runner.supervision.heartbeat import Heartbeat
from breakeven.runner.supervision.orphans import MAX_ATTEMPTS
from breakeven.runner.texts import printable

POLL_SECONDS = 0.3
QUEUE_SECONDS = 2.0
"""How often the queue is gone through."""
OVER_SEVERAL = (
    "no machine of a cluster is called to a run over several machines yet; queue it without --ray "
    "or --slurm, and have `breakeven supervise --join` run on the others (docs/several-devices.md)"
)


class JobLost(Exception):
    """The process of an experiment is gone, with its machine or alone; why, in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine of the cluster."""

    name: str
    facts: NodeFacts

    @property
    def machine(self) -> Machine:
        return Machine(cpus=self.facts.cpus, shares=self.facts.shares, is_known=True)


class Job(Protocol):
    """The work on one experiment, somewhere."""

    @property
    def node(self) -> str | None:
        """Where it was placed; None while that is not known."""

    def delivery(self, known: Mapping[str, Mapping[str, HomeFile]]) -> Delivery | None:
        """What is new since the last one, if there is an answer yet; raises `JobLost`."""

    def cancel(self, run_ids: list[str]) -> None:
        """Asks runs to stop."""

    def end(self) -> None:
        """Ends it, whatever it does, and gives back what it holds."""


class Engine(Protocol):
    """What places work on machines."""

    def nodes(self) -> list[Node]:
        """The machines that are there now."""

    def start(self, key: str, node: str, place: Place, files: dict[str, dict[str, bytes]]) -> Job:
        """Has a machine begin an experiment; `key` is its id and attempt, by which it is found.

        Raises `JobLost` if the machine is not there any more, and `RunnerError` if this experiment
        cannot be started.
        """

    def left_behind(self) -> Mapping[str, Job]:
        """Work that an earlier driver placed, by its key."""


@dataclass(kw_only=True)
class _Placed:
    """An experiment that is worked at somewhere."""

    experiment: Experiment
    job: Job
    allocation: Allocation
    known: dict[str, dict[str, HomeFile]]
    host: str | None = None
    notified: set[str] = field(default_factory=set)
    """Runs that have received a request to stop."""


def drive(
    data_dir: DataDir, engine: Engine, *, same_versions: bool = False, linger: float | None = None
) -> bool:
    """Works off the queue on a cluster, until nothing was there for `linger` seconds or for good.

    `same_versions`: whether machines with other versions than this one are left out. Returns False,
    at once, if another supervisor holds the data folder.
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
        self._me = ProcessIdentity.of(os.getpid())
        self._usual = facts().versions if same_versions else None
        self._logged: set[str] = set()
        """Messages that were already written."""
        self._heartbeat = Heartbeat(data_dir)
        self._worked_at: set[str] = set()
        self._looking: list[threading.Thread] = []

    def work(self, linger: float | None) -> None:
        self._take_up()
        idle_since, look_next = time.monotonic(), 0.0
        while True:
            self._heartbeat.beat()
            self._exits.write_owed()
            for placed in list(self._placed.values()):
                self._look_after(placed)
            if time.monotonic() >= look_next:
                self._begin_what_can(self._engine.nodes())
                look_next = time.monotonic() + QUEUE_SECONDS
            if self._placed or startable(self._data_dir) or self._exits.is_owing:
                idle_since = time.monotonic()
            elif self._worked_at:
                self._look_at_trends()
            elif linger is not None and time.monotonic() - idle_since >= linger:
                break
            time.sleep(POLL_SECONDS)
        for thread in self._looking:
            thread.join()
        self._notifier.finish()

    def _look_at_trends(self) -> None:
        """In a thread: that takes a while, and work may come meanwhile."""
        ended, self._worked_at = self._worked_at, set()
        thread = threading.Thread(target=self._notifier.trends_broke, args=(self._data_dir, ended))
        self._looking = [*(one for one in self._looking if one.is_alive()), thread]
        thread.start()

    def _take_up(self) -> None:
        """Goes on with what an earlier driver placed; begins elsewhere what is nowhere any more."""
        left = dict(self._engine.left_behind())
        for experiment in experiments(self._data_dir):
            job = left.pop(_key(experiment), None)
            mine = [run for run in experiment.runs if not run.is_recorded and _is_mine(run)]
            if job is not None and not all(run.is_recorded for run in experiment.runs):
                say(f"{experiment.experiment_id}: taken up again")
                self._place(experiment, job, Allocation(node=job.node or "", place=_everything()))
                for run in mine:
                    self._answer_for(run)
                continue
            if job is not None:
                job.end()
            if mine:
                self._begin_elsewhere(experiment, "its machine was gone when the driver came back")
        for job in left.values():  # of experiments that are over here, or went on otherwise
            job.end()

    def _answer_for(self, run: RunDir) -> None:
        claim = run.read_claim()
        if claim is not None:
            run.write_claim(replace(claim, process=self._me, supervisor=self._me))

    def _place(self, experiment: Experiment, job: Job, allocation: Allocation) -> None:
        known = {run.run_id: at_home(run) for run in experiment.runs}
        self._placed[experiment.experiment_id] = _Placed(
            experiment=experiment, job=job, allocation=allocation, known=known
        )

    def _begin_what_can(self, nodes: list[Node]) -> None:
        found = {one.experiment_id: one for one in startable(self._data_dir)
                 if one.experiment_id not in self._placed}  # fmt: skip
        if not found:
            return
        machines = {node.name: node.machine for node in nodes if self._fits(node)}
        held = {key: placed.allocation for key, placed in self._placed.items()}
        requests = [_anywhere(resource_request(one)) for one in found.values()]
        for request in requests:
            if machines and not any(has_room(request, one) for one in machines.values()):
                self._say_once(
                    f"{request.key}: waits for a machine with {', '.join(request.devices)}"
                )
        for key, allocation in plan_nodes(requests, held, machines).items():
            experiment = found[key]
            try:
                if experiment.spec.nodes > 1:
                    raise RunnerError(OVER_SEVERAL)
                files = files_of(experiment)
                job = self._engine.start(_key(experiment), allocation.node, allocation.place, files)
            except JobLost as error:  # It is placed again at the next look.
                say(f"{key}: {error}")
                continue
            except (RunnerError, OSError) as error:
                for run in experiment.runs:
                    if run.state is RunState.QUEUED:
                        self._exits.write(run, RunState.FAILED, f"not started: {error}", None)
                self._tell_of_end(experiment)
                continue
            say(f"{key}: placed on {allocation.node[:12]}, {allocation.place.devices}")
            self._place(experiment, job, allocation)

    def _fits(self, node: Node) -> bool:
        if self._usual is None or node.facts.versions == self._usual:
            return True
        other = {name: version for name, version in node.facts.versions.items()
                 if self._usual.get(name) != version}  # fmt: skip
        self._say_once(f"machine {node.facts.host} is left out: its versions differ: {other}")
        return False

    def _say_once(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            say(text)

    def _look_after(self, placed: _Placed) -> None:
        experiment, key = placed.experiment, placed.experiment.experiment_id
        stopped = [run.run_id for run in experiment.runs
                   if run.cancel_requested and run.run_id not in placed.notified]  # fmt: skip
        try:
            if stopped:
                placed.job.cancel(stopped)
                placed.notified.update(stopped)
            delivery = placed.job.delivery(placed.known)
        except OSError as error:  # of a file system that home and machines share
            self._say_once(f"{key}: cannot be looked at: {error}")
            return
        except JobLost as error:
            if lacks_room(self._data_dir.runs):
                return  # Putting aside what is here takes room, too.
            say(f"{key}: {error}")
            placed.job.end()
            del self._placed[key]
            self._begin_elsewhere(experiment, f"machine {placed.host or 'unknown'} was lost")
            return
        if delivery is None:
            return
        with suppress(OSError):  # A full disk: the next request repeats the missing parts.
            try:
                self._take_in(placed, delivery)
            except RunnerError as error:
                self._refuse(placed, error)
                return
            if delivery.is_over:
                placed.job.end()
                del self._placed[key]
                self._close(experiment)
                self._tell_of_end(experiment)

    def _refuse(self, placed: _Placed, error: RunnerError) -> None:
        """What a machine sends that no run writes ends its experiment, and no other."""
        placed.job.end()
        del self._placed[placed.experiment.experiment_id]
        for run in placed.experiment.runs:
            if not run.is_recorded:
                why = f"what came from machine {placed.host} was refused: {error}"
                self._exits.write(run, RunState.FAILED, why, None)
        self._tell_of_end(placed.experiment)

    def _tell_of_end(self, experiment: Experiment) -> None:
        """Records of runs come from their machine, so no process here sees a single run end."""
        self._worked_at.add(experiment.experiment_id)
        for run in experiment.runs:
            stands = run.standing
            self._notifier.run_ended(run.run_id, stands.state, stands.reason or "")
        self._notifier.experiment_ended(experiment)

    def _take_in(self, placed: _Placed, delivery: Delivery) -> None:
        runs = {run.run_id: run for run in placed.experiment.runs}
        for run_id in {*delivery.claims, *(part.run_id for part in delivery.parts)} - runs.keys():
            raise InvalidRunFolder(f"{printable(run_id)} is no run of it")
        key = placed.experiment.experiment_id
        if placed.host is None:
            placed.host = delivery.host
            node = placed.job.node or placed.allocation.node
            placed.allocation = Allocation(node=node, place=delivery.place)
        for run_id, claim in delivery.claims.items():
            self._claim(runs[run_id], claim, delivery.host)
        for part in delivery.parts:
            store(runs[part.run_id], part, placed.known[part.run_id])
        for run_id, text in delivery.specs.items():
            spec = RunSpec.from_json(text)
            if spec.run_id != run_id or spec.experiment.fallback_of != key:
                raise InvalidRunFolder(f"{printable(run_id)} is no run that goes on for it")
            run = self._data_dir.run_dir(run_id)
            if not run.path.exists():
                run.write_spec(spec)

    def _claim(self, run: RunDir, there: Claim, host: str) -> None:
        """Written once: with the machine and when it began there, and who answers for it here."""
        if not run.claim_file.exists():
            mine = Claim.by(self._me, there.devices, there.cpus)
            run.write_claim(replace(mine, time=there.time, node=host))

    def _close(self, experiment: Experiment) -> None:
        """Whatever ended without a record there, for instance for want of disk, is over here."""
        for run in experiment.runs:
            if not run.is_recorded:
                why = "it ended there without a record of how"
                self._exits.write(run, RunState.FAILED, why, None)

    def _begin_elsewhere(self, experiment: Experiment, why: str) -> None:
        """Puts what was lost back into the queue, marked; all runs together, because what is
        compared is measured on one machine."""
        lost = [run for run in experiment.runs if not run.is_recorded]
        for run in [run for run in lost if run.cancel_requested]:
            self._exits.write(run, RunState.CANCELLED, f"stopped on request; {why}", None)
            lost.remove(run)
        if any(run.attempt >= MAX_ATTEMPTS for run in lost):
            for run in lost:
                self._exits.write(run, RunState.LOST, why, None)
        elif lost:
            goes_on = all(run.has_checkpoint for run in lost)
            how = "goes on from its latest checkpoints" if goes_on else "begins anew"
            say(f"{experiment.experiment_id}: {why}; it {how}")
            for run in lost:
                if run.claim_file.exists():
                    run.write_exit(Exit.now(RunState.LOST, f"{why}; it {how} elsewhere", None))
            again = lost if goes_on else _to_begin_anew(experiment)
            for run in again:
                run.reopen() if goes_on else run.begin_anew()


def _to_begin_anew(experiment: Experiment) -> list[RunDir]:
    """All runs that were begun, those that have finished, too; not what somebody stopped."""
    return [run for run in experiment.runs if run.state is not RunState.CANCELLED
            and (run.claim_file.exists() or run.is_recorded)]  # fmt: skip


def _key(experiment: Experiment) -> str:
    """Tells an experiment's attempts apart: what an earlier one left somewhere is not taken up."""
    return f"{experiment.experiment_id}.{max(run.attempt for run in experiment.runs)}"


def _is_mine(run: RunDir) -> bool:
    """Whether a driver of this data folder answered for it."""
    with suppress(RunnerError):
        claim = run.read_claim()
        return claim is not None and claim.node is not None and claim.is_from_this_host
    return False


def _anywhere(request: ResourceRequest) -> ResourceRequest:
    """On a cluster the number of a GPU says nothing: any will do."""
    names = ("cuda" if name.startswith("cuda") else name for name in request.devices)
    return replace(request, devices=tuple(names))


def _everything() -> Place:
    """Until it tells where it is."""
    return Place(devices=(), cpus=frozenset(), exclusive=True)
