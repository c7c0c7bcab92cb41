"""Runs that an earlier supervisor left open: which go on, which begin anew, which are lost.

A supervisor that dies takes its runs with it. One with a checkpoint goes on from there. One of
which nothing counts yet begins anew, so that a machine which goes down while an experiment loads
leaves no comparison without a baseline. All others are recorded as lost.
"""

from collections.abc import Sequence

from runner.errors import RunnerError
from runner.folders.data_dir import DataDir
from runner.folders.events import each_event
from runner.folders.process import kill_abandoned
from runner.folders.process_table import kill_members, members
from runner.folders.run_dir import RunDir
from runner.folders.states import RunState
from runner.supervision.exit_records import ExitRecords, say

MAX_ATTEMPTS = 5
"""Attempts at one run that begin by themselves; a run that ends its machine must not do so for
ever."""
MEASURED = ("step", "block", "accuracy")
"""Kinds of event that only a run which had a turn has written."""


def close_orphans(data_dir: DataDir, exits: ExitRecords) -> None:
    """Closes or reopens what an earlier supervisor left open.

    The caller holds the lock, so no other supervisor lives: every claim of this machine without an
    exit record is an orphan. One that still runs is killed. Run folders that cannot be read are
    recorded as failed.
    """
    groups: dict[object, list[RunDir]] = {}
    # Also of a run without a claim, as its supervisor may die between starting a process and saying
    # so, and of one that was deleted since.
    for folder in {member.run_folder for member in members(data_dir.runs)}:
        kill_members(folder)
    for run in data_dir.run_dirs():
        # Whatever one folder holds, the others are looked after.
        try:
            if run.is_link or not run.spec_file.exists() or run.read_exit() is not None:
                continue
            claim = run.read_claim()
            if claim is not None and not claim.is_from_this_host:
                continue
            if claim is not None:
                kill_abandoned(claim.process, str(run.path))
            spec = run.read_spec()
            together = spec.experiment.company_of(spec.variant)
            groups.setdefault((spec.experiment_id, together), []).append(run)
        except (RunnerError, OSError) as error:
            _record_failed(run, error, exits)
    for runs in groups.values():
        _close_group(runs, exits)


def _close_group(runs: Sequence[RunDir], exits: ExitRecords) -> None:
    """Closes the orphans among runs that live at once, none of which has ended."""
    measured: dict[RunDir, bool] = {}
    for run in runs:
        try:
            measured[run] = _has_measured(run)
        except (RunnerError, OSError) as error:
            _record_failed(run, error, exits)
    # Until each had its first turn no round is complete that a comparison could use.
    nothing_counts = not all(measured.values())
    for run in measured:
        try:
            if run.claim_file.exists():
                _close_orphan(run, exits, nothing_counts)
        except (RunnerError, OSError) as error:
            _record_failed(run, error, exits)


def _close_orphan(run: RunDir, exits: ExitRecords, nothing_counts: bool) -> None:
    may_go_on = run.attempt < MAX_ATTEMPTS and not run.cancel_requested
    # The caches that a cold run left for it went with its process.
    may_begin_anew = nothing_counts and run.read_spec().variant.cache != "warm"
    if may_go_on and run.has_checkpoint:
        say(f"{run.run_id}: lost; it will go on from its latest checkpoint")
        run.reopen()
    elif may_go_on and may_begin_anew:
        say(f"{run.run_id}: lost before anything of it counts; it begins anew")
        run.begin_anew()
    else:
        exits.write(run, RunState.LOST, "its process and supervisor vanished", None)


def _has_measured(run: RunDir) -> bool:
    return any(event["kind"] in MEASURED for event in each_event(run.events_file))


def _record_failed(run: RunDir, error: Exception, exits: ExitRecords) -> None:
    if not run.is_recorded:
        exits.write(run, RunState.FAILED, str(error), None)
