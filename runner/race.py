"""One experiment at work: its run processes, and the turn that they pass.

All processes set up side by side; once every one is ready (or gone) the rounds begin. In each
round every living run gets one turn, in an order drawn anew. A run that dies, exceeds its time
limit or is cancelled gives its turn back, and the others go on. With `schedule="sequential"` the
same happens with one process at a time. Repeats race one after the other.
"""

import os
import random
import selectors
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from runner.events import read_events
from runner.exits import explain
from runner.process import (
    ProcessIdentity,
    end_group,
    has_exited,
    signal_group,
    start_in_own_session,
)
from runner.queue import PROJECT_ROOT, Experiment, submit
from runner.run_dir import Claim, DataDir, RunDir, RunState
from runner.stopping_rule import JournalWatch
from runner.turns import TURN_PIPES_VARIABLE, Turn, TurnPost

TICK_SECONDS = 0.25
"""How often cancel markers and time limits are looked at while nothing else happens."""
GRACE_SECONDS = 8.0
"""How long a run may take to stop after SIGTERM before its group gets SIGKILL."""


class Racer:
    """One run's process: started, given turns, stopped, and its exit recorded."""

    def __init__(self, run: RunDir, command: Sequence[str], time_limit_seconds: float) -> None:
        self.run = run
        self.is_ready = False
        self.holds_turn = False
        self.post = TurnPost()
        self._time_limit_seconds = time_limit_seconds
        self._worked_seconds = 0.0
        self._working_since: float | None = time.monotonic()
        self._stop: tuple[RunState, str] | None = None
        self._kill_at = 0.0
        read_fd, write_fd = self.post.run_fds
        environment = {
            **os.environ,
            TURN_PIPES_VARIABLE: f"{read_fd},{write_fd}",
            "PYTHONUNBUFFERED": "1",
        }
        self._process = start_in_own_session(
            [*command, str(run.path)],
            output=run.output_file,
            cwd=PROJECT_ROOT,
            env=environment,
            pass_fds=(read_fd, write_fd),
        )
        self.post.close_run_ends()
        run.write_claim(Claim.by(ProcessIdentity.of(self._process.pid)))

    @property
    def worked_seconds(self) -> float:
        """Time spent setting up and holding turns; waiting for others does not count."""
        since = self._working_since
        return self._worked_seconds + (0.0 if since is None else time.monotonic() - since)

    def hear(self) -> None:
        """Takes note of what the run said."""
        for word in self.post.read():
            if word == "ready":
                self.is_ready = True
            if word in ("ready", "done", "finished"):
                self._worked_seconds = self.worked_seconds
                self._working_since = None
                self.holds_turn = False

    def give_turn(self, turn: Turn) -> None:
        self.holds_turn = self.post.give(turn)
        self._working_since = time.monotonic()

    def stop(self, state: RunState, reason: str) -> None:
        """Asks the run to stop; `look_after` insists when it does not."""
        if self._stop is None:
            self._stop = (state, reason)
            self._kill_at = time.monotonic() + GRACE_SECONDS
            signal_group(self._process.pid, signal.SIGTERM)

    def look_after(self) -> None:
        """Stops a run that was cancelled or worked too long; kills one that will not stop."""
        if self._stop is not None:
            if time.monotonic() > self._kill_at:
                signal_group(self._process.pid, signal.SIGKILL)
        elif self.run.cancel_requested:
            self.stop(RunState.CANCELLED, "stopped on request")
        elif self.worked_seconds > self._time_limit_seconds:
            reason = f"worked longer than its limit of {self._time_limit_seconds:g} s"
            self.stop(RunState.TIMEOUT, reason)

    @property
    def has_exited(self) -> bool:
        return has_exited(self._process)

    def bury(self, heir: RunDir | None) -> RunState:
        """Ends what is left of the process group and records how the run ended.

        Its compile caches go to the heir, or else are removed.
        """
        returncode = end_group(self._process)
        self.post.close()
        if heir is not None:
            heir.inherit_cache(self.run)
        # A run that finished all its steps while it was being stopped has finished.
        state, reason = explain(returncode)
        if self._stop is not None and state is not RunState.FINISHED:
            state, reason = self._stop
        record_exit(self.run, state, reason, returncode)
        return state


