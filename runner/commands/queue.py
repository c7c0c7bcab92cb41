"""`breakeven queue`: adds experiments, starts and cancels them, and changes their order."""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from breakeven.runner.arguments.filters import (
    FACETS,
    Filter,
    add_facets,
    filter_arguments,
    read_facets,
)
from breakeven.runner.arguments.options import add_spec_options
from breakeven.runner.checks.environments import check_environments
from breakeven.runner.checks.refused_experiments import check_at_once
from breakeven.runner.commands.cluster import (
    add_cluster_options,
    join_until_stopped,
    supervise_cluster,
)
from breakeven.runner.commands.entry import Add, actions_of, for_all, tell
from breakeven.runner.commands.start import (
    add_allow_code,
    allow_code_again,
    pass_on,
    read_work,
)
from breakeven.runner.commands.suites import add_suite, add_suite_options
from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments import queue_order
from breakeven.runner.experiments.queue import (
    cancel,
    ensure_supervisor,
    experiments,
    find_experiment,
    submit,
)
from breakeven.runner.extras import missing_words
from breakeven.runner.machine.capabilities import knows_devices, read_capabilities
from breakeven.runner.machine.occupancy import held_words, places_in_use, plan_starts, waiting_words
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import ACTIVE_EXPERIMENTS
from breakeven.runner.supervision.supervisor import supervise
from breakeven.runner.texts import printable


class Change(NamedTuple):
    """An action that changes the place of an experiment in the queue."""

    text: str
    act: Callable[[DataDir, str], object]
    may_start: bool = False
    """Whether an experiment may start, so that a supervisor must work."""


CHANGES = {
    "next": Change("start an experiment next", queue_order.move, may_start=True),
    "up": Change("move an experiment one place up", partial(queue_order.move, by=-1)),
    "down": Change("move an experiment one place down", partial(queue_order.move, by=1)),
    "hold": Change("do not start an experiment", queue_order.hold),
    "release": Change("end the hold of an experiment", queue_order.release, may_start=True),
    "duplicate": Change(
        "queue an experiment once more, in any state",
        lambda data_dir, key: queue_order.duplicate(data_dir, find_experiment(data_dir, key)),
    ),
}
EXPERIMENT = "id of an experiment, as in `list`"


def add_queue_command(add: Add) -> None:
    """Adds `queue` with its actions."""
    queue = add("queue", print_queue)
    queue.epilog = "Without an action, `breakeven queue` lists the waiting experiments."
    action = actions_of(queue, "queue", required=False)
    action("list", print_queue, "list the waiting experiments in order")
    add_spec_options(action("add", _add, "add an experiment and print its id"))
    text = "add an experiment for each model of a benchmark suite"
    add_suite_options(action("suite", add_suite, text, "SUITE"))
    start = action("start", _start, "run the queue until it is empty")
    add_cluster_options(start)
    text = "run one experiment after the other, on any devices"
    start.add_argument("--one-at-a-time", action="store_true", help=text)
    add_allow_code(start)
    text = "stop experiments by id, or by a filter as in `list`"
    _add_cancel_options(action("cancel", cancel_many, text, "[EXPERIMENT...]"))
    for name, change in CHANGES.items():
        command = action(name, partial(_change, change), change.text, "EXPERIMENT")
        command.add_argument("experiment", metavar="EXPERIMENT", help=EXPERIMENT)
    action("pause", partial(_pause, True), "start no experiment")
    action("continue", partial(_pause, False), "end the pause")


def _add(data_dir: DataDir, options: argparse.Namespace) -> int:
    spec = read_work(data_dir, options)
    is_checked = check_at_once(spec, read_capabilities(data_dir))
    check_environments(spec, data_dir)
    tell(submit(data_dir, spec, is_checked=is_checked))
    return 0


