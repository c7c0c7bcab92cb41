"""Commands that start or continue experiments and wait for them: `run`, `compare`, `resume`."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path

from breakeven.runner.arguments.conditions import add_fail_if, check_gate
from breakeven.runner.arguments.lengths import Length, add_plan, read_budget, steps_in, write_length
from breakeven.runner.arguments.options import (
    add_script_options,
    add_spec_options,
    checked,
    read_script,
    read_spec,
)
from breakeven.runner.checks import code_run_before
from breakeven.runner.checks.allowed_code import (
    CODE_VARIABLE,
    allowed_folders,
    folders_of_script,
)
from breakeven.runner.checks.environments import check_environments, is_own
from breakeven.runner.checks.refused_experiments import check
from breakeven.runner.commands.entry import JUDGED, TEXTS, Add, add_outputs, tell
from breakeven.runner.commands.waiting import Storage, follow, run_through
from breakeven.runner.errors import InvalidSpec, RunnerError
from breakeven.runner.experiments.continuing import continue_experiment, plan_of
from breakeven.runner.experiments.queue import (
    Experiment,
    ensure_supervisor,
    find_experiment,
    resume,
)
from breakeven.runner.files import is_locked
from breakeven.runner.machine.capabilities import likely_capabilities, probe, read_capabilities
from breakeven.runner.machine.quick_race import QUICK_RACE, adjusted
from breakeven.runner.machine.run_variables import PASS_VARIABLE, named_variables
from breakeven.runner.machine.uv_environments import resolved
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import moved_spec
from breakeven.runner.protocol.run_progress import RunProgress
from breakeven.runner.specs.arms import pythons
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import PlanSpec
from breakeven.runner.supervision.supervisor import LINGER_SECONDS
from breakeven.runner.texts import duration

DESCRIPTION = f"""{TEXTS["compare"]}. Without a model, data, a task or a file of options it is the
quick race of the page: a tiny BERT on generated reviews, a minute or two on a CPU"""


LATER_STARTS = "; then what compiles starts once more, to time that with its caches"


def add_start_commands(add: Add) -> None:
    """Adds the commands."""
    script = add("run", _compare, operands="COMMAND...")
    add_script_options(script)
    compare = add("compare", _compare, DESCRIPTION)
    add_spec_options(compare)
    for command in (script, compare):
        add_fail_if(command)
        add_plan(command)
        add_outputs(command)
    text = "with --plan: time after which measuring ends undecided, such as 90s or 30m (default: "
    text += "three times what compiling and training once take, 2 to 15 minutes)"
    script.add_argument("--budget", type=checked(read_budget), metavar="TIME", help=text)
    go_on = add("resume", _resume, operands="EXPERIMENT")
    text = "resume on these devices: `cuda:0` or `cuda:0,cuda:1`"
    go_on.add_argument("--device", metavar="DEVICES", help=text)
    text = "how several devices work together from here on"
    go_on.add_argument("--parallel", choices=("ddp", "fsdp", "dp"), help=text)
    go_on.add_argument("experiment", metavar="EXPERIMENT", help="its id, as in `list`")
    text = "time a finished experiment that is undecided further: until it is decided, or for so "
    text += "long, such as 10m"
    add_plan(go_on)
    go_on.add_argument("--budget", type=checked(read_budget), metavar="TIME", help=text)
    for command in (script, compare, go_on):
        add_allow_code(command)


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
    spec = with_plan(read_work(data_dir, options), options.plan, getattr(options, "budget", None))
    check_gate(spec, options.fail_if)
    check_environments(spec, data_dir)
    _check_folder(options.markdown)
    if spec.is_until_decided:
        print(planned_words(spec.plan), file=sys.stderr)  # noqa: T201
    storage = Storage(data_dir)
    # The JSON alone is on standard output.
    with redirect_stdout(sys.stderr) if options.json else nullcontext():
        experiment = run_through(data_dir, spec, storage)
    return judge(storage, experiment.experiment_id, options)


def with_plan(
    spec: ExperimentSpec, length: Length | None, max_seconds: float | None
) -> ExperimentSpec:
    """The experiment that is measured until it is decided what is best for this length. A length
    that is known in steps only afterwards shortens and extends nothing."""
    steps = spec.plan.steps if length is None else steps_in(spec, length)
    if max_seconds is not None and steps is None:
        raise InvalidSpec("--budget", max_seconds, "needs --plan, in steps: '20000 steps'")
    seconds = spec.plan.max_seconds if max_seconds is None else max_seconds
    starts = spec.plan.starts if length is None else length.starts
    return replace(spec, plan=replace(spec.plan, steps=steps, starts=starts, max_seconds=seconds))


def planned_words(plan: PlanSpec) -> str:
    """How long a planned training is measured, before it starts."""
    most = "2 to 15 minutes, three times what compiling and training once take"
    if plan.max_seconds is not None:
        most = duration(plan.max_seconds)
    return (
        f"Measures until it is decided what takes the least time for {plan.steps:,} steps, at most "
        f"{most}{LATER_STARTS if plan.starts > 1 else ''}."
    )


def _check_folder(file: Path | None) -> None:
    """Raises `RunnerError` for a file that cannot be written after hours of runs."""
    if file is not None and not file.absolute().parent.is_dir():
        raise RunnerError(f"--markdown {file}: there is no folder {file.absolute().parent}")


def judge(storage: Storage, experiment_id: str, options: argparse.Namespace) -> int:
    """Prints the comparison of an experiment's runs; returns the exit status."""
    more = [f"--fail-if={condition}" for condition in options.fail_if]
    if options.plan:
        length: Length = options.plan
        more.append(f"--plan={write_length(length.amount, length.starts, length.unit)}")
    if options.markdown:
        more.append(f"--markdown={options.markdown.absolute()}")
    return storage.run("show", [JUDGED, experiment_id, *more, *["--json"] * options.json])


