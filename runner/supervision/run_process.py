"""The process of one run: starts it, gives it turns, stops it and records its exit."""

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from breakeven.runner.errors import OWN_ERRORS, NotLoaded, RunnerError, short_cause
from breakeven.runner.machine.placement import Place
from breakeven.runner.machine.run_variables import (
    other_python_variables,
    process_variables,
    variable_hint,
    withheld_names,
)
from breakeven.runner.processes import (
    ChildProcess,
    ProcessIdentity,
    end_group,
    has_exited,
    kill_members,
    signal_group,
    start_in_own_session,
)
from breakeven.runner.project import linked_code
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.exit_status import WorkerExit, explain
from breakeven.runner.protocol.records import Claim, Exit
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.protocol.turns import TURN_PIPES_VARIABLE, Turn, TurnPost
from breakeven.runner.specs.place import write_cpus
from breakeven.runner.supervision.exit_records import ExitRecords, cut_output, mask_output
from breakeven.runner.supervision.fork_server import Fork

GRACE_SECONDS = 4.5
"""Seconds between SIGTERM and SIGKILL: a little more than a run needs to exit by itself during a
compilation (`runner.worker.turn_source`)."""

UNSEEN_SECONDS = 5.0
"""Longest time that counts between two looks, which are usually 0.25 s apart."""
GONE_SECONDS = 5.0
"""How long a run may live after it closed its reply pipe, which it does when it exits."""
GONE = (
    "it closed the pipe to its supervisor and went on: something in it closes file descriptors "
    "that are not its own"
)
LEFT_EARLY = (
    "its process left with exit status 0 before the training was over: something in it called "
    "sys.exit or os._exit"
)


