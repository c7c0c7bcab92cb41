"""Commands on existing experiments and the queue: list --runs, label, delete, clean, cancel and
queue."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from breakeven.runner.arguments.filters import (
    FACETS,
    Filter,
    add_facets,
    filter_arguments,
    read_facets,
)
from breakeven.runner.arguments.options import checked
from breakeven.runner.commands.entry import BAD_INPUT, STORED, Add, tell
from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments import disk_space, queue_order, trash
from breakeven.runner.experiments.labels import change_labels
from breakeven.runner.experiments.queue import (
    cancel,
    damages,
    ensure_supervisor,
    find_experiment,
    listed,
)
from breakeven.runner.files import parse_size
from breakeven.runner.machine import environments
from breakeven.runner.machine.capabilities import knows_devices
from breakeven.runner.machine.occupancy import held_words, outlook, places_in_use, waiting_words
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Labels
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import ACTIVE_EXPERIMENTS
from breakeven.runner.texts import printable

OVER_BUDGET = 1


def add_library_commands(add: Add) -> None:
    """Adds the commands, each for any number of experiments."""
    text = "set name, tags and notes of experiments, or archive them; prints the result"
    label = add("label", _label, text)
    label.add_argument("--name", help="new name; '' restores the original name")
    for option, text in {"--tag": "add a tag", "--untag": "remove a tag"}.items():
        label.add_argument(
            option,
            action="append",
            default=[],
            metavar="TAG",
            help=f"{text}; can be given several times",
        )
    label.add_argument("--notes", help="Markdown; replaces existing notes")
    text = "hide experiments in lists, or show them again"
    label.add_argument("--archive", action=argparse.BooleanOptionalAction, help=text)
    text = f"move experiments to the trash for at least {trash.TRASH_DAYS} days, or restore them"
    delete = add("delete", _delete, text)
    text = "restore deleted experiments; without an id, list the trash"
    delete.add_argument("--undo", action="store_true", help=text)
    text = (
        "free disk space: remove checkpoints of experiments, the trash, or data beyond a budget "
        "permanently; results stay"
    )
    clean = add("clean", _clean, text)
    text = "with ids: also remove all other artifacts, such as predictions and traces"
    clean.add_argument("--artifacts", action="store_true", help=text)
    clean.add_argument("--trash", action="store_true", help="empty the trash")
    clean.add_argument(
        "--budget",
        type=checked(parse_size),
        metavar="SIZE",
        help="shrink the data folder to 500MB, 20GB or 1TB: remove deleted "
        "experiments, then checkpoints, then artifacts",
    )
    clean.add_argument(
        "--environments",
        nargs="*",
        metavar="NAME",
        help="remove environments that `compare --environment` made; without a "
        "name, list them with the space that they take",
    )
    text = "with --budget: only print what would be removed"
    clean.add_argument("--dry-run", action="store_true", help=text)
    for command in (label, delete, clean):
        command.add_argument(
            "experiments",
            nargs="+" if command is label else "*",
            metavar="EXPERIMENT",
            help="id of an experiment, as in `list`",
        )
        command.usage = f"{command.usage} EXPERIMENT..."
    text = "stop experiments by id, or by a filter as in `list`"
    add_cancel_options(add("cancel", cancel_many, text))
    add_queue_options(add("queue", manage_queue, "list, reorder, hold and pause the queue"))
    listing = add("list", print_status, STORED["list"])
    text = "list the states of all runs; reads no database"
    listing.add_argument("--runs", action="store_true", required=True, help=text)
    add_runs_options(listing)


def _label(data_dir: DataDir, options: argparse.Namespace) -> int:
    def change(before: Labels) -> Labels:
        after = before.tagged(options.tag, options.untag)
        if options.name is not None:
            after = replace(after, name=options.name or None)
        if options.archive is not None:
            after = replace(after, archived=options.archive)
        return after if options.notes is None else replace(after, notes=options.notes)

    def one(experiment_id: str) -> str:
        labels = change_labels(data_dir, experiment_id, change)
        tags = " ".join(f"#{printable(tag)}" for tag in labels.tags)
        parts = [printable(labels.name or ""), tags, "archived" if labels.archived else ""]
        return "  ".join(filter(None, parts)) or "no name, no tags"

    return each(options.experiments, one)


def _delete(data_dir: DataDir, options: argparse.Namespace) -> int:
    def one(experiment_id: str) -> str:
        trash.delete(data_dir, experiment_id)
        return (
            f"in the trash; `breakeven delete --undo {experiment_id}{data_dir.option}` restores it"
        )

    if options.undo:
        return _restore(data_dir, options.experiments)
    if not options.experiments:
        raise RunnerError("delete needs the id of an experiment: `breakeven list` prints the ids")
    return each(options.experiments, one)


def _restore(data_dir: DataDir, ids: Sequence[str]) -> int:
    def one(experiment_id: str) -> str:
        trash.restore(data_dir, experiment_id)
        return "restored"

    if ids:
        return each(ids, one)
    for found in trash.deleted_experiments(data_dir):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.deleted))
        tell(f"{printable(found.experiment_id)}  deleted {when}  {printable(found.name)}")
    return 0


def _clean(data_dir: DataDir, options: argparse.Namespace) -> int:
    chosen = [
        bool(options.experiments),
        options.trash,
        options.budget is not None,
        options.environments is not None,
    ]
    if sum(chosen) != 1:
        raise RunnerError(
            "clean takes one of these: ids of experiments, --trash, --budget SIZE, --environments"
        )
    if options.environments is not None:
        return _clean_environments(data_dir, options.environments)
    if options.trash:
        tell(f"{trash.empty_trash(data_dir)} experiments removed permanently")
        return 0
    return _shrink(data_dir, options) if options.budget is not None else _free(data_dir, options)


def _clean_environments(data_dir: DataDir, names: Sequence[str]) -> int:
    known = {one.name: one for one in environments.uv_environments(data_dir)}

    def one(name: str) -> str:
        if name not in known:
            raise RunnerError(f"no such environment in {data_dir.environments}")
        freed = disk_space.size_of(known[name].folder)
        environments.remove(data_dir, known[name])
        return f"{freed / 1e6:,.1f} MB freed"

    for found in known.values() if not names else ():
        requirements = printable(" ".join(found.requirements.split()))
        tell(f"{found.name}: {disk_space.size_of(found.folder) / 1e6:,.1f} MB  {requirements}")
    return each(names, one)


def _free(data_dir: DataDir, options: argparse.Namespace) -> int:
    def one(experiment_id: str) -> str:
        freed = disk_space.free(data_dir, experiment_id, artifacts=options.artifacts)
        return f"{freed / 2**20:,.1f} MiB freed"

    return each(options.experiments, one)


def _shrink(data_dir: DataDir, options: argparse.Namespace) -> int:
    found = disk_space.plan_removals(data_dir, options.budget)
    for removal in found.removals:
        if not options.dry_run:
            removal.remove()
        done = "would be removed" if options.dry_run else "removed"
        tell(f"{printable(removal.what)}: {removal.num_bytes / 1e6:,.1f} MB {done}")
    tell(f"{found.bytes_before / 1e9:,.2f} GB before, {found.bytes_after / 1e9:,.2f} GB after")
    if not found.is_enough:
        tell(
            "Only results, active and resumable runs, and the index are left: delete "
            "experiments, or raise the budget."
        )
    return 0 if found.is_enough else OVER_BUDGET


def each(experiments: Sequence[str], act: Callable[[str], str]) -> int:
    """Calls `act` for each experiment and prints errors; returns 2 if one call failed."""
    status = 0
    for experiment_id in experiments:
        try:
            tell(f"{experiment_id}: {act(experiment_id)}")
        except RunnerError as error:
            sys.stderr.write(f"{printable(experiment_id)}: {error}\n")
            status = BAD_INPUT
    return status


def add_cancel_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that select experiments."""
    text = "id of an experiment, as in `list`"
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=text)
    text = "all active experiments with these words, as in `list WORDS`"
    parser.add_argument("--text", default="", metavar="WORDS", help=text)
    add_facets(parser)
    parser.usage = f"{parser.usage} [EXPERIMENT...]"


