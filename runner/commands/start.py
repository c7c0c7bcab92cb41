"""Commands that start or continue experiments: compare, script, submit, suite, supervise,
resume, add-rounds."""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

from breakeven.runner.arguments.conditions import Condition, add_fail_if, check_gate
from breakeven.runner.arguments.lengths import Length, add_plan
from breakeven.runner.arguments.options import (
    FIELDS,
    add_field_options,
    add_script_options,
    add_spec_options,
    arguments_of,
    checked,
    help_of,
    read_fields,
    read_script,
    read_spec,
)
from breakeven.runner.checks import own_code
from breakeven.runner.checks.environments import check_environments, is_own
from breakeven.runner.checks.experiment import check, check_at_once
from breakeven.runner.checks.user_code import CODE_VARIABLE, allowed_folders
from breakeven.runner.commands.cluster import (
    add_cluster_options,
    join_until_stopped,
    supervise_cluster,
)
from breakeven.runner.commands.entry import Add, tell
from breakeven.runner.commands.waiting import Storage, follow, run_through
from breakeven.runner.errors import InvalidSpec, RunnerError
from breakeven.runner.experiments.added_rounds import add_rounds, run_backends
from breakeven.runner.experiments.queue import (
    ensure_supervisor,
    experiments,
    find_experiment,
    resume,
    submit,
)
from breakeven.runner.experiments.queue_order import startable
from breakeven.runner.files import is_locked
from breakeven.runner.machine.capabilities import likely_capabilities, probe, read_capabilities
from breakeven.runner.machine.environments import resolved
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import moved_spec
from breakeven.runner.protocol.run_progress import RunProgress
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import Bounds, fields_of
from breakeven.runner.specs.scenario_fields import AddedRounds
from breakeven.runner.specs.training import Precision
from breakeven.runner.specs.values import read_whole_number, split_at_commas
from breakeven.runner.specs.variants import Settings, pythons
from breakeven.runner.suites import SUITES
from breakeven.runner.suites.matrix import (
    PARTS,
    SUITE_SCENARIOS,
    Matrix,
    check_choice,
    check_suite_run,
    new_suite_run,
    submit_missing,
)
from breakeven.runner.supervision.supervisor import LINGER_SECONDS, supervise


def add_start_commands(add: Add) -> None:
    """Adds the commands."""
    compare = add("compare", _compare, "run an experiment, wait for it, print the comparison")
    script = add(
        "script",
        _compare,
        "run a training script of your own under each backend, wait for it, print the comparison",
    )
    add_script_options(script)
    queue = add("submit", _submit, "queue an experiment and print its id; `supervise` runs it")
    work = add("supervise", _supervise, "run the queue until it is empty")
    add_cluster_options(work)
    work.add_argument(
        "--one-at-a-time",
        action="store_true",
        help="run one experiment after the other, on any devices",
    )
    suite = add(
        "suite",
        _suite,
        "queue an experiment for each model of a benchmark suite; `supervise` runs them",
    )
    suite.usage = "breakeven suite SUITE [options]"
    add_suite_options(suite)
    go_on = add("resume", _resume, "resume an experiment's stopped runs from their checkpoints")
    text = "resume on these devices: `cuda:0` or `cuda:0,cuda:1`"
    go_on.add_argument("--device", metavar="DEVICES", help=text)
    text = "how several devices work together from here on"
    go_on.add_argument("--parallel", choices=("ddp", "fsdp", "dp"), help=text)
    go_on.add_argument("experiment", help="id of the experiment, as in `list`")
    go_on.usage = f"{go_on.usage} EXPERIMENT"
    more = add(
        "add-rounds",
        _add_rounds,
        "measure more rounds of a finished experiment with an inconclusive verdict",
    )
    more.add_argument("experiment", help="id of the experiment, as in `list`")
    more.add_argument(
        "--backends",
        metavar="LABEL,...",
        help="labels of the backends to time, as in the table (default: all)",
    )
    for field in fields_of(AddedRounds):
        more.add_argument(field.flag, dest=field.name, help=help_of(field), **arguments_of(field))
    more.usage = f"{more.usage} EXPERIMENT"
    for command in (compare, script, work, go_on, more):
        add_allow_code(command)
    for command in (compare, script):
        add_fail_if(command)
        add_plan(command)
    for command in (compare, queue):
        add_spec_options(command)


def add_allow_code(command: argparse.ArgumentParser) -> None:
    """Adds `--allow-code` to a command that starts a supervisor."""
    command.add_argument(
        "--allow-code",
        action="append",
        type=Path,
        default=[],
        metavar="FOLDER",
        help="a folder whose Python files (path.py:name) runs may execute, in addition to those in "
        f"${CODE_VARIABLE}; can be given several times. It applies to the supervisor that this "
        "command starts, so no other supervisor may be running",
    )


def _compare(data_dir: DataDir, options: argparse.Namespace) -> int:
    spec = read_work(data_dir, options)
    check_gate(spec, options.fail_if)
    check_environments(spec, data_dir)
    storage = Storage(data_dir)
    experiment = run_through(data_dir, spec, storage)
    return judge(storage, experiment.experiment_id, options.fail_if, options.plan)


