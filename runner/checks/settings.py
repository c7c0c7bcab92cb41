"""Checks that torch accepts the settings of optimizer, schedule, losses and compiler, and that
backends that are named by path can be loaded.

The check needs a process that imports torch, which takes seconds. So it runs only if a setting is
not known to work, and its results are cached.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from typing import Any

from breakeven.runner.errors import InvalidSpec, ProbeFailed
from breakeven.runner.machine.run_environment import for_runs
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.candidates import candidates
from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec
from breakeven.runner.specs.variants import parse_backend

COMMAND = (sys.executable, "-m", "breakeven.runner.worker.settings_check")
LIMIT_SECONDS = 120.0
KEPT_ANSWERS = 256
TASKS_OF_ANY_LABELS = ("custom", "suite")
"""Tasks whose labels may be classes or numbers, depending on the samples."""


def check_settings(spec: ExperimentSpec, *, execute: bool = False) -> None:
    """Raises `InvalidSpec` for a setting that torch refuses, `ProbeFailed` if the check fails.

    Optimizer, devices and backends must be known to this machine already (`Capabilities.check`).
    `execute`: whether to load backends that are named by path, which executes their code.
    """
    settings = settings_of(spec, execute=execute)
    if settings is None:
        return
    refused = _first_refused(settings.to_json())
    if refused:
        raise InvalidSpec(refused["field"], refused["value"], refused["rule"])


def settings_of(spec: ExperimentSpec, *, execute: bool = False) -> ExperimentSpec | None:
    """An experiment with only the settings to check; None if all are defaults. Candidates of a
    search are not checked: if this torch does not know one, only that candidate fails."""
    training = spec.training
    is_scheduled = not training.has_constant_rate
    searched = set(candidates(spec)) if spec.kind.searches else set()
    # The torch of another environment may have other options.
    backends = () if spec.environments else spec.backends
    variants = {text: parse_backend(text) for text in backends if text not in searched}
    to_try = tuple(text for text, variant in variants.items()
                   if variant.options or (execute and variant.path_of_backend))  # fmt: skip
    usual = TrainingSpec()
    reduced = replace(
        usual,
        optimizer=training.optimizer,
        optimizer_options=training.optimizer_options,
        parameter_groups=training.parameter_groups,
        scheduler=training.scheduler,
        scheduler_options=training.scheduler_options,
        warmup_steps=training.warmup_steps,
        scaler_options=training.scaler_options,
        precision=training.precision if training.scaler_options else usual.precision,
        losses=training.losses,
        max_steps=spec.num_steps if is_scheduled else None,
    )
    is_usual = replace(reduced, optimizer=usual.optimizer) == usual
    if is_usual and not to_try:
        return None
    labels_are_classes = spec.task not in TASKS_OF_ANY_LABELS
    return ExperimentSpec(
        name="settings",
        task=ExperimentSpec.task if labels_are_classes else "custom",
        training=reduced,
        backends=to_try,
        devices=spec.devices,
    )


@lru_cache(KEPT_ANSWERS)
def _first_refused(settings: str) -> dict[str, Any]:
    try:
        answer = subprocess.run(
            COMMAND,
            input=settings,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            cwd=PROJECT_ROOT,
            env={**for_runs(os.environ), "PYTHONWARNINGS": "ignore"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ProbeFailed(f"torch did not answer within {LIMIT_SECONDS:.0f} s") from None
    try:
        found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        tail = "\n".join(answer.stderr.strip().splitlines()[-5:])
        raise ProbeFailed(f"torch failed to check these settings:\n{tail}"
                          ) from None  # fmt: skip
    return found