def cancel_many(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Stops the experiments with these ids and the active ones that match the filter. Returns 2 if
    one cannot be stopped; raises `RunnerError`."""
    wanted = Filter(text=options.text, facets=read_facets(options))
    if not options.experiments and wanted == Filter():
        filters = ", ".join(f"--{name}" for name in ("text", *FACETS))
        raise RunnerError(f"cancel needs an id or a filter: {filters}")
    found = [] if wanted == Filter() else _found(data_dir, wanted)

    def one(experiment_id: str) -> str:
        experiment = find_experiment(data_dir, experiment_id)
        cancel(experiment)
        return f"stops soon ({printable(experiment.spec.name)})"

    names = [*dict.fromkeys([*options.experiments, *found])]
    if not names:
        tell("no active experiment matches")
    return each(names, one)


def _found(data_dir: DataDir, wanted: Filter) -> list[str]:
    """Ids of active experiments in this data folder that match a filter."""
    if find_spec("duckdb") is None:
        raise RunnerError("a filter needs duckdb, which is not installed here: give ids")
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
        one["experiment_id"]
        for one in json.loads(done.stdout)
        if one["state"] in ACTIVE_EXPERIMENTS and one["origin"] == "local"
    ]


SHOWN = 10
"""Unreadable folders that are printed; there may be very many."""


def add_runs_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--all", action="store_true", help=f"name all unreadable run folders, not only {SHOWN}"
    )


def print_status(data_dir: DataDir, options: argparse.Namespace) -> int:
    """Prints the state of every run, and the unreadable run folders."""
    for experiment in listed(data_dir):
        tell(f"{experiment.experiment_id}  {printable(experiment.spec.name)}")
        for label, run, damage in experiment.runs:
            tell(f"    {label:<20} {_run_line(run, damage)}")
    damaged = list(damages(data_dir))
    if damaged:
        tell(f"{len(damaged):,} run folders cannot be read:")
    for run_id, why in damaged[: None if options.all else SHOWN]:
        tell(f"    {printable(run_id)}: {_without_path(data_dir.runs / run_id, why)}")
    if len(damaged) > SHOWN and not options.all:
        tell(f"    and {len(damaged) - SHOWN:,} more; `list --runs --all` names all")
    return 0


def _run_line(run: RunDir | None, damage: str | None) -> str:
    """The state of a run in one line."""
    if run is None:
        return "missing: there is no folder of this run"
    if damage is not None:
        return f"unreadable: {_without_path(run.path, damage)}"
    found = run.status
    reason = f": {printable(found.reason)}" if found.reason else ""
    attempt = f" (attempt {run.attempt})" if run.attempt > 1 else ""
    return f"{found.state}{attempt}{reason}"


def _without_path(folder: Path, why: str) -> str:
    """The reason why a folder is unreadable, without its path."""
    return printable(why).removeprefix(printable(folder)).lstrip("/ ")


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
        tell(f"the queue is paused; `breakeven queue continue{data_dir.option}` ends the pause")
    held = places_in_use(at_work)
    for one in at_work:
        place = held.get(one.experiment_id)
        where = f"  ({held_words(place)})" if place else ""
        tell(f"running: {one.experiment_id}  {printable(one.spec.name)}{where}")
    if not found:
        tell("no experiment waits")
    free = [one for one in found if one.experiment_id not in order.held]
    waits, known = outlook(data_dir, free, at_work).waits, knows_devices(data_dir)
    for number, one in enumerate(found, start=1):
        why = "held" if one.experiment_id in order.held else ""
        if one.experiment_id in waits and not order.paused and at_work:
            others = ", ".join(waits[one.experiment_id])
            why = waiting_words(one, others, devices_known=known)
        shown = f"  ({why})" if why else ""
        tell(f"{number}. {one.experiment_id}  {printable(one.spec.name)}{shown}")