def judge(
    storage: Storage,
    experiment_id: str,
    fail_if: Sequence[Condition],
    planned: Length | None = None,
) -> int:
    """Prints the comparison of an experiment's runs; returns the exit status."""
    more = [f"--fail-if={condition}" for condition in fail_if]
    more += [f"--plan={planned.amount} {planned.unit}"] if planned else []
    return storage.run("show", [experiment_id, *more])


def _submit(data_dir: DataDir, options: argparse.Namespace) -> int:
    spec = read_work(data_dir, options)
    is_checked = check_at_once(spec, read_capabilities(data_dir))
    check_environments(spec, data_dir)
    tell(submit(data_dir, spec, is_checked=is_checked))
    return 0


def _suite(data_dir: DataDir, options: argparse.Namespace) -> int:
    machine = read_capabilities(data_dir)
    suite_run, cells = read_cells(options, (machine or likely_capabilities()).usual_device)
    checked = [cell for cell in cells if check_at_once(cell, machine)]
    queued = submit_missing(data_dir, cells, checked)
    for experiment_id, cell in queued:
        tell(f"{experiment_id}  {cell.name}")
    waits = startable(data_dir) and not is_locked(data_dir.supervisor_lock)
    how = f"; `breakeven supervise{data_dir.option}` runs the queue" if waits else ""
    tell(f"suite run {suite_run}: {len(queued)} of {len(cells)} experiments queued{how}")
    return 0


def _supervise(data_dir: DataDir, options: argparse.Namespace) -> int:
    if options.join:
        _pass_on(options.allow_code)
        return join_until_stopped(data_dir)
    queue = experiments(data_dir, data_dir.open_experiments())
    specs = [experiment.spec for experiment in queue]
    allow_code_again(data_dir, options, specs)
    work: Callable[[], bool] = partial(supervise, data_dir, exclusive=options.one_at_a_time)
    if options.ray is not None or options.slurm is not None:
        work = partial(supervise_cluster, data_dir, options)
    if not work():
        tell(f"another supervisor is running for {data_dir.path}")
    return 0


def _resume(data_dir: DataDir, options: argparse.Namespace) -> int:
    experiment = find_experiment(data_dir, options.experiment)
    allow_code_again(data_dir, options, [experiment.spec])
    on = None
    if options.device or options.parallel:
        on = moved_spec(
            experiment.spec, options.device and options.device.split(","), options.parallel
        )
        check(on, read_capabilities(data_dir) or probe(data_dir))
    labels = resume(experiment, on)
    for variant, run in zip(experiment.variants, experiment.runs, strict=True):
        if variant.label in labels:
            progress = RunProgress(run, experiment.spec)
            progress.update()
            where = "" if on is None else f" on {on.place}"
            from_where = experiment.spec.kind.resuming_words(
                progress.checkpoint_step, progress.steps_done
            )
            tell(f"{variant.label} resumes {from_where}{where}")
    ensure_supervisor(data_dir)
    return 0


def _add_rounds(data_dir: DataDir, options: argparse.Namespace) -> int:
    experiment = find_experiment(data_dir, options.experiment)
    allow_code_again(data_dir, options, [experiment.spec])
    backends = run_backends(experiment.spec)
    chosen = options.backends.split(",") if options.backends else backends
    unknown = sorted(set(chosen).difference(backends))
    if unknown:
        known = ", ".join(backends)
        raise InvalidSpec("--backends", unknown[0], f"is not a backend of the experiment: {known}")
    given = {one.name: getattr(options, one.name) for one in fields_of(AddedRounds)}
    rounds = {name: value for name, value in given.items() if value is not None}
    add_rounds(experiment, chosen, AddedRounds(**rounds))
    storage = Storage(data_dir)
    follow(data_dir, experiment, storage)
    return storage.run("show", [experiment.experiment_id])


def read_work(data_dir: DataDir, options: argparse.Namespace) -> ExperimentSpec:
    """The experiment that options describe, on this machine's first GPU if they name no device. A
    named script, and files in the folders of `--allow-code`, may run from now on. Raises
    `RunnerError`."""
    machine = read_capabilities(data_dir) or likely_capabilities()
    _resolve_environments(data_dir, options)
    if getattr(options, "script", None) is None:
        spec = read_spec(options, machine.usual_device)
    else:
        spec = read_script(options, machine)
        file = Path(spec.model.script or "")
        folder = Path(spec.script.folder or file.parent)
        options.allow_code = [*options.allow_code, folder, file.parent]
    if hasattr(options, "allow_code"):  # `submit` starts no supervisor.
        _allow_code(data_dir, options)
        own_code.remember(spec, options.allow_code)
    return spec