def _start(data_dir: DataDir, options: argparse.Namespace) -> int:
    if options.join:
        pass_on(options.allow_code)
        return join_until_stopped(data_dir)
    queue = experiments(data_dir, data_dir.open_experiments())
    allow_code_again(data_dir, options, [experiment.spec for experiment in queue])
    if options.ray is not None or options.slurm is not None:
        is_alone = supervise_cluster(data_dir, options)
    else:
        is_alone = supervise(data_dir, exclusive=options.one_at_a_time)
    if not is_alone:
        tell(f"another supervisor is running for {data_dir.path}")
    return 0


def _change(change: Change, data_dir: DataDir, options: argparse.Namespace) -> int:
    change.act(data_dir, options.experiment)
    if change.may_start:
        ensure_supervisor(data_dir)
    return print_queue(data_dir, options)


def _pause(paused: bool, data_dir: DataDir, options: argparse.Namespace) -> int:
    queue_order.pause(data_dir, paused=paused)
    if not paused:
        ensure_supervisor(data_dir)
    return print_queue(data_dir, options)


def print_queue(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Prints the experiments that run and that wait, in order."""
    order = queue_order.read_order(data_dir)
    at_work = list(queue_order.at_work(data_dir))
    running = {experiment.experiment_id for experiment in at_work}
    waiting = [
        experiment
        for experiment in queue_order.waiting(data_dir)
        if experiment.experiment_id not in running
    ]
    if order.paused:
        tell(f"the queue is paused; `breakeven queue continue{data_dir.option}` ends the pause")
    held = places_in_use(at_work)
    for experiment in at_work:
        place = held.get(experiment.experiment_id)
        where = f"  ({held_words(place)})" if place else ""
        tell(f"running: {experiment.experiment_id}  {printable(experiment.spec.name)}{where}")
    if not waiting:
        tell("no experiment waits")
    free = [experiment for experiment in waiting if experiment.experiment_id not in order.held]
    waits, known = plan_starts(data_dir, free, at_work).waits, knows_devices(data_dir)
    for number, experiment in enumerate(waiting, start=1):
        why = "held" if experiment.experiment_id in order.held else ""
        if experiment.experiment_id in waits and not order.paused and at_work:
            others = ", ".join(waits[experiment.experiment_id])
            why = waiting_words(experiment, others, devices_known=known)
        shown = f"  ({why})" if why else ""
        tell(f"{number}. {experiment.experiment_id}  {printable(experiment.spec.name)}{shown}")
    return 0


def _add_cancel_options(command: argparse.ArgumentParser) -> None:
    """Adds the options that select experiments."""
    command.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=EXPERIMENT)
    text = "all active experiments with these words, as in `list WORDS`"
    command.add_argument("--text", default="", metavar="WORDS", help=text)
    add_facets(command)


def cancel_many(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Stops the experiments with these ids and the active ones that match the filter. Returns 2 if
    one cannot be stopped; raises `RunnerError`."""
    wanted = Filter(text=options.text, facets=read_facets(options))
    if not options.experiments and wanted == Filter():
        filters = ", ".join(f"--{name}" for name in ("text", *FACETS))
        raise RunnerError(f"cancel needs an id or a filter: {filters}")
    matching = [] if wanted == Filter() else _active(data_dir, wanted)

    def stop(experiment_id: str) -> str:
        experiment = find_experiment(data_dir, experiment_id)
        cancel(experiment)
        return f"stops soon ({printable(experiment.spec.name)})"

    ids = [*dict.fromkeys([*options.experiments, *matching])]
    if not ids:
        tell("no active experiment matches")
    return for_all(ids, stop)


def _active(data_dir: DataDir, wanted: Filter) -> list[str]:
    """Ids of active experiments in this data folder that match a filter."""
    if missing := missing_words("duckdb"):
        raise RunnerError(f"a filter {missing}, or give ids")
    command = [
        sys.executable,
        "-m",
        "breakeven.storage",
        "list",
        "--json",
        f"--data-folder={data_dir.path}",
        *filter_arguments(wanted),
    ]
    done = subprocess.run(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RunnerError("nothing was stopped, because the experiments could not be listed")
    return [
        row["experiment_id"]
        for row in json.loads(done.stdout)
        if row["state"] in ACTIVE_EXPERIMENTS and row["origin"] == "local"
    ]
