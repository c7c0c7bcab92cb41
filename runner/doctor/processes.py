"""Whether what should be at work is, and nothing else."""

import os
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from breakeven.runner.doctor.findings import Finding, Health
from breakeven.runner.errors import InvalidRunFolder
from breakeven.runner.folders.busy import STUCK_SECONDS, seconds_busy
from breakeven.runner.folders.data_dir import DataDir, run_names
from breakeven.runner.folders.process_table import (
    command_line,
    holders,
    is_running,
    kill_members,
    members,
    state_of,
)
from breakeven.runner.folders.queue_order import read_order, waiting
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import RunState
from breakeven.runner.locks import FileLock, is_locked
from breakeven.runner.supervision.exit_records import ExitRecords
from breakeven.runner.supervision.heartbeat import feel
from breakeven.runner.supervision.orphans import close_orphans
from breakeven.runner.texts import duration, printable

CLOCK_SLACK_SECONDS = 120.0
"""Clocks of file servers go a little before or after."""
OURS = ("breakeven", "serve.py", "streamlit", "pytest")
"""Words in the command lines of those that hold our locks by right."""
PATIENCE_SECONDS = 2.0


def check_processes(data_dir: DataDir) -> Iterator[Finding]:
    yield check_supervisor(data_dir)
    yield check_dashboard(data_dir)
    yield check_orphaned_runs(data_dir)
    yield check_orphaned_processes(data_dir)
    yield check_locks(data_dir)
    yield check_clock(data_dir)


def check_supervisor(data_dir: DataDir) -> Finding:
    """Whether somebody works off what waits, and moves on."""
    subject = "Supervisor"
    pulse = feel(data_dir)
    if pulse.is_still:
        silent = duration(pulse.seconds_since_beat or 0.0)
        pids = " ".join(map(str, pulse.pids)) or "PID"
        if pulse.is_stopped:
            evidence = f"process {pids} was stopped and gave no sign for {silent}"
            remedy = f"`kill -CONT {pids}` lets it go on"
        else:
            evidence = f"process {pids} holds the lock and gave no sign for {silent}"
            remedy = f"`kill -9 {pids}`, then `breakeven supervise`: checkpoints go on"
        return Finding(subject=subject, health=Health.WRONG, evidence=evidence, remedy=remedy)
    if pulse.stuck:
        name, since = min(pulse.stuck.items(), key=lambda one: one[1])
        others = f", nor after {len(pulse.stuck) - 1} more" if len(pulse.stuck) > 1 else ""
        evidence = (f"nobody has looked after {printable(name)} for "
                    f"{duration(max(0.0, time.time() - since))}{others}: a thread of it "
                    "does not move on")  # fmt: skip
        pids = " ".join(map(str, pulse.pids)) or "PID"
        remedy = f"`kill -9 {pids}`, then `breakeven supervise`: checkpoints go on"
        return Finding(subject=subject, health=Health.WRONG, evidence=evidence, remedy=remedy)
    queued = _startable(data_dir)
    if pulse.is_alive:
        return Finding(subject=subject, health=Health.OK,
                       evidence=f"at work; {_experiments(queued)} waiting")  # fmt: skip
    if queued:
        evidence = f"{_experiments(queued)} waiting, and nobody works them off: {_some(queued)}"
        return Finding(subject=subject, health=Health.WRONG, evidence=evidence,
                       remedy="`breakeven supervise` works them off")  # fmt: skip
    return Finding(subject=subject, health=Health.OK, evidence="none at work, and nothing waits")


def check_dashboard(data_dir: DataDir) -> Finding:
    """Whether who owns the index comes to an end with what it takes in."""
    subject, lock = "Dashboard", data_dir.database_lock
    seconds = seconds_busy(lock)
    if seconds > STUCK_SECONDS:
        pids = " ".join(map(str, holders(lock))) or "PID"
        evidence = f"process {pids} has been taking in run folders for {duration(seconds)}"
        remedy = (f"if the disk is not just slow, `kill -9 {pids}` and `make run`: the index is "
                  "made from the run folders, and trainings go on")  # fmt: skip
        return Finding(subject=subject, health=Health.WRONG, evidence=evidence, remedy=remedy)
    return Finding(subject=subject, health=Health.OK,
                   evidence="moves on" if is_locked(lock) else "none is open")  # fmt: skip


def check_orphaned_runs(data_dir: DataDir) -> Finding:
    """Runs whose processes vanished, and of which nobody wrote down that they did."""
    subject = "Orphaned runs"
    if is_locked(data_dir.supervisor_lock):
        return Finding(subject=subject, health=Health.OK,
                       evidence="the supervisor at work closed those it found")  # fmt: skip
    lost = [run for run in _unrecorded(data_dir) if run.claim_file.exists()
            and run.state is RunState.LOST]  # fmt: skip
    if not lost:
        return Finding(subject=subject, health=Health.OK, evidence="none")
    evidence = f"{len(lost)} vanished and are not recorded: {_some(run.run_id for run in lost)}"
    remedy = (
        "`breakeven doctor --repair` records how they ended, or queues them again where "
        "they may go on or begin anew"
    )
    return Finding(subject=subject, health=Health.WRONG, evidence=evidence, remedy=remedy,
                   repair=lambda: _close(data_dir, lost))  # fmt: skip