class RunProcess:
    """The process of one run, and the supervisor's knowledge of it."""

    def __init__(
        self,
        run: RunDir,
        command: Sequence[str],
        time_limit_seconds: float,
        place: Place,
        python: str | None = None,
        fork: Fork | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`python`: path of the Python of the run's environment; None for Breakeven's own.
        `fork`: the process that becomes the run; None starts a new one. `variables`: environment
        variables that the experiment sets."""
        self.run = run
        self.is_ready = False
        self.has_not_loaded = False
        """Whether it ended because the model or data of all runs cannot be loaded."""
        self.holds_turn = False
        self.turn_since = 0.0
        """When the last turn was given, in seconds of the monotonic clock."""
        self.said_finished = False
        """Whether the run has reported its last step."""
        self.post = TurnPost() if fork is None else fork.post
        self._time_limit_seconds = time_limit_seconds
        self._worked_seconds = 0.0
        self._is_working = True
        self._looked = time.monotonic()
        self._stop: tuple[RunState, str] | None = None
        self._kill_at = 0.0
        self._gone_since: float | None = None
        self._process: ChildProcess = (
            self._started(command, place, python, variables or {}) if fork is None else fork.process
        )
        try:
            process = ProcessIdentity.from_pid(self._process.pid)
            claim = Claim.by(process, place.devices, write_cpus(place.cpus))
            if fork is not None:
                claim = replace(claim, is_forked=True, time=fork.since)
            run.write_claim(claim)
            if fork is not None:  # It checks the folder, in which nothing may change meanwhile.
                self.post.assign(run.path)
        except OSError:
            self.discard()
            raise

    def _started(
        self,
        command: Sequence[str],
        place: Place,
        python: str | None,
        variables: Mapping[str, str],
    ) -> subprocess.Popen[bytes]:
        """Starts a process that takes the other ends of the pipes."""
        environment = process_variables(str(self.run.path), place, variables)
        environment[TURN_PIPES_VARIABLE] = "{},{}".format(*self.post.run_fds)
        if python is not None:
            command = (python, *command[1:])
            environment = other_python_variables(
                environment, linked_code(self.run.path.parents[1]), variables
            )
        try:
            return start_in_own_session(
                [*command, str(self.run.path)],
                self.run.output_file,
                environment,
                self.post.run_fds,
            )
        except OSError:
            self.post.close()
            raise
        finally:
            self.post.close_run_ends()

    def _count_time(self) -> None:
        """Counts the run's work since the last look: setup and turns, but not waiting, nor the time
        in which the supervisor itself was suspended."""
        now = time.monotonic()
        if self._is_working:
            self._worked_seconds += min(now - self._looked, UNSEEN_SECONDS)
        self._looked = now

    @property
    def is_gone(self) -> bool:
        """Whether the run has closed its reply pipe."""
        return self._gone_since is not None

    def hear(self) -> None:
        """Records the new messages of the run."""
        self._count_time()
        for word in self.post.read():
            if word == "gone" and self._gone_since is None:
                self._gone_since = time.monotonic()
            if word == "ready":
                self.is_ready = True
            self.said_finished |= word == "finished"
            if word in ("ready", "done", "finished"):
                self._is_working = False
                self.holds_turn = False

    def give_turn(self, turn: Turn) -> None:
        self._count_time()
        self.turn_since = time.monotonic()
        self.holds_turn = self.post.give(turn)
        self._is_working = True

    def stop(self, state: RunState, reason: str) -> None:
        """Sends SIGTERM to the run; `enforce_limits` kills the run later if it does not stop."""
        if self._stop is None:
            self._stop = (state, reason)
            self._kill_at = time.monotonic() + GRACE_SECONDS
            signal_group(self._process.pid, signal.SIGTERM)

    def enforce_limits(self) -> None:
        """Stops a run that was cancelled or worked too long; kills a run that does not stop."""
        cut_output(self.run.output_file)
        self._count_time()
        if self._stop is not None:
            if time.monotonic() > self._kill_at:
                signal_group(self._process.pid, signal.SIGKILL)
        elif self.run.cancel_requested:
            self.stop(RunState.CANCELLED, "stopped on request")
        elif self._worked_seconds > self._time_limit_seconds:
            reason = f"worked longer than its limit of {self._time_limit_seconds:g} s"
            self.stop(RunState.TIMEOUT, reason)
        elif self._gone_since is not None and time.monotonic() - self._gone_since > GONE_SECONDS:
            self.stop(RunState.FAILED, GONE)

    @property
    def has_exited(self) -> bool:
        return has_exited(self._process)

    def discard(self) -> int:
        """Kills the run's processes, also outside its group; returns the leader's exit status."""
        returncode = end_group(self._process)
        kill_members(self.run.path)
        self.post.close()
        return returncode

    def record_exit(
        self, exits: ExitRecords, warm_run: RunDir | None, starts_later: bool = False
    ) -> tuple[RunState, str]:
        """Kills the remaining processes and records how the run ended, and why. Its compile caches
        go to `warm_run`, which begins with them, or else are removed; with `starts_later` they stay
        for the run itself, which is queued again if it has finished."""
        returncode = self.discard()
        if warm_run is not None:
            with suppress(OSError):  # The warm run reports a missing cache.
                warm_run.take_cache(self.run)
        state, reason = explain(returncode)
        # A run that reported its end while it was being stopped counts as finished. A run that is
        # stopped during its profiles leaves with status 0, too.
        has_finished = state is RunState.FINISHED and self.said_finished
        if self._stop is not None and not has_finished:
            state, reason = self._stop
        elif returncode in (WorkerExit.FAILED, WorkerExit.RANK_LOST):
            reason = self._last_error() or reason  # also sets `has_not_loaded`
        elif state is RunState.FINISHED and not has_finished:
            state, reason = RunState.FAILED, LEFT_EARLY
        if state is RunState.FAILED:
            reason = "; ".join(filter(None, [reason, self._missing_variable_hint()]))
        mask_output(self.run.output_file)
        if starts_later and state is RunState.FINISHED:
            with suppress(RunnerError, OSError):  # Then this start was the last one.
                self.run.start_later(Exit.now(state, reason, returncode))
                return state, reason
        exits.write(self.run, state, reason, returncode)
        return state, reason

    def _last_error(self) -> str:
        """The error at the end of its journal as a text; empty if another event is last."""
        with suppress(RunnerError, OSError):
            for event in deque(each_event(self.run.events_file), maxlen=1):
                if event["kind"] == "error":
                    name = str(event.get("error"))
                    self.has_not_loaded = name == NotLoaded.__name__
                    cause = short_cause(name, str(event.get("message")))
                    return cause if name in OWN_ERRORS else f"{cause}; output.log says where"
        return ""

    def _missing_variable_hint(self) -> str:
        """A hint at a withheld variable that the end of its log names, if any."""
        with suppress(RunnerError, OSError):  # A damaged folder must not stop other runs.
            return variable_hint(self.run.log_tail(), withheld_names(os.environ))
        return ""
