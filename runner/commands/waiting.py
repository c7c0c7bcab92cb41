"""Waits for an experiment, shows its progress on the terminal (one line per run, redrawn in place),
and lets `storage/` print the result."""

import json
import math
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from types import FrameType

from breakeven.runner.checks.refused_experiments import check_at_once, check_user_code
from breakeven.runner.commands.entry import BAD_INPUT, FROM_INPUT, JUDGED, tell
from breakeven.runner.errors import Refused
from breakeven.runner.experiments import queue_order
from breakeven.runner.experiments.queue import (
    Experiment,
    cancel,
    ensure_supervisor,
    experiments,
    find_experiment,
    submit,
)
from breakeven.runner.extras import missing_words
from breakeven.runner.files import is_locked
from breakeven.runner.machine.capabilities import read_capabilities
from breakeven.runner.machine.occupancy import plan_starts
from breakeven.runner.ports_and_locks import REPEATS
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.run_progress import RunProgress
from breakeven.runner.protocol.states import RunState, state_words
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.texts import duration, printable

REFRESH_SECONDS = 1.0
"""Reading the state of six runs takes 0.1 s on a slow host, whose CPUs the runs need."""
ENDING_REFRESH_SECONDS = 0.05
PHASES_OF_TURNS = ("waiting", "training", "evaluating")
PRINTED_PARTS = 4
"""A log has a line per run for each quarter of its steps; if their number is unknown, whenever it
has doubled."""
LOOK_SECONDS = 2.0
"""How often the queue is read while the experiment waits in it."""
BAR_WIDTH = 8
MAX_ERROR_CHARACTERS = 100


def watch(
    data_dir: DataDir, experiment: Experiment, on_end: Callable[[], None] = lambda: None
) -> None:
    """Shows the runs of an experiment, also those that a search adds, until all have ended; before
    the first run starts, shows what the experiment waits for. `on_end` is called, once or several
    times, when no further work is timed."""
    runs = {run: RunProgress(run, experiment.spec) for run in experiment.runs}
    is_terminal = sys.stdout.isatty()
    drawn = 0
    printed = set[object]()
    last_look = 0.0
    ahead: list[str] = []
    while True:
        if experiment.spec.kind.has_candidates:
            experiment = find_experiment(data_dir, experiment.experiment_id)
            runs |= {
                run: RunProgress(run, experiment.spec) for run in experiment.runs if run not in runs
            }
        for progress in runs.values():
            progress.update()
        labels = {run: arm.label for run, arm in zip(experiment.runs, experiment.arms, strict=True)}
        width = max(map(len, labels.values()))
        if any(progress.state is not RunState.QUEUED for progress in runs.values()):
            ahead = []
        elif time.monotonic() - last_look > LOOK_SECONDS:
            ahead, last_look = _ahead(data_dir, experiment), time.monotonic()
        lines = {label: _line(label.ljust(width), runs[run]) for run, label in labels.items()}
        over = all(progress.state.is_final for progress in runs.values())
        if is_terminal:
            drawn = _redraw([*ahead, *lines.values()], drawn)
        else:
            keyed: dict[object, str] = {text: text for text in ahead}
            for run, label in labels.items():
                keyed[label, _milestone(runs[run])] = lines[label]
            _print_new(keyed, printed)
        if over:
            return
        ends = all(progress.is_ending for progress in runs.values())
        if ends and not experiment.spec.kind.has_candidates:  # a search may start further runs
            on_end()
        time.sleep(ENDING_REFRESH_SECONDS if ends else REFRESH_SECONDS)


def _ahead(data_dir: DataDir, experiment: Experiment) -> list[str]:
    """A line on what a queued experiment waits for, and what to do; nothing if it can start."""
    own_id, order = experiment.experiment_id, queue_order.read_order(data_dir)
    option = data_dir.option
    if order.paused:
        return [f"The queue is paused: `breakeven queue continue{option}` ends the pause."]
    if own_id in order.held:
        return [
            f"The experiment is held: `breakeven queue release {own_id}{option}` ends the hold."
        ]
    running, queue = list(queue_order.at_work(data_dir)), queue_order.startable(data_dir)
    others = plan_starts(data_dir, queue, running).waits.get(own_id, ())
    if not others:
        return []
    first = find_experiment(data_dir, others[0])
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    named = f"{first.experiment_id} ({printable(first.spec.name)}){more}"
    end = f"`breakeven queue cancel {first.experiment_id}{option}` ends it"
    if any(other.experiment_id == first.experiment_id for other in running):
        return [f"Waits for {named}, running in the same data folder: {end}."]
    return [
        f"Waits for {named}, queued earlier in the same data folder: {end}, "
        f"`breakeven queue next {own_id}{option}` starts this experiment first."
    ]


