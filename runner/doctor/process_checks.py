"""Checks of processes: supervisor and dashboard work, and no process is left over."""

import os
import time
from collections.abc import Collection, Iterator

from breakeven.runner.doctor.health_finding import Finding, ok, wrong
from breakeven.runner.errors import InvalidRunFolder
from breakeven.runner.experiments.queue_order import startable
from breakeven.runner.files import FileLock, is_locked
from breakeven.runner.processes import holders, kill_members, members
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.heartbeat import STUCK_SECONDS, read_heartbeat, seconds_busy
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.supervision.exit_records import ExitRecords
from breakeven.runner.supervision.orphans import close_orphans
from breakeven.runner.texts import duration, first_few, printable

PATIENCE_SECONDS = 2.0
SHOWN = 3


def check_processes(data_dir: DataDir) -> Iterator[Finding]:
    yield check_supervisor(data_dir)
    yield check_dashboard(data_dir)
    yield check_orphaned_runs(data_dir)
    yield check_orphaned_processes(data_dir)


def check_supervisor(data_dir: DataDir) -> Finding:
    """Checks whether a supervisor runs the queue and does not hang."""
    subject, heartbeat = "Supervisor", read_heartbeat(data_dir)
    pids = " ".join(map(str, heartbeat.pids)) or "PID"
    kill = f"`kill -9 {pids}`, then `breakeven queue start`: runs resume from checkpoints"
    silent = duration(heartbeat.seconds_since_beat or 0.0)
    if heartbeat.is_stopped:
        evidence = f"process {pids} is suspended and gave no sign for {silent}"
        return wrong(subject, evidence, f"`kill -CONT {pids}` continues it")
    if heartbeat.is_hung:
        return wrong(subject, f"process {pids} holds the lock and gave no sign for {silent}", kill)
    if heartbeat.stuck:
        name, since = min(heartbeat.stuck.items(), key=lambda stuck: stuck[1])
        others = f", and {len(heartbeat.stuck) - 1} more" if len(heartbeat.stuck) > 1 else ""
        evidence = (
            f"{printable(name)} had no supervision for "
            f"{duration(max(0.0, time.time() - since))}{others}: a thread of "
            "the supervisor hangs"
        )
        return wrong(subject, evidence, kill)
    queued = [experiment.experiment_id for experiment in startable(data_dir)]
    counted = f"{len(queued)} experiment{'' if len(queued) == 1 else 's'} waiting"
    if heartbeat.is_alive:
        return ok(subject, f"running; {counted}")
    if queued:
        evidence = f"{counted}, and no supervisor runs: {first_few(queued, SHOWN)}"
        return wrong(subject, evidence, "`breakeven queue start` runs the queue")
    return ok(subject, "none runs, and no experiment waits")


def check_dashboard(data_dir: DataDir) -> Finding:
    """Checks whether the owner of the index finishes its updates."""
    subject, lock = "Dashboard", data_dir.database_lock
    seconds = seconds_busy(lock)
    if seconds <= STUCK_SECONDS:
        return ok(subject, "responding" if is_locked(lock) else "none is open")
    pids = " ".join(map(str, holders(lock))) or "PID"
    evidence = f"process {pids} has been reading run folders for {duration(seconds)}"
    remedy = (
        f"unless the disk is slow, `kill -9 {pids}` and `make run`: the index is "
        "rebuilt from the run folders, and trainings continue"
    )
    return wrong(subject, evidence, remedy)


def check_orphaned_runs(data_dir: DataDir) -> Finding:
    """Finds runs whose processes vanished without an exit record."""
    subject = "Orphaned runs"
    if is_locked(data_dir.supervisor_lock):
        return ok(subject, "the running supervisor records them")
    lost = [
        run
        for run in data_dir.unrecorded_runs()
        if run.claim_file.exists() and run.state is RunState.LOST
    ]
    if not lost:
        return ok(subject, "none")
    names = first_few([printable(run.run_id) for run in lost], SHOWN)
    evidence = f"{len(lost)} disappeared without an exit record: {names}"
    remedy = (
        "`breakeven doctor --repair` records their end, or queues them again if "
        "they can resume or start again"
    )
    return wrong(subject, evidence, remedy, repair=lambda: _close(data_dir, lost))


def _close(data_dir: DataDir, lost: Collection[RunDir]) -> str:
    lock = FileLock(data_dir.supervisor_lock)
    if not lock.acquire(PATIENCE_SECONDS):
        return "a supervisor has started meanwhile, and records them"
    with lock:
        close_orphans(data_dir, ExitRecords())
    again = sum(run.state is RunState.QUEUED for run in lost)
    waits = "; `breakeven queue start` runs the queue" if again else ""
    return f"{len(lost) - again} recorded as ended, {again} queued again{waits}"


def check_orphaned_processes(data_dir: DataDir) -> Finding:
    """Finds processes of ended or unsupervised runs: they use the device."""
    subject = "Orphaned processes"
    abandoned = [
        process
        for process in members(data_dir.runs)
        if process.pid != os.getpid() and _is_abandoned(RunDir(process.run_folder))
    ]
    if not abandoned:
        return ok(subject, "none")
    pids = " ".join(str(process.pid) for process in abandoned)
    folders = sorted({process.run_folder for process in abandoned})
    listed = first_few([printable(folder.name) for folder in folders], SHOWN)
    evidence = f"{len(abandoned)} processes of runs without a supervisor: {pids} ({listed})"
    return wrong(
        subject,
        evidence,
        f"`kill -9 {pids}`, or `breakeven doctor --repair`",
        repair=lambda: f"{sum(map(kill_members, folders))} processes ended",
    )


def _is_abandoned(run: RunDir) -> bool:
    """Whether a run is over, or has no supervisor that could give it a turn."""
    if run.is_recorded:
        return True
    try:
        claim = run.read_claim()
    except InvalidRunFolder:
        return True
    # A process that has just started has no claim yet. A run that a user started is its own
    # supervisor.
    return claim is not None and not claim.supervisor.is_alive