def _resume(data_dir: DataDir, options: argparse.Namespace) -> int:
    experiment = find_experiment(data_dir, options.experiment)
    allow_code_again(data_dir, options, [experiment.spec])
    if options.budget is not None:
        if options.device or options.parallel:
            raise RunnerError("--budget times an experiment further on the devices that it had")
        return _continue(data_dir, experiment, options)
    if options.plan is not None:
        raise RunnerError("--plan needs --budget, the time for which to continue, such as 10m")
    on = None
    if options.device or options.parallel:
        on = moved_spec(
            experiment.spec, options.device and options.device.split(","), options.parallel
        )
        check(on, read_capabilities(data_dir) or probe(data_dir))
    labels = resume(experiment, on)
    for arm, run in zip(experiment.arms, experiment.runs, strict=True):
        if arm.label in labels:
            progress = RunProgress(run, experiment.spec)
            progress.update()
            where = "" if on is None else f" on {on.place}"
            from_where = experiment.spec.kind.resuming_words(
                progress.checkpoint_step, progress.steps_done
            )
            tell(f"{arm.label} resumes {from_where}{where}")
    ensure_supervisor(data_dir)
    return 0


def _continue(data_dir: DataDir, experiment: Experiment, options: argparse.Namespace) -> int:
    length: Length | None = options.plan
    steps = None if length is None else steps_in(experiment.spec, length)
    starts = experiment.spec.plan.starts if length is None else length.starts
    if length is not None and steps is None:
        why = "is not known in steps here: write '20000 steps'"
        raise InvalidSpec("--plan", f"{length.amount:g} {length.unit}", why)
    plan = replace(plan_of(experiment, options.budget, steps), starts=starts)
    continue_experiment(experiment, plan)
    tell(planned_words(plan))
    storage = Storage(data_dir)
    follow(data_dir, experiment, storage)
    planned = f"--plan={write_length(plan.steps or 0, plan.starts)}"
    return storage.run("show", [JUDGED, experiment.experiment_id, planned])


def read_work(data_dir: DataDir, options: argparse.Namespace) -> ExperimentSpec:
    """The experiment that options describe, on this machine's first GPU if they name no device. A
    typed command, and files in the folders of `--allow-code`, may run from now on. Raises
    `RunnerError`."""
    machine = read_capabilities(data_dir) or likely_capabilities()
    if options.environments:
        options.environments = resolved(data_dir, options.environments)
    typed_pythons = tuple(pythons(options.environments or ()).values())
    allowed: list[Path] = []
    typed = getattr(options, "typed", None)
    if typed or (typed is not None and not hasattr(options, "spec")):  # `tune` needs no command.
        spec = read_script(options, machine)
        typed_pythons = spec.other_pythons
        allowed += folders_of_script(spec)
    else:
        spec = read_spec(options, adjusted(QUICK_RACE, machine))
    allowed += [Path(python).parent for python in typed_pythons if not is_own(python, data_dir)]
    if hasattr(options, "allow_code"):  # `queue add` starts no supervisor.
        options.allow_code = [*options.allow_code, *allowed]
        _allow_code(data_dir, options)
        pass_variables(spec)
        code_run_before.remember(spec, options.allow_code)
    return spec


def _allow_code(data_dir: DataDir, options: argparse.Namespace) -> None:
    """Allows code of further folders in the supervisor that this process becomes or starts."""
    if options.allow_code and not _is_free(data_dir.supervisor_lock):
        raise RunnerError(
            f"a supervisor is running for {data_dir.path}, with the allowed folders of its start. "
            f"It ends {LINGER_SECONDS:.0f} seconds after its last run: try again then, or name "
            "another data folder with --data-folder"
        )
    pass_on(options.allow_code)


def allow_code_again(
    data_dir: DataDir, options: argparse.Namespace, specs: Sequence[ExperimentSpec]
) -> None:
    """Allows what `--allow-code` names, and the code of experiments that this account ran before by
    naming it in a command. A supervisor that is running keeps its folders, and may have these."""
    _allow_code(data_dir, options)
    folders = [folder for spec in specs for folder in code_run_before.folders_for(spec)]
    missing = [folder for folder in dict.fromkeys(folders) if str(folder) not in allowed_folders()]
    if missing and _is_free(data_dir.supervisor_lock):
        pass_on(missing)
    for spec in specs:
        if code_run_before.folders_for(spec):
            pass_variables(spec)


def pass_on(allowed: Sequence[Path]) -> None:
    """Allows code of these folders in the processes that this one starts."""
    folders = [str(folder.expanduser().resolve()) for folder in allowed]
    os.environ[CODE_VARIABLE] = os.pathsep.join([*allowed_folders(), *folders])


def pass_variables(spec: ExperimentSpec) -> None:
    """Allows the environment variables of a script in the processes that this one starts."""
    scripts = [spec.script_of(arm) for arm in spec.possible_arms]
    names = {name for script in scripts for name in script.names_of_variables}
    if names:
        os.environ[PASS_VARIABLE] = ",".join(sorted(named_variables(os.environ) | names))


def _is_free(lock: Path) -> bool:
    """Waits for the end of a supervisor without work; returns whether there is no supervisor."""
    deadline = time.monotonic() + LINGER_SECONDS + 2
    while is_locked(lock) and time.monotonic() < deadline:
        time.sleep(0.2)
    return not is_locked(lock)
