"""The command line of the runner, for people without a browser and for machines.

Exit status of `compare`: 0 every run finished and every backend keeps parity; 1 a run did not
finish; 2 the input was wrong; 3 a backend breaks parity; 4 parity could not be shown. With
`--fail-if` (docs/ci-gate.md): 0 every run finished and no condition is met; 1 a run did not finish;
2 the input was wrong; 5 a condition is met. Of `replay`: 0 no number came out otherwise than
expected; 1 a run did not finish, or nothing could be judged; 2 the input was wrong; 6 one did.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from breakeven.runner.checks.experiment import check
from breakeven.runner.checks.user_code import CODE_VARIABLE, allowed_folders
from breakeven.runner.commands.audit import add_audit_options, show_audit
from breakeven.runner.commands.cancel import add_cancel_options, cancel_many
from breakeven.runner.commands.cluster import add_cluster_options, supervise_cluster
from breakeven.runner.commands.conditions import Condition, add_fail_if
from breakeven.runner.commands.doctor import add_doctor_options, examine_machine
from breakeven.runner.commands.filters import add_list_options, filter_arguments, read_filter
from breakeven.runner.commands.join import join_until_stopped
from breakeven.runner.commands.library import add_library_commands
from breakeven.runner.commands.options import add_spec_options, read_spec, renamed
from breakeven.runner.commands.progress import RunProgress
from breakeven.runner.commands.queue import add_queue_options, manage_queue
from breakeven.runner.commands.replay import read_replay
from breakeven.runner.commands.script import add_script_options, read_script, split_at_dashes
from breakeven.runner.commands.status import add_status_options, print_status
from breakeven.runner.commands.stored import STORED
from breakeven.runner.commands.suite import add_suite_options, read_cells
from breakeven.runner.commands.waiting import run_through, with_storage
from breakeven.runner.errors import NotWritable, RunnerError
from breakeven.runner.files import is_locked
from breakeven.runner.folders.data_dir import DEFAULT_TEXT, DataDir, default_data_folder
from breakeven.runner.folders.moved import moved_spec
from breakeven.runner.folders.queue import (
    ensure_supervisor,
    find_experiment,
    resume,
    submit,
)
from breakeven.runner.machine.capabilities import probe, read_capabilities
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.suites.matrix import submit_missing
from breakeven.runner.supervision.supervisor import LINGER_SECONDS, supervise

BAD_INPUT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    ours, theirs = split_at_dashes(sys.argv[1:] if arguments is None else arguments)
    ours, hints = renamed(ours)
    sys.stderr.writelines(f"{hint}\n" for hint in hints)
    options = parser().parse_args(ours)
    options.script_arguments = theirs
    try:
        status: int = options.execute(DataDir(options.data_folder), options)
        return status
    except RunnerError as error:
        sys.stderr.write(f"{error}\n")
        return BAD_INPUT
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stderr.write(f"{NotWritable(Path(options.data_folder), error)}\n")
        return BAD_INPUT


def _compare(data_dir: DataDir, options: argparse.Namespace) -> int:
    spec = _checked_spec(data_dir, options)
    _allow_code(data_dir, options)
    experiment = run_through(data_dir, spec)
    return judge(data_dir, experiment.experiment_id, options.fail_if)


def _script(data_dir: DataDir, options: argparse.Namespace) -> int:
    machine = read_capabilities(data_dir) or probe(data_dir)
    spec = read_script(options, machine)
    folder = Path(spec.script.folder or Path(spec.model.script or "").parent)
    options.allow_code = [*options.allow_code, folder, Path(spec.model.script or "").parent]
    _allow_code(data_dir, options)
    check(spec, machine)
    experiment = run_through(data_dir, spec)
    return judge(data_dir, experiment.experiment_id, options.fail_if)


def _replay(data_dir: DataDir, options: argparse.Namespace) -> int:
    spec = read_replay(data_dir, options.run)
    check(spec, read_capabilities(data_dir) or probe(data_dir))
    _allow_code(data_dir, options)
    experiment = run_through(data_dir, spec)
    return with_storage(data_dir, "show", [experiment.experiment_id])


def judge(data_dir: DataDir, experiment_id: str, fail_if: Sequence[Condition]) -> int:
    """Prints the comparison of an experiment's runs; its exit status."""
    gate = [f"--fail-if={condition}" for condition in fail_if]
    return with_storage(data_dir, "show", [experiment_id, *gate])


