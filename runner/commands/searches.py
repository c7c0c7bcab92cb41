"""Commands that search: `tune` finds the fastest way to train for a planned length; `investigate`
finds the cause of a run that failed, learned something else, or is slow."""

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from breakeven.runner.arguments.lengths import Length, add_plan, read_budget, steps_in
from breakeven.runner.arguments.options import add_command, add_spec_options, checked
from breakeven.runner.commands.entry import JUDGED, PLAN_INVESTIGATION, Add, tell
from breakeven.runner.commands.start import add_allow_code, allow_code_again, read_work
from breakeven.runner.commands.waiting import Storage, follow, run_through
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.experiments.queue import experiments
from breakeven.runner.experiments.unconfirmed_searches import why_too_short, why_unconfirmed
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.candidates import search_spec, untried
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.follow_ups import BUDGET_SECONDS
from breakeven.runner.specs.values import split_at_commas
from breakeven.runner.texts import duration


def add_search_commands(add: Add) -> None:
    """Adds the commands."""
    command = add("tune", _tune, operands="[COMMAND...]")
    add_allow_code(command)
    add_plan(command)
    text = "time limit of the search, such as 90s, 30m or 2h (default: 30m); the steps of the "
    text += "training that confirms the answer take about half of this time in addition"
    command.add_argument("--budget", type=checked(read_budget), metavar="TIME", help=text)
    text = "what candidates may change besides speed: `precision` allows lower precision, `batch` "
    text += "larger batches, which are another training"
    command.add_argument("--allow", type=split_at_commas, default=[], metavar="NAME,...", help=text)
    add_spec_options(command)
    command.add_argument("--arm", "--baseline", type=checked(_refuse_arm), help=argparse.SUPPRESS)
    text = "the command of a training of your own; then only options that `run` has, too"
    add_command(command, text)
    command = add("investigate", _investigate, operands="RUN")
    text = "the run, EXPERIMENT.LABEL, as its folder is named"
    command.add_argument("run", metavar="RUN", help=text)
    text = "time for the search, such as 90s, 30m or 2h; for a run that is only slow, time for "
    text += f"each stage of the compiler (default: {duration(BUDGET_SECONDS)})"
    command.add_argument(
        "--budget", type=checked(read_budget), default=BUDGET_SECONDS, metavar="TIME", help=text
    )
    add_allow_code(command)


def _refuse_arm(_: str) -> str:
    raise ValueError(
        "a search chooses what it compares from compilers and settings; race arms of your own with "
        "`breakeven run --arm NAME='CHANGES' --plan LENGTH -- COMMAND`"
    )


def _tune(data_dir: DataDir, options: argparse.Namespace) -> int:
    work = read_work(data_dir, options)
    if options.plan is not None and options.plan.starts > 1:
        rule = "plans several starts, but a search times one; use `breakeven run` or `compare`"
        raise InvalidSpec("--plan", f"{options.plan.starts} starts", rule)
    spec = search_spec(
        work,
        steps=steps_of(work, options.plan),
        max_seconds=options.budget,
        allow=tuple(options.allow),
        named=options.backends is not None,
    )
    spec = spec if options.name is None else replace(spec, name=options.name)
    tune = spec.tune
    count = len(spec.backends)
    tell(
        f"{count} candidate{'s' * (count != 1)} for a training of {tune.steps:,} steps; the "
        f"search takes at most {duration(tune.max_seconds)}."
    )
    tell(untried(spec))
    storage = Storage(data_dir)
    experiment = run_through(data_dir, spec, storage)
    status = storage.run("show", [JUDGED, experiment.experiment_id])
    training = next(
        (
            other
            for other in experiments(data_dir)
            if other.spec.confirms == experiment.experiment_id
        ),
        None,
    )
    if training is None:
        baseline = experiment.runs[0]
        tell(why_too_short(spec, baseline) or why_unconfirmed(baseline.state))
        return status if baseline.state.ended_early else 0
    tell(
        "The best candidates now train from the beginning, in fresh processes, to confirm the "
        "answer."
    )
    follow(data_dir, training, storage)
    return storage.run("show", [JUDGED, training.experiment_id, f"--plan={tune.steps} steps"])


def steps_of(spec: ExperimentSpec, length: Length | None) -> int:
    """Steps of the planned training; without a length, steps of the specification's training."""
    if length is None and not spec.training_steps:
        rule = "must give the length of the training for a script, such as '20000 steps'"
        raise InvalidSpec("--plan", None, rule)
    if length is None:
        return spec.training_steps
    if not spec.workload.is_specified and length.unit != "steps":
        rule = "must be in steps for a script, whose batches are unknown before it runs"
        raise InvalidSpec("--plan", f"{length.amount:g} {length.unit}", rule)
    steps = steps_in(spec, length)
    if steps is None:
        rule = (
            "depends on the speed, which the search changes: use steps, epochs, samples or tokens"
        )
        raise InvalidSpec("--plan", f"{length.amount:g} {length.unit}", rule)
    return steps


def _investigate(data_dir: DataDir, options: argparse.Namespace) -> int:
    storage = Storage(data_dir)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "spec.json"
        arguments = [options.run, f"--budget={options.budget}", f"--output={file}"]
        status = storage.run(PLAN_INVESTIGATION, arguments)
        if status:
            return status
        spec = ExperimentSpec.from_json(file.read_text())
    allow_code_again(data_dir, options, [spec])
    experiment = run_through(data_dir, spec, storage)
    if spec.kind.makes_trials:
        return storage.run("show", [JUDGED, experiment.experiment_id])
    return storage.run("explain", ["--ladder", experiment.experiment_id])