def _resolve_environments(data_dir: DataDir, options: argparse.Namespace) -> None:
    """Puts the Python of each named environment into the options, and its folder among those whose
    code may run."""
    if not options.environments:
        return
    options.environments = resolved(data_dir, options.environments)
    others = [
        python for python in pythons(options.environments).values() if not is_own(python, data_dir)
    ]
    if hasattr(options, "allow_code"):  # `submit` starts no supervisor.
        options.allow_code = [*options.allow_code, *(Path(one).parent for one in others)]


def _allow_code(data_dir: DataDir, options: argparse.Namespace) -> None:
    """Allows code of further folders in the supervisor that this process becomes or starts."""
    if options.allow_code and not _is_free(data_dir.supervisor_lock):
        raise RunnerError(
            f"a supervisor is running for {data_dir.path}, with the allowed folders of its start. "
            f"It ends {LINGER_SECONDS:.0f} seconds after its last run: try again then, or leave "
            "out --allow-code if it was started with this folder"
        )
    _pass_on(options.allow_code)


def allow_code_again(
    data_dir: DataDir, options: argparse.Namespace, specs: Sequence[ExperimentSpec]
) -> None:
    """Allows what `--allow-code` names, and the code of experiments that this account ran before by
    naming it in a command. A supervisor that is running keeps its folders, and may have these."""
    _allow_code(data_dir, options)
    folders = [folder for spec in specs for folder in own_code.folders_for(spec)]
    missing = [folder for folder in dict.fromkeys(folders) if str(folder) not in allowed_folders()]
    if missing and _is_free(data_dir.supervisor_lock):
        _pass_on(missing)


def _pass_on(allowed: Sequence[Path]) -> None:
    folders = [str(folder.expanduser().resolve()) for folder in allowed]
    os.environ[CODE_VARIABLE] = os.pathsep.join([*allowed_folders(), *folders])


def _is_free(lock: Path) -> bool:
    """Waits for the end of a supervisor without work; returns whether there is no supervisor."""
    deadline = time.monotonic() + LINGER_SECONDS + 2
    while is_locked(lock) and time.monotonic() < deadline:
        time.sleep(0.2)
    return not is_locked(lock)


SHRINK = Bounds(1, 9999, "no model has more layers, heads or words")
ROWS = (
    "name",
    "scenario",
    "task",
    "settings",
    "model.source",
    "data.source",
    "training.precision",
    "speed.part",
    "cache.part",
    "accuracy.parts",
)
"""Fields that the matrix sets itself."""


def add_suite_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the matrix, and those of the fields that all cells share."""
    listed = "; ".join(f"{name}: {suite.text.rstrip('.')}" for name, suite in SUITES.items())
    parser.add_argument("suite", choices=list(SUITES), help=listed)
    lists = {
        "models": "models of the suite, by name (default: all that the Dynamo harness runs)",
        "precision": f"one or more of {', '.join(get_args(Precision))} (default: float32)",
        "parts": f"one or both of {', '.join(PARTS)} (default: both)",
        "scenarios": f"one or more of {', '.join(SUITE_SCENARIOS)} (default: those of the suite)",
        "settings": "harness, plain or both: settings of torch, see --help-fields (default: "
        "harness)",
    }
    group = parser.add_argument_group("matrix", "every combination of these is an experiment")
    for name, text in lists.items():
        group.add_argument(f"--{name}", type=split_at_commas, metavar="NAME,...", help=text)
    group.add_argument(
        "--shrink",
        type=checked(read_whole_number),
        default=1,
        metavar="N",
        help="divide the layers, attention heads and words of huggingface's models by N, for "
        "trials on small machines (default: 1)",
    )
    parser.add_argument(
        "--run",
        metavar="ID",
        help="id of the suite run (default: a new one); for an existing id, only missing and "
        "failed cells are queued",
    )
    add_field_options(parser, [path for path in FIELDS if path not in ROWS])


def read_cells(
    options: argparse.Namespace, usual_device: str = "cpu"
) -> tuple[str, list[ExperimentSpec]]:
    """The suite run's id and all its cells; raises `InvalidSpec`. `usual_device` as in
    `read_spec`."""
    suite = SUITES[options.suite]
    suite_run = options.run or new_suite_run(suite.name)
    check_suite_run(suite_run)
    SHRINK.check("shrink", options.shrink)
    matrix = Matrix(
        suite=suite,
        models=suite.choose(tuple(options.models or ())),
        precisions=_chosen("precision", options.precision, get_args(Precision), ("float32",)),
        parts=_chosen("parts", options.parts, PARTS, PARTS),
        scenarios=_chosen("scenarios", options.scenarios, SUITE_SCENARIOS, suite.scenarios),
        settings=_chosen("settings", options.settings, get_args(Settings), ("harness",)),
        shrink=options.shrink,
    )
    values: dict[str, Any] = {"devices": (usual_device,)}
    read_fields(options, values)
    values.pop("settings", None)  # the matrix has them as a list, under the name of the field
    return suite_run, list(matrix.cells(values, suite_run))


def _chosen(
    name: str, given: Sequence[str] | None, known: Sequence[str], usual: tuple[Any, ...]
) -> tuple[Any, ...]:
    if given is None:
        return usual
    check_choice(name, given, known)
    return tuple(given)