def _list(data_dir: DataDir, options: argparse.Namespace) -> int:
    written = ["--json"] if options.json else []
    return with_storage(data_dir, "list", [*written, *filter_arguments(read_filter(options))])


def _devices(data_dir: DataDir, options: argparse.Namespace) -> int:
    return with_storage(data_dir, "devices", ["--json"] if options.json else [])


def _submit(data_dir: DataDir, options: argparse.Namespace) -> int:
    _print(submit(data_dir, _checked_spec(data_dir, options)))
    return 0


def _suite(data_dir: DataDir, options: argparse.Namespace) -> int:
    suite_run, cells = read_cells(options)
    machine = read_capabilities(data_dir) or probe(data_dir)
    for cell in cells:
        check(cell, machine)
    queued = submit_missing(data_dir, cells)
    for experiment_id, cell in queued:
        _print(f"{experiment_id}  {cell.name}")
    _print(f"suite run {suite_run}: {len(queued)} of {len(cells)} experiments queued")
    return 0


def _supervise(data_dir: DataDir, options: argparse.Namespace) -> int:
    _allow_code(data_dir, options)
    work: Callable[[], bool] = partial(supervise, data_dir, exclusive=options.one_at_a_time)
    if options.ray is not None or options.slurm is not None:
        work = partial(supervise_cluster, data_dir, options)
    if not work():
        _print(f"another supervisor is at work on {data_dir.path}")
    return 0


def _join(data_dir: DataDir, options: argparse.Namespace) -> int:
    _pass_on(options.allow_code)
    return join_until_stopped(data_dir)


def _resume(data_dir: DataDir, options: argparse.Namespace) -> int:
    experiment = find_experiment(data_dir, options.experiment)
    _allow_code(data_dir, options)
    on = None
    if options.device or options.parallel:
        on = moved_spec(experiment.spec, options.device and options.device.split(","),
                        options.parallel)  # fmt: skip
        check(on, read_capabilities(data_dir) or probe(data_dir))
    labels = resume(experiment, on)
    for variant, run in zip(experiment.variants, experiment.runs, strict=True):
        if variant.label in labels:
            progress = RunProgress(run, experiment.spec)
            progress.update()
            where = "" if on is None else f" on {on.place}"
            _print(f"{variant.label} goes on from step {progress.checkpoint_step}{where}")
    ensure_supervisor(data_dir)
    return 0


def _checked_spec(data_dir: DataDir, options: argparse.Namespace) -> ExperimentSpec:
    spec = read_spec(options)
    check(spec, read_capabilities(data_dir) or probe(data_dir))
    return spec


def _allow_code(data_dir: DataDir, options: argparse.Namespace) -> None:
    """Lets the supervisor that this process becomes or starts run code from further folders."""
    if options.allow_code and not _is_free(data_dir.supervisor_lock):
        raise RunnerError(
            f"a supervisor is at work on {data_dir.path} and keeps to the folders with which it "
            f"was started. It ends {LINGER_SECONDS:.0f} seconds after its last run: try again "
            "then, or leave out --allow-code if it was started with it"
        )
    _pass_on(options.allow_code)


def _pass_on(allowed: Sequence[Path]) -> None:
    folders = [str(folder.expanduser().resolve()) for folder in allowed]
    os.environ[CODE_VARIABLE] = os.pathsep.join([*allowed_folders(), *folders])