def _redraw(lines: Sequence[str], drawn: int) -> int:
    """Draws lines in place of the last ones, which took `drawn` rows; returns their own rows."""
    up = f"\x1b[{drawn}A\x1b[J" if drawn else ""
    sys.stdout.write(up + "".join(f"{line.rstrip()}\n" for line in lines))
    sys.stdout.flush()
    columns = get_terminal_size().columns
    return sum(max(1, math.ceil(len(line.rstrip()) / columns)) for line in lines)


def _print_new(lines: Mapping[object, str], printed: set[object]) -> None:
    """Prints the lines whose keys are not among the printed ones, and adds these."""
    for key, line in lines.items():
        if key not in printed:
            sys.stdout.write(f"{line.rstrip()}\n")
            printed.add(key)
    sys.stdout.flush()


def _milestone(run: RunProgress) -> tuple[object, ...]:
    """What a log shows of a run: a line the first time that this has a value, so that a run of an
    hour leaves as many lines as one of a minute. Turns, steps and losses change all the time."""
    in_turns = run.state is RunState.RUNNING and run.phase in PHASES_OF_TURNS
    phase = "" if in_turns or run.state is not RunState.RUNNING else run.phase
    if run.spec.kind.makes_trials:  # each is a line
        share = run.steps_done
    elif run.num_steps:
        share = PRINTED_PARTS * run.steps_done // run.num_steps
    else:
        share = run.steps_done.bit_length()
    return run.state, phase, share, bool(run.waits), run.error, run.stopped


def _line(label: str, run: RunProgress) -> str:
    filled = round(BAR_WIDTH * run.steps_done / run.num_steps) if run.num_steps else 0
    bar = "#" * filled + "." * (BAR_WIDTH - filled)
    unit = run.spec.kind.unit + ("" if run.steps_done == 1 else "s")
    of_all = f"/{run.num_steps}" if run.num_steps else f" {unit}"
    parts = [f"{label} [{bar}] {run.steps_done:>4}{of_all}", f"{_doing(run):<12}"]
    if run.loss is not None:
        parts.append(f"loss {run.loss:.4f}")
    if run.step_seconds is not None:
        parts.append(f"{run.step_seconds * 1e3:.1f} ms/step")
    if run.held_out is not None:
        name, value = run.held_out
        parts.append(
            f"accuracy {100 * value:.1f} %" if name == "accuracy" else f"held-out {value:.4f}"
        )
    if run.trial:
        parts.append(printable(run.trial, MAX_ERROR_CHARACTERS))
    if reason := run.waits or run.error or run.stopped:
        short = textwrap.shorten(reason, MAX_ERROR_CHARACTERS, placeholder=" ...")
        parts.append(printable(short))
    return "  ".join(parts)


def _doing(run: RunProgress) -> str:
    if run.state is not RunState.RUNNING:
        return state_words(run.state)
    if run.compiling_since is not None:
        going = max(0.0, time.time() - run.compiling_since)
        return f"compiling {duration(run.compiled_seconds + going)}"
    return printable(run.phase, limit=16) or "starting"


def run_through(data_dir: DataDir, spec: ExperimentSpec, storage: "Storage") -> Experiment:
    """Checks and submits an experiment, and waits for its end. Returns it, or the experiment that
    repeats it run by run if its runs could not be alive at once. Raises `InvalidSpec`, or
    `Refused` if a check that needs torch refuses it."""
    is_checked = check_at_once(spec, read_capabilities(data_dir))
    if not is_locked(data_dir.supervisor_lock):
        check_user_code(spec)
    experiment = find_experiment(data_dir, submit(data_dir, spec, is_checked=is_checked))
    while True:
        experiment = follow(data_dir, experiment, storage)
        _require_accepted(experiment)
        repeat = _fallback_of(data_dir, experiment)
        if repeat is None:
            return experiment
        why = _why_repeated(experiment).partition("; ")[0]
        tell(f"{why[:1].upper()}{why[1:]}; the runs are repeated one after another.")
        experiment = repeat