def check_orphaned_processes(data_dir: DataDir) -> Finding:
    """Processes of runs that are over, or whose supervisor is gone: they take the device's time."""
    subject = "Orphaned processes"
    found = [one for one in members(data_dir.runs)
             if one.pid != os.getpid() and _is_abandoned(RunDir(one.run_folder))]  # fmt: skip
    if not found:
        return Finding(subject=subject, health=Health.OK, evidence="none")
    pids = " ".join(str(one.pid) for one in found)
    folders = sorted({one.run_folder for one in found})
    listed = _some(folder.name for folder in folders)
    evidence = f"{len(found)} of runs that nobody supervises: {pids} ({listed})"

    def repair() -> str:
        return f"{sum(map(kill_members, folders))} processes ended"

    return Finding(subject=subject, health=Health.WRONG, evidence=evidence,
                   remedy=f"`kill -9 {pids}`, or `breakeven doctor --repair`",
                   repair=repair)  # fmt: skip


def check_locks(data_dir: DataDir) -> Finding:
    """Locks end with their holder, unless something that it started has inherited them."""
    subject = "Locks"
    held = []
    for file in (data_dir.supervisor_lock, data_dir.library_lock, data_dir.database_lock):
        if not is_locked(file):
            continue
        pids = [pid for pid in holders(file) if is_running(pid)]
        strangers = [pid for pid in pids if not any(word in command_line(pid) for word in OURS)]
        if strangers and len(strangers) == len(pids):
            who = ", ".join(f"{pid} ({printable(command_line(pid), 60)})" for pid in strangers)
            evidence = f"{file.name} is held by {who}, left by one that is gone"
            remedy = f"`kill {' '.join(map(str, strangers))}`: who left it the lock is dead"
            return Finding(subject=subject, health=Health.WRONG, evidence=evidence, remedy=remedy)
        stopped = [pid for pid in pids if state_of(pid) in ("T", "t")]
        if stopped:
            evidence = f"{file.name} is held by {stopped[0]}, which was stopped"
            return Finding(subject=subject, health=Health.WRONG, evidence=evidence,
                           remedy=f"`kill -CONT {stopped[0]}` lets it go on")  # fmt: skip
        held.append(f"{file.name} by {' '.join(map(str, pids)) or 'somebody'}")
    evidence = "; ".join(held) or "none is held"
    return Finding(subject=subject, health=Health.OK, evidence=evidence)


def check_clock(data_dir: DataDir) -> Finding:
    """Whether the newest run was claimed in what is the future now."""
    subject = "Clock"
    ahead = 0.0
    for run in list(data_dir.run_dirs())[-20:]:
        with suppress(InvalidRunFolder):
            claim = run.read_claim()
            if claim is not None and claim.is_from_this_host:
                ahead = max(ahead, claim.time - time.time())
    if ahead > CLOCK_SLACK_SECONDS:
        evidence = f"a run was started {duration(ahead)} from now: the clock was set back since"
        remedy = "set the clock (`timedatectl set-ntp true`); durations are right all the same"
        return Finding(subject=subject, health=Health.DOUBTFUL, evidence=evidence, remedy=remedy)
    return Finding(subject=subject, health=Health.OK, evidence="no run is from the future")


def _unrecorded(data_dir: DataDir) -> list[RunDir]:
    """Of runs that are over no file is opened."""
    runs = map(data_dir.run_dir, run_names(data_dir.runs))
    return [run for run in runs if not run.is_recorded]


def _startable(data_dir: DataDir) -> list[str]:
    """Ids of the experiments that a supervisor would begin."""
    order = read_order(data_dir)
    open_ones = {run.run_id.partition(".")[0] for run in _unrecorded(data_dir)}
    if order.paused or not open_ones:
        return []
    found = (one.experiment_id for one in waiting(data_dir, open_ones))
    return [one for one in found if one not in order.held]


def _experiments(ids: Collection[str]) -> str:
    return f"{len(ids)} experiment{'' if len(ids) == 1 else 's'}"


def _is_abandoned(run: RunDir) -> bool:
    """Whether a run is over, or nobody is there who could give it a turn."""
    if run.is_recorded:
        return True
    try:
        claim = run.read_claim()
    except InvalidRunFolder:
        return True
    # Between the start of a process and its claim there is a moment without one. A run by hand is
    # its own supervisor.
    return claim is not None and not claim.supervisor.is_alive


def _close(data_dir: DataDir, lost: list[RunDir]) -> str:
    lock = FileLock(data_dir.supervisor_lock)
    if not lock.acquire(PATIENCE_SECONDS):
        return "a supervisor has begun to work meanwhile, and closes them"
    with lock:
        close_orphans(data_dir, ExitRecords())
    again = sum(run.state is RunState.QUEUED for run in lost)
    waits = "; `breakeven supervise` works them off" if again else ""
    return f"{len(lost) - again} recorded as ended, {again} queued again{waits}"


def _some(names: Iterable[str], most: int = 3) -> str:
    listed = [printable(name) for name in names]
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
