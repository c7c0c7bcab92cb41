"""The command line of the runner, for people without a browser and for machines.

Exit status of `compare`: 0 every run finished and every backend keeps parity; 1 a run did not
finish; 2 the input was wrong; 3 a backend breaks parity; 4 parity could not be shown.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import get_args

from runner.capabilities import probe, read_capabilities
from runner.errors import RunnerError
from runner.queue import (
    PROJECT_ROOT,
    Experiment,
    cancel,
    ensure_supervisor,
    experiments,
    find_experiment,
    submit,
)
from runner.run_dir import DataDir
from runner.spec import DataSpec, ExperimentSpec, ModelSpec, TrainingSpec
from runner.supervisor import supervise
from runner.terminal import watch
from runner.training_spec import Scheduler

DATA_VARIABLE = "BREAKEVEN_DATA"
BAD_INPUT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    data_dir = DataDir(options.data_folder)
    commands = {
        "compare": _compare,
        "submit": _submit,
        "supervise": _supervise,
        "status": _status,
        "cancel": _cancel,
    }
    try:
        return commands[options.command](data_dir, options)
    except RunnerError as error:
        sys.stderr.write(f"{error}\n")
        return BAD_INPUT


def default_data_folder() -> Path:
    """The folder that `BREAKEVEN_DATA` names, or `data/` in the project."""
    return Path(os.environ.get(DATA_VARIABLE) or PROJECT_ROOT / "data")


def _compare(data_dir: DataDir, options: argparse.Namespace) -> int:
    experiment = find_experiment(data_dir, _submit_checked(data_dir, options))
    while True:
        ensure_supervisor(data_dir)
        _print(f"experiment {experiment.experiment_id}, {experiment.spec.num_steps} steps a run")
        with _interrupt_cancels(experiment):
            watch(experiment)
        repeat = _fallback_of(data_dir, experiment)
        if repeat is None:
            break
        _print("The device cannot hold all runs at once; repeating them one after another.")
        experiment = repeat
    # The comparison belongs to storage/, which the runner may not import: a process of its own.
    command = [sys.executable, "-m", "storage", "compare", experiment.experiment_id]
    command += ["--data-folder", str(data_dir.path)]
    return subprocess.run(command, cwd=PROJECT_ROOT).returncode


def _submit(data_dir: DataDir, options: argparse.Namespace) -> int:
    _print(_submit_checked(data_dir, options))
    return 0


def _supervise(data_dir: DataDir, options: argparse.Namespace) -> int:
    if not supervise(data_dir):
        _print(f"another supervisor is at work on {data_dir.path}")
    return 0


def _status(data_dir: DataDir, options: argparse.Namespace) -> int:
    for experiment in experiments(data_dir):
        _print(f"{experiment.experiment_id}  {experiment.spec.name}")
        for variant, run in zip(experiment.spec.variants, experiment.runs, strict=True):
            ended = run.read_exit()
            _print(f"    {variant.label:<20} {run.state}{f': {ended.reason}' if ended else ''}")
    return 0


def _cancel(data_dir: DataDir, options: argparse.Namespace) -> int:
    cancel(find_experiment(data_dir, options.experiment))
    return 0


def _submit_checked(data_dir: DataDir, options: argparse.Namespace) -> str:
    spec = _read_spec(options)
    (read_capabilities(data_dir) or probe(data_dir)).check(spec)
    if spec.data.is_file and not Path(spec.data.source).is_file():
        raise RunnerError(f"data.source = {spec.data.source!r}: no such file")
    return submit(data_dir, spec)


def _fallback_of(data_dir: DataDir, experiment: Experiment) -> Experiment | None:
    for other in experiments(data_dir):
        if other.spec.fallback_of == experiment.experiment_id:
            return other
    return None


@contextmanager
def _interrupt_cancels(experiment: Experiment) -> Iterator[None]:
    """Ctrl-C stops the experiment, and the command still waits for its last words."""

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        cancel(experiment)

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runner", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("compare", "run an experiment, wait for it, print the comparison"),
        ("submit", "queue an experiment and print its id"),
    ):
        _add_spec_options(commands.add_parser(name, help=text))
    commands.add_parser("supervise", help="work off the queue, then end")
    commands.add_parser("status", help="list experiments and the state of their runs")
    commands.add_parser("cancel", help="stop an experiment").add_argument("experiment")
    for command in commands.choices.values():
        command.add_argument(
            "--data-folder",
            default=default_data_folder(),
            help=f"where runs are kept (default: ${DATA_VARIABLE}, else data/ in the project)",
        )
    return parser


def _add_spec_options(parser: argparse.ArgumentParser) -> None:
    model, data, training = ModelSpec(), DataSpec(), TrainingSpec()
    add = parser.add_argument
    add("--spec", type=Path, help="JSON file of a whole experiment; replaces all options below")
    add("--name", help="what the experiment is called (default: model on data)")
    add("--model", default=model.source, help="builtin:..., a local folder or a hub name")
    add("--dropout", default=model.dropout, choices=("auto", "keep", "off"))
    add("--data", default=data.source, help="builtin:..., a CSV, JSONL or Parquet, a hub name")
    add("--text-column", default=data.text_column)
    add("--label-column", default=data.label_column)
    add("--train-split", default=data.train_split)
    add("--eval-split", default=data.eval_split)
    add("--train-samples", type=int, default=data.num_train_samples)
    add("--eval-samples", type=int, default=data.num_eval_samples)
    add("--sequence-length", type=int, default=data.sequence_length)
    add("--optimizer", default=training.optimizer, help="a class of torch.optim")
    add("--learning-rate", type=float, default=training.learning_rate)
    add("--batch-size", type=int, default=training.batch_size)
    add("--epochs", type=int, default=training.epochs)
    add("--max-steps", type=int, help="optimizer steps in all; replaces --epochs")
    add("--gradient-accumulation", type=int, default=1, help="micro-batches per optimizer step")
    add("--scheduler", default=training.scheduler, choices=get_args(Scheduler))
    add("--warmup-steps", type=int, default=training.warmup_steps)
    add("--clip-norm", type=float, help="largest norm of all gradients together")
    add("--precision", default=training.precision, choices=("float32", "tf32", "bf16", "fp16"))
    add("--seed", type=int, default=training.seed)
    add(
        "--backends",
        default="inductor",
        help="comma-separated, each a name or name:setting=value+setting=value",
    )
    add("--no-control", action="store_true", help="leave the control out (no parity verdict)")
    add("--device", default="cpu", help="cpu or cuda:N")
    add("--cpu-threads", type=int, help="threads a run computes with (default: half the cores)")
    add("--schedule", default="turns", choices=("turns", "sequential"))
    add("--block-steps", type=int, default=10, help="steps per turn")
    add("--time-limit", type=float, default=3600.0, help="seconds that one run may work")


def _read_spec(options: argparse.Namespace) -> ExperimentSpec:
    if options.spec is not None:
        try:
            return ExperimentSpec.from_json(options.spec.read_text())
        except OSError as error:
            raise RunnerError(f"{options.spec} cannot be read: {error}") from None
    data = DataSpec(
        source=options.data,
        text_column=options.text_column,
        label_column=options.label_column,
        train_split=options.train_split,
        eval_split=options.eval_split,
        num_train_samples=options.train_samples,
        num_eval_samples=options.eval_samples,
        sequence_length=options.sequence_length,
    )
    training = TrainingSpec(
        optimizer=options.optimizer,
        learning_rate=options.learning_rate,
        batch_size=options.batch_size,
        epochs=options.epochs,
        max_steps=options.max_steps,
        gradient_accumulation=options.gradient_accumulation,
        scheduler=options.scheduler,
        warmup_steps=options.warmup_steps,
        clip_norm=options.clip_norm,
        precision=options.precision,
        seed=options.seed,
    )
    return ExperimentSpec(
        name=options.name or f"{Path(options.model).name} on {Path(options.data).name}",
        model=ModelSpec(source=options.model, dropout=options.dropout),
        data=data,
        training=training,
        backends=tuple(name for name in options.backends.split(",") if name),
        control=not options.no_control,
        devices=(options.device,),
        cpu_threads=options.cpu_threads,
        schedule=options.schedule,
        block_steps=options.block_steps,
        time_limit_seconds=options.time_limit,
    )
