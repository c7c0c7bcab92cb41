"""`breakeven data`: labels, deletes, restores, cleans and imports experiments."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

from breakeven.runner.arguments.options import checked
from breakeven.runner.commands.entry import IMPORT, IMPORT_TEXT, Add, actions_of, for_all, tell
from breakeven.runner.disk_space import parse_size
from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments import freeing_space, trash
from breakeven.runner.experiments.labels import change_labels
from breakeven.runner.machine import uv_environments
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Labels
from breakeven.runner.texts import printable

OVER_BUDGET = 1
SEVERAL = "EXPERIMENT..."


def add_data_command(add: Add) -> None:
    """Adds `data` with its actions."""
    action = actions_of(add("data"), "data", required=True)
    text = "set name, tags and notes of experiments, or archive them; print the result"
    label = action("label", _label, text, SEVERAL)
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
    text = f"move experiments to the trash, where they stay for at least {trash.TRASH_DAYS} days"
    delete = action("delete", _delete, text, SEVERAL)
    text = "restore deleted experiments; without an id, list the trash"
    restore = action("restore", _restore, text, f"[{SEVERAL}]")
    text = "free disk space permanently: remove checkpoints, trash or what exceeds a budget; "
    text += "results stay"
    clean = action("clean", _clean, text, f"[{SEVERAL}]")
    _add_clean_options(clean)
    for command in (label, delete, restore, clean):
        command.add_argument(
            "experiments",
            nargs="+" if command in (label, delete) else "*",
            metavar="EXPERIMENT",
            help="id of an experiment, as in `list`",
        )
    bring = action(IMPORT[1], text=IMPORT_TEXT, operands="FILE...")
    bring.add_argument("files", nargs="+", metavar="FILE")


def _add_clean_options(clean: argparse.ArgumentParser) -> None:
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


def _label(data_dir: DataDir, options: argparse.Namespace) -> int:
    def change(before: Labels) -> Labels:
        after = before.tagged(options.tag, options.untag)
        if options.name is not None:
            after = replace(after, name=options.name or None)
        if options.archive is not None:
            after = replace(after, archived=options.archive)
        return after if options.notes is None else replace(after, notes=options.notes)

    def relabel(experiment_id: str) -> str:
        labels = change_labels(data_dir, experiment_id, change)
        tags = " ".join(f"#{printable(tag)}" for tag in labels.tags)
        parts = [printable(labels.name or ""), tags, "archived" if labels.archived else ""]
        return "  ".join(filter(None, parts)) or "no name, no tags"

    return for_all(options.experiments, relabel)


def _delete(data_dir: DataDir, options: argparse.Namespace) -> int:
    def delete(experiment_id: str) -> str:
        trash.delete(data_dir, experiment_id)
        command = f"breakeven data restore {experiment_id}{data_dir.option}"
        return f"in the trash; `{command}` restores it"

    return for_all(options.experiments, delete)


def _restore(data_dir: DataDir, options: argparse.Namespace) -> int:
    def restore(experiment_id: str) -> str:
        trash.restore(data_dir, experiment_id)
        return "restored"

    for deleted in () if options.experiments else trash.deleted_experiments(data_dir):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(deleted.deleted_at))
        tell(f"{printable(deleted.experiment_id)}  deleted {when}  {printable(deleted.name)}")
    return for_all(options.experiments, restore)


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
    known = {
        environment.name: environment for environment in uv_environments.uv_environments(data_dir)
    }

    def remove(name: str) -> str:
        if name not in known:
            raise RunnerError(f"no such environment in {data_dir.environments}")
        freed = freeing_space.size_of(known[name].folder)
        uv_environments.remove(data_dir, known[name])
        return f"{freed / 1e6:,.1f} MB freed"

    for environment in () if names else known.values():
        requirements = printable(" ".join(environment.requirements.split()))
        size = freeing_space.size_of(environment.folder)
        tell(f"{environment.name}: {size / 1e6:,.1f} MB  {requirements}")
    return for_all(names, remove)


def _free(data_dir: DataDir, options: argparse.Namespace) -> int:
    def free(experiment_id: str) -> str:
        freed = freeing_space.free(data_dir, experiment_id, artifacts=options.artifacts)
        return f"{freed / 2**20:,.1f} MiB freed"

    return for_all(options.experiments, free)


def _shrink(data_dir: DataDir, options: argparse.Namespace) -> int:
    plan = freeing_space.plan_removals(data_dir, options.budget)
    for removal in plan.removals:
        if not options.dry_run:
            removal.remove()
        done = "would be removed" if options.dry_run else "removed"
        tell(f"{printable(removal.what)}: {removal.num_bytes / 1e6:,.1f} MB {done}")
    tell(f"{plan.bytes_before / 1e9:,.2f} GB before, {plan.bytes_after / 1e9:,.2f} GB after")
    if not plan.is_enough:
        tell(
            "Only results, active and resumable runs, and the index are left: delete "
            "experiments, or raise the budget."
        )
    return 0 if plan.is_enough else OVER_BUDGET
