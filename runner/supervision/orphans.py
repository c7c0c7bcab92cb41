"""Resumes, restarts or closes the runs that an earlier supervisor left open.

If a supervisor dies, its runs die. Runs that took turns resume together from their checkpoints. If
one of them has no checkpoint, all restart, so that each round has runs of the same attempt only.
After one run has finished, no other restarts, since its later rounds would have no counterpart. A
run that is only timed further keeps its records and remains finished. After five attempts the runs
are lost; the scheduler ends an experiment whose baseline is lost.
"""

from breakeven.runner.errors import RunnerError
from breakeven.runner.processes import kill_abandoned, kill_members, members
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.supervision.exit_records import ExitRecords, say

MAX_ATTEMPTS = 5
"""Most attempts at a run without a user's request: a run may crash its machine each time."""
VANISHED = "its process and supervisor vanished"
Left = dict[RunDir, RunSpec]
"""Runs without an exit record."""


def close_orphans(data_dir: DataDir, exits: ExitRecords) -> None:
    """Closes or reopens the runs that an earlier supervisor left open.

    The caller holds the lock, so no other supervisor lives: every claim of this machine without an
    exit record is an orphan. Orphans that still run are killed. Unreadable run folders are recorded
    as failed.
    """
    # Includes runs without a claim, since a supervisor may die between the start of a process and
    # the claim, and deleted runs.
    for folder in {member.run_folder for member in members(data_dir.runs)}:
        kill_members(folder)
    groups: dict[object, Left] = {}
    for run in data_dir.run_dirs():
        # A damaged folder must not stop the work on the others.
        try:
            if run.is_link or not run.spec_file.exists() or run.read_exit() is not None:
                continue
            claim = run.read_claim()
            if claim is not None and not claim.is_from_this_host:
                continue
            if claim is not None and claim.is_own_supervisor:
                if not claim.process.is_alive:
                    exits.write(run, RunState.LOST, VANISHED, None)
                continue
            if claim is not None:
                kill_abandoned(claim.process, str(run.path))
            spec = run.read_spec()
            key = spec.experiment.turn_group(spec.arm)
            groups.setdefault((spec.experiment_id, key), {})[run] = spec
        except (RunnerError, OSError) as error:
            _record_failed(run, error, exits)
    for left in groups.values():
        _close_group(left, exits)


def _close_group(left: Left, exits: ExitRecords) -> None:
    """Closes or reopens the orphans among runs that are alive at the same time."""
    orphans = [run for run in left if run.claim_file.exists()]
    is_last = any(run.attempt >= MAX_ATTEMPTS for run in orphans)
    can_resume = all(run.has_checkpoint for run in left if not run.cancel_requested)
    may_begin_anew = not _has_finished_fellow(*next(iter(left.items())))
    may_begin_anew &= not any(run.only_times for run in left)
    for run in orphans:
        try:
            # The caches that a cold run left for a warm run were removed with its process.
            is_warm = left[run].arm.cache == "warm"
            if run.cancel_requested:
                exits.write(run, RunState.CANCELLED, f"stopped on request; {VANISHED}", None)
            elif is_last:
                why = f"{VANISHED}, after {MAX_ATTEMPTS} attempts"
                exits.write(run, RunState.LOST, why, None)
            elif run.only_times:
                exits.write(run, RunState.LOST, VANISHED, None)
            elif run.has_checkpoint and (can_resume or not may_begin_anew):
                say(f"{run.run_id}: lost; it will go on from its latest checkpoint")
                run.reopen()
            elif may_begin_anew and not is_warm:
                say(f"{run.run_id}: lost; it begins anew")
                run.begin_anew()
            else:
                exits.write(run, RunState.LOST, VANISHED, None)
        except (RunnerError, OSError) as error:
            _record_failed(run, error, exits)


def _has_finished_fellow(run: RunDir, spec: RunSpec) -> bool:
    """Whether a run that took turns with this one has finished."""
    group = spec.experiment.turn_group(spec.arm)
    fellows = [
        RunDir(run.path.with_name(f"{spec.experiment_id}.{arm.label}"))
        for arm in spec.experiment.arms
        if spec.experiment.turn_group(arm) == group
    ]
    return any(fellow.state is RunState.FINISHED for fellow in fellows)


def _record_failed(run: RunDir, error: Exception, exits: ExitRecords) -> None:
    if not run.is_recorded:
        exits.write(run, RunState.FAILED, str(error), None)
