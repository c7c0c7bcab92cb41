"""The command `queue`: lists and changes the queue."""

import argparse
import sys
from collections.abc import Callable

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders import queue_order
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import ensure_supervisor, find_experiment
from breakeven.runner.machine.capabilities import knows_devices
from breakeven.runner.machine.occupancy import held_by, held_words, outlook, waiting_words
from breakeven.runner.texts import printable

Act = Callable[[DataDir, str], object]
ONE: dict[str, tuple[str, Act]] = {
    "next": ("start the experiment next", queue_order.move),
    "up": ("move it one place up", lambda data_dir, key: queue_order.move(data_dir, key, by=-1)),
    "down": ("move it one place down", lambda data_dir, key: queue_order.move(data_dir, key, by=1)),
    "hold": ("do not start it", queue_order.hold),
    "release": ("end the hold", queue_order.release),
    "duplicate": (
        "queue it once more, in any state",
        lambda data_dir, key: queue_order.duplicate(data_dir, find_experiment(data_dir, key)),
    ),
}
"""Actions on one experiment."""
ALL: dict[str, tuple[str, Callable[[DataDir], object]]] = {
    "list": ("list the waiting experiments in order", lambda data_dir: None),
    "pause": ("start no experiment", queue_order.pause),
    "continue": ("end the pause", lambda data_dir: queue_order.pause(data_dir, paused=False)),
}
"""Actions on the whole queue."""
STARTING = ("continue", "release", "next")
"""Actions after which an experiment may start, so that a supervisor must work."""


def add_queue_options(parser: argparse.ArgumentParser) -> None:
    """Adds the action and its experiment."""
    texts = {name: text for name, (text, _) in {**ALL, **ONE}.items()}
    held_words = "; ".join(f"{name}: {text}" for name, text in texts.items())
    parser.add_argument("action", nargs="?", choices=list(texts), default="list", help=held_words)
    parser.add_argument("experiment", nargs="?", help="id of the experiment, as in `queue list`")
    parser.usage = "breakeven queue [options] [ACTION [EXPERIMENT]]"


def manage_queue(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Does the action, and prints the queue."""
    if options.action in ONE:
        if options.experiment is None:
            raise RunnerError(f"queue {options.action} needs the id of an experiment")
        ONE[options.action][1](data_dir, options.experiment)
    else:
        ALL[options.action][1](data_dir)
    if options.action in STARTING:
        ensure_supervisor(data_dir)
    _print_queue(data_dir)
    return 0


def _print_queue(data_dir: DataDir) -> None:
    order = queue_order.read_order(data_dir)
    at_work = list(queue_order.at_work(data_dir))
    running = {one.experiment_id for one in at_work}
    found = [one for one in queue_order.waiting(data_dir) if one.experiment_id not in running]
    if order.paused:
        sys.stdout.write("the queue is paused; `breakeven queue continue` ends the pause\n")
    held = held_by(at_work)
    for one in at_work:
        place = held.get(one.experiment_id)
        where = f"  ({held_words(place)})" if place else ""
        sys.stdout.write(f"running: {one.experiment_id}  {printable(one.spec.name)}{where}\n")
    if not found:
        sys.stdout.write("no experiment waits\n")
    free = [one for one in found if one.experiment_id not in order.held]
    waits, known = outlook(data_dir, free, at_work).waits, knows_devices(data_dir)
    for number, one in enumerate(found, start=1):
        why = "held" if one.experiment_id in order.held else ""
        if one.experiment_id in waits and not order.paused and at_work:
            others = ", ".join(waits[one.experiment_id])
            why = waiting_words(one, others, devices_known=known)
        shown = f"  ({why})" if why else ""
        sys.stdout.write(f"{number}. {one.experiment_id}  {printable(one.spec.name)}{shown}\n")