def _is_free(lock: Path) -> bool:
    """Waits for a supervisor that has nothing left to do, which ends soon."""
    deadline = time.monotonic() + LINGER_SECONDS + 2
    while is_locked(lock) and time.monotonic() < deadline:
        time.sleep(0.2)
    return not is_locked(lock)


def _add_moving(go_on: argparse.ArgumentParser) -> None:
    text = "go on on these devices, as many as you like: `cuda:0` or `cuda:0,cuda:1`"
    go_on.add_argument("--device", metavar="DEVICES", help=text)
    text = "how several devices work together from here on"
    go_on.add_argument("--parallel", choices=("ddp", "fsdp", "dp"), help=text)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def parser() -> argparse.ArgumentParser:
    """All commands with their options; `execute` of what it parses runs the command."""
    whole = argparse.ArgumentParser(prog="breakeven", description=__doc__.split("\n")[0])
    commands = whole.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, execute: Callable[..., int], text: str) -> argparse.ArgumentParser:
        usage = f"breakeven {name} [options]"
        command = commands.add_parser(name, help=text, description=text, usage=usage)
        command.set_defaults(execute=execute)
        where = f"where runs are kept {DEFAULT_TEXT}"
        command.add_argument("--data-folder", default=default_data_folder(), help=where)
        return command

    compare = add("compare", _compare, "run an experiment, wait for it, print the comparison")
    script = add("script", _script, "run a training script of your own under each backend, wait "
                 "for it, print the comparison")  # fmt: skip
    add_script_options(script)
    again = add("replay", _replay, "measure a run again, and say whether it came out the same")
    again.add_argument("run", metavar="RUN", help="its experiment's id, a dot and its label")
    again.usage = f"{again.usage} RUN"
    queue = add("submit", _submit, "queue an experiment and print its id; `supervise` runs it")
    work = add("supervise", _supervise, "work off the queue, then end")
    add_cluster_options(work)
    work.add_argument(
        "--one-at-a-time", action="store_true",
        help="work at one experiment after the other, whatever devices they ask for",
    )  # fmt: skip
    suite = add("suite", _suite, "queue the models of a benchmark suite, an experiment for each")
    suite.usage = "breakeven suite NAME [options]"
    add_suite_options(suite)
    listing = add("list", _list, "list experiments and what they came to: search, filter, sort")
    add_list_options(listing)
    known = add("devices", _devices, "list devices: how noisy and how fast each is, over time")
    known.add_argument("--json", action="store_true", help="print JSON")
    text = "list experiments and the state of their runs"
    add_status_options(add("status", print_status, text))
    text = "stop experiments: those with these ids, and all that a filter finds, as in `list`"
    add_cancel_options(add("cancel", cancel_many, text))
    go_on = add("resume", _resume, "go on with an experiment's stopped runs from their checkpoints")
    _add_moving(go_on)
    go_on.add_argument("experiment", help="its id, as `list` has it")
    go_on.usage = f"{go_on.usage} EXPERIMENT"
    further = add("join", _join, "take part, with this machine, in runs that span several")
    add_queue_options(add("queue", manage_queue, "list the queue, reorder, hold and pause it"))
    add_library_commands(add)
    told = add(
        "audit", show_audit, "list who did what: starts, stops, deletions, uploads, settings"
    )
    add_audit_options(told)
    text = "say what is wrong with machine, installation and data folder, and what mends it"
    add_doctor_options(add("doctor", examine_machine, text))
    for name, text in STORED.items():
        commands.add_parser(name, help=text)
    for command in (compare, script, again, work, go_on, further):
        command.add_argument(
            "--allow-code", action="append", type=Path, default=[], metavar="FOLDER",
            help="a folder whose Python files (path.py:name) runs may execute, beside those in "
            f"${CODE_VARIABLE}; can be given several times. It holds for the supervisor that this "
            "command starts, so none may be at work already",
        )  # fmt: skip
    add_fail_if(compare)
    add_fail_if(script)
    for command in (compare, queue):
        add_spec_options(command)
    return whole
