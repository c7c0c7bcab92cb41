"""The command that runs an experiment again, without the browser."""

import shlex
from collections.abc import Callable
from typing import Any

from runner.spec import ExperimentSpec, TrainingSpec

COMMAND = "python -m runner compare"
WITHOUT_OPTION = (
    "optimizer_options", "scheduler_options", "clip_value", "record_gradient_norm", "evaluation",
    "evaluate_every", "scaler_options",
)  # fmt: skip
"""Fields of the training that only a file can set."""

FLAGS: dict[str, Callable[[ExperimentSpec], Any]] = {
    "--name": lambda spec: spec.name,
    "--model": lambda spec: spec.model.source,
    "--dropout": lambda spec: spec.model.dropout,
    "--data": lambda spec: spec.data.source,
    "--text-column": lambda spec: spec.data.text_column,
    "--label-column": lambda spec: spec.data.label_column,
    "--train-split": lambda spec: spec.data.train_split,
    "--eval-split": lambda spec: spec.data.eval_split,
    "--train-samples": lambda spec: spec.data.num_train_samples,
    "--eval-samples": lambda spec: spec.data.num_eval_samples,
    "--sequence-length": lambda spec: spec.data.sequence_length,
    "--optimizer": lambda spec: spec.training.optimizer,
    "--learning-rate": lambda spec: spec.training.learning_rate,
    "--batch-size": lambda spec: spec.training.batch_size,
    "--epochs": lambda spec: spec.training.epochs,
    "--max-steps": lambda spec: spec.training.max_steps,
    "--gradient-accumulation": lambda spec: spec.training.gradient_accumulation,
    "--scheduler": lambda spec: spec.training.scheduler,
    "--warmup-steps": lambda spec: spec.training.warmup_steps,
    "--clip-norm": lambda spec: spec.training.clip_norm,
    "--precision": lambda spec: spec.training.precision,
    "--seed": lambda spec: spec.training.seed,
    "--backends": lambda spec: ",".join(spec.backends),
    "--device": lambda spec: spec.device,
    "--cpu-threads": lambda spec: spec.cpu_threads,
    "--schedule": lambda spec: spec.schedule,
    "--block-steps": lambda spec: spec.block_steps,
    "--time-limit": lambda spec: spec.time_limit_seconds,
}
"""Options of `python -m runner compare`, and the value of each in a specification."""


SPEC_FILE = "spec.json"


def command(spec: ExperimentSpec) -> str:
    """`python -m runner compare ...` with every option that differs from its default.

    Where an option is missing for a field that is set, the command reads the whole specification
    from `SPEC_FILE`.
    """
    if needs_file(spec):
        return f"{COMMAND} --spec {SPEC_FILE}"
    defaults = ExperimentSpec(name="default")
    words = [COMMAND]
    for flag, value_of in FLAGS.items():
        value = value_of(spec)
        if value != value_of(defaults):
            words.append(f"{flag} {shlex.quote(str(value))}")
    if not spec.control:
        words.append("--no-control")
    return " \\\n  ".join(words)


def needs_file(spec: ExperimentSpec) -> bool:
    """Whether the specification has a field set that the command line has no option for."""
    # Which experiment was repeated says nothing about what is run, so `fallback_of` is left out.
    defaults = TrainingSpec()
    return any(getattr(spec.training, name) != getattr(defaults, name) for name in WITHOUT_OPTION)