class Race:
    """Runs one experiment to its end."""

    def __init__(self, data_dir: DataDir, experiment: Experiment, command: Sequence[str]) -> None:
        self._data_dir = data_dir
        self._experiment = experiment
        self._command = command
        self._selector = selectors.DefaultSelector()
        self._racers: list[Racer] = []
        self._orders = random.Random(experiment.spec.training.seed)
        self._fallback: str | None = None
        self._variants = dict(zip(experiment.runs, experiment.spec.variants, strict=True))
        by_label = {run.run_id.partition(".")[2]: run for run in experiment.runs}
        self._heirs = {
            by_label[cold.label].run_id: by_label[warm.label]
            for _, cold, warm in experiment.spec.cold_and_warm
        }

    def run(self) -> None:
        """Blocks until every run of the experiment has ended."""
        for runs in self._groups():
            if self._fallback is None:
                self._run_group(runs)
            else:
                for run in runs:
                    record_exit(run, RunState.CANCELLED, self._why_fallen_back, None)
        self._selector.close()

    def _groups(self) -> list[list[RunDir]]:
        """The runs that have not ended, those together that are alive at once."""
        groups: dict[int | str, list[RunDir]] = {}
        races = self._experiment.spec.races
        for run, variant in self._variants.items():
            if not run.state.is_final:
                groups.setdefault(variant.repeat if races else run.run_id, []).append(run)
        return list(groups.values())

    def _run_group(self, runs: Sequence[RunDir]) -> None:
        spec = self._experiment.spec
        round_number = _first_round(self._experiment.runs if spec.races else runs)
        watch = None
        if spec.scenario == "speed":
            watch = JournalWatch(spec, {run: self._variants[run] for run in runs})
        for run in runs:
            if run.cancel_requested:
                record_exit(run, RunState.CANCELLED, "stopped before it started", None)
            else:
                self._start(run)
        self._wait_until(lambda: all(racer.is_ready for racer in self._racers))
        while self._racers:
            last = watch.reason([racer.run for racer in self._racers]) if watch else None
            order = self._orders.sample(self._racers, len(self._racers))
            for position, racer in enumerate(order):
                if racer in self._racers:
                    racer.give_turn(Turn(round=round_number, position=position, last=last))
                    self._wait_until(lambda racer=racer: not racer.holds_turn)  # type: ignore[misc]
            round_number += 1

    def _start(self, run: RunDir) -> None:
        racer = Racer(run, self._command, self._experiment.spec.time_limit_seconds)
        self._racers.append(racer)
        self._selector.register(racer.post.replies, selectors.EVENT_READ, racer)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Sleeps on the reply pipes, looking after all runs, until the condition holds."""
        self._collect()
        while self._racers and not condition():
            for key, _ in self._selector.select(TICK_SECONDS):
                key.data.hear()
            for racer in self._racers:
                racer.look_after()
            self._collect()

    def _collect(self) -> None:
        """Buries the runs that have ended; their turn, if they held it, is free again."""
        for racer in [racer for racer in self._racers if racer.has_exited]:
            self._racers.remove(racer)
            self._selector.unregister(racer.post.replies)
            racer.hear()
            racer.holds_turn = False
            heir = self._heirs.get(racer.run.run_id)
            if racer.bury(heir) is RunState.OUT_OF_MEMORY and self._racers:
                self._fall_back()

    def _fall_back(self) -> None:
        """Repeats the experiment one run at a time, because together they do not fit."""
        if self._fallback is None:
            spec = self._experiment.spec
            repeat = replace(
                spec, schedule="sequential", fallback_of=self._experiment.experiment_id
            )
            self._fallback = submit(self._data_dir, repeat)
        for racer in self._racers:
            racer.stop(RunState.CANCELLED, self._why_fallen_back)

    @property
    def _why_fallen_back(self) -> str:
        return (
            f"the device cannot hold all runs at once; experiment {self._fallback} repeats them "
            "one after another"
        )


def _first_round(runs: Iterable[RunDir]) -> int:
    """The round after the last that any of the runs has recorded, so that runs which go on from a
    checkpoint share no round with what was timed before."""
    rounds = [
        event["round"]
        for run in runs
        for event in read_events(run.events_file)[0]
        if event["kind"] == "block"
    ]
    return max(rounds, default=-1) + 1


def record_exit(run: RunDir, state: RunState, reason: str, returncode: int | None) -> None:
    """Writes exit.json and drops the compile cache; a full disk must not stop the supervisor."""
    shutil.rmtree(run.compile_cache, ignore_errors=True)
    print(f"{run.run_id}: {state}, {reason}", flush=True)  # noqa: T201
    try:
        run.write_exit(state, reason, returncode)
    except OSError as error:
        # Without exit.json the state is derived from the dead process, and the next start of a
        # supervisor tries again.
        print(f"{run.run_id}: exit.json could not be written: {error}", flush=True)  # noqa: T201
