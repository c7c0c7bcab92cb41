"""Commands on experiments that are there: label, archive, delete, restore, empty-trash, free."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from runner.errors import RunnerError
from runner.folders import library
from runner.folders.labels import Labels
from runner.folders.run_dir import DataDir
from runner.texts import printable

Add = Callable[[str, Callable[..., int], str], argparse.ArgumentParser]
BAD_INPUT = 2


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

    return _each(options.experiments, one)


def _archive(data_dir: DataDir, options: argparse.Namespace) -> int:
    def one(experiment_id: str) -> str:
        put_away = partial(replace, archived=not options.undo)
        library.change_labels(data_dir, experiment_id, put_away)
        return "in lists again" if options.undo else "archived; `archive --undo` takes it out again"

    return _each(options.experiments, one)


def _delete(data_dir: DataDir, options: argparse.Namespace) -> int:
    def one(experiment_id: str) -> str:
        library.delete(data_dir, experiment_id)
        return f"in the trash; `python -m runner restore {experiment_id}` brings it back"

    return _each(options.experiments, one)


def _restore(data_dir: DataDir, options: argparse.Namespace) -> int:
    def one(experiment_id: str) -> str:
        library.restore(data_dir, experiment_id)
        return "restored"

    if options.experiments:
        return _each(options.experiments, one)
    for found in library.trash(data_dir):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.deleted))
        _print(f"{printable(found.experiment_id)}  deleted {when}  {printable(found.name)}")
    return 0


def _free(data_dir: DataDir, options: argparse.Namespace) -> int:
    def one(experiment_id: str) -> str:
        freed = library.free(data_dir, experiment_id, artifacts=options.artifacts)
        return f"{freed / 2**20:,.1f} MiB freed"

    return _each(options.experiments, one)


def _empty_trash(data_dir: DataDir, options: argparse.Namespace) -> int:
    _print(f"{library.empty_trash(data_dir)} experiments removed for good")
    return 0


def _each(experiments: Sequence[str], act: Callable[[str], str]) -> int:
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
