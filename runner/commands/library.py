"""Commands on experiments that are there: label, archive, delete, restore,
empty-trash, free, retain."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from breakeven.runner.errors import RunnerError
from breakeven.runner.files import parse_size
from breakeven.runner.folders import library
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.states import Labels
from breakeven.runner.texts import printable

Add = Callable[[str, Callable[..., int], str], argparse.ArgumentParser]
BAD_INPUT = 2
OVER_BUDGET = 1


def add_library_commands(add: Add) -> None:
    """Adds the commands, each for any number of experiments."""
    label = add("label", _label, "give experiments a name, tags and notes; prints what they have")
    label.add_argument(
        "--name", help="what it is called from now on; '' for what it was launched as"
    )
    for option, text in {"--tag": "a tag more", "--untag": "a tag less"}.items():
        label.add_argument(option, action="append", default=[], metavar="TAG",
                           help=f"{text}; can be given several times")  # fmt: skip
    label.add_argument("--notes", help="Markdown; replaces the notes that are there")
    archive = add("archive", _archive, "put experiments away: lists leave them out")
    archive.add_argument("--undo", action="store_true", help="take them out again")
    days = library.TRASH_DAYS
    delete = add("delete", _delete, f"move experiments to the trash, for {days} days at least")
    restore = add("restore", _restore, "bring deleted experiments back; of none, list the trash")
    free = add("free", _free, "remove the checkpoints of experiments for good; results stay")
    free.add_argument("--artifacts", action="store_true",
                      help="all other files that runs wrote beside their journal, too")  # fmt: skip
    for command in (label, archive, delete, restore, free):
        many = "*" if command is restore else "+"
        command.add_argument(
            "experiments", nargs=many, metavar="EXPERIMENT", help="its id, as `list` has it"
        )
        command.usage = f"{command.usage} EXPERIMENT..."
    retain = add("retain", _retain, "keep the data folder within a budget of disk space: removes "
                 "what was deleted, then checkpoints, then artifacts; results stay")  # fmt: skip
    retain.add_argument("--budget", type=_bytes, required=True, metavar="SIZE",
                        help="as 500MB, 20GB or 1TB")  # fmt: skip
    retain.add_argument("--dry-run", action="store_true", help="say what would go")
    add("empty-trash", _empty_trash, "remove for good what was deleted")


def _label(data_dir: DataDir, options: argparse.Namespace) -> int:
    def change(before: Labels) -> Labels:
        after = before.tagged(options.tag, options.untag)
        if options.name is not None:
            after = replace(after, name=options.name or None)
        return after if options.notes is None else replace(after, notes=options.notes)

    def one(experiment_id: str) -> str:
        labels = library.change_labels(data_dir, experiment_id, change)
        tags = " ".join(f"#{printable(tag)}" for tag in labels.tags)
        return "  ".join(filter(None, [printable(labels.name or ""), tags])) or "no name, no tags"

    return each(options.experiments, one)


def _archive(data_dir: DataDir, options: argparse.Namespace) -> int:
    def one(experiment_id: str) -> str:
        put_away = partial(replace, archived=not options.undo)
        library.change_labels(data_dir, experiment_id, put_away)
        return "in lists again" if options.undo else "archived; `archive --undo` takes it out again"

    return each(options.experiments, one)


def _delete(data_dir: DataDir, options: argparse.Namespace) -> int:
    def one(experiment_id: str) -> str:
        library.delete(data_dir, experiment_id)
        return f"in the trash; `breakeven restore {experiment_id}` brings it back"

    return each(options.experiments, one)


def _restore(data_dir: DataDir, options: argparse.Namespace) -> int:
    def one(experiment_id: str) -> str:
        library.restore(data_dir, experiment_id)
        return "restored"

    if options.experiments:
        return each(options.experiments, one)
    for found in library.trash(data_dir):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.deleted))
        _print(f"{printable(found.experiment_id)}  deleted {when}  {printable(found.name)}")
    return 0


def _free(data_dir: DataDir, options: argparse.Namespace) -> int:
    def one(experiment_id: str) -> str:
        freed = library.free(data_dir, experiment_id, artifacts=options.artifacts)
        return f"{freed / 2**20:,.1f} MiB freed"

    return each(options.experiments, one)


def _empty_trash(data_dir: DataDir, options: argparse.Namespace) -> int:
    _print(f"{library.empty_trash(data_dir)} experiments removed for good")
    return 0


def _retain(data_dir: DataDir, options: argparse.Namespace) -> int:
    found = library.plan_removals(data_dir, options.budget)
    for removal in found.removals:
        if not options.dry_run:
            removal.remove()
        would = "would go" if options.dry_run else "gone"
        _print(f"{printable(removal.what)}: {removal.num_bytes / 1e6:,.1f} MB {would}")
    _print(f"{found.bytes_before / 1e9:,.2f} GB before, {found.bytes_after / 1e9:,.2f} GB after")
    if not found.is_enough:
        _print("What is left are results, runs that go on or could, and the index: delete "
               "experiments, or allow more.")  # fmt: skip
    return 0 if found.is_enough else OVER_BUDGET


def _bytes(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def each(experiments: Sequence[str], act: Callable[[str], str]) -> int:
    """Acts on each, whatever becomes of the others; 2 if one was refused."""
    status = 0
    for experiment_id in experiments:
        try:
            _print(f"{experiment_id}: {act(experiment_id)}")
        except RunnerError as error:
            sys.stderr.write(f"{printable(experiment_id)}: {error}\n")
            status = BAD_INPUT
    return status


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