def follow(data_dir: DataDir, experiment: Experiment, storage: "Storage") -> Experiment:
    """Runs a queued experiment and waits for its end; meanwhile `storage` starts. Returns the
    experiment with the runs that it added."""
    ensure_supervisor(data_dir)
    tell(
        f"experiment {experiment.experiment_id} on {experiment.spec.place}, "
        f"{experiment.spec.kind.length_words(experiment.spec)}"
    )
    return _watch(data_dir, experiment, storage)


def _watch(data_dir: DataDir, experiment: Experiment, storage: "Storage") -> Experiment:
    """Waits for all runs, also for controls that the experiment adds after the others."""
    while True:
        with _interrupt_cancels(data_dir, experiment.experiment_id):
            watch(data_dir, experiment, storage.start)
        if experiment.spec.kind.has_candidates:
            _await_confirmation(data_dir, experiment)
        grown = find_experiment(data_dir, experiment.experiment_id)
        if len(grown.runs) == len(experiment.runs) or experiment.spec.kind.has_candidates:
            return grown
        known = {run.run_id for run in experiment.runs}
        labels = ", ".join(
            run.run_id.partition(".")[2] for run in grown.runs if run.run_id not in known
        )
        tell(
            f"Further controls ({labels}): the losses of a backend are too far from those of "
            "equal trainings to match."
        )
        experiment = grown


def _await_confirmation(data_dir: DataDir, search: Experiment) -> None:
    """Waits until the supervisor has queued the training that confirms a search, or found that none
    is needed. A supervisor that died will do neither."""
    baseline = search.runs[0]
    while (
        not baseline.state.ended_early
        and baseline.unconfirmed_file.exists()
        and is_locked(data_dir.supervisor_lock)
    ):
        time.sleep(ENDING_REFRESH_SECONDS)


class Storage:
    """A process of `storage/`, which the runner may not import. It may start before its command,
    because importing its packages takes a second."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._missing = missing_words("duckdb")
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts the process unless it is running; the process then waits for its command."""
        if self._process is None and self._missing is None:
            # In a session of its own, because Ctrl-C stops the experiment but not its table.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "breakeven.storage", FROM_INPUT],
                stdin=subprocess.PIPE,
                text=True,
                cwd=PROJECT_ROOT,
                start_new_session=True,
            )

    def run(self, command: str, arguments: Sequence[str]) -> int:
        """Runs the command; returns its exit status."""
        self.start()
        if self._process is None:
            typed = [command, *(word for word in arguments if word != JUDGED)]
            tell(
                f"The runs are in {self._data_dir.runs}. The comparison {self._missing}, or copy "
                "the runs to `runs/` of a data folder on a machine with duckdb and run "
                f"`breakeven {shlex.join(typed)} --data-folder FOLDER`."
            )
            return BAD_INPUT
        words = [command, f"--data-folder={self._data_dir.path}", *arguments]
        process, self._process = self._process, None
        process.communicate(json.dumps(words))
        return process.returncode


def _require_accepted(experiment: Experiment) -> None:
    run = experiment.runs[0]
    for event in each_event(run.events_file) if run.is_unchecked else ():
        if event["kind"] == "error" and event.get("error") == Refused.__name__:
            raise Refused(printable(str(event.get("message"))))


def _fallback_of(data_dir: DataDir, experiment: Experiment) -> Experiment | None:
    if not _why_repeated(experiment):
        return None  # reading all folders takes long
    return next(
        (
            other
            for other in experiments(data_dir)
            if other.spec.fallback_of == experiment.experiment_id
        ),
        None,
    )


def _why_repeated(experiment: Experiment) -> str:
    """The reason with which the runs ended that another experiment repeats; else empty."""
    reasons = (run.status.reason or "" for run in experiment.runs)
    return next((reason for reason in reasons if reason.endswith(REPEATS)), "")


@contextmanager
def _interrupt_cancels(data_dir: DataDir, experiment_id: str) -> Iterator[None]:
    """Ctrl-C stops the experiment, with the runs that a search added; the command still waits for
    its end."""

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        cancel(find_experiment(data_dir, experiment_id))

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
