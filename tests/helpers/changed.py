"""A value other than the default for every field of a specification, and the fields that it
needs."""

from typing import Any

from breakeven.runner.specs.experiment import ExperimentSpec

CHANGED: dict[str, Any] = {
    "name": "It's -- mine, 100 %",
    "scenario": "accuracy",
    "task": "custom",
    "callbacks": ("my code/hooks.py:Mine", "hooks.py:Other"),
    "backends": ("eager", "inductor:mode=max-autotune", "inductor:scope=forward+dynamic=true"),
    "named_arms": ("graphs=inductor:mode=reduce-overhead", "threads=OMP_NUM_THREADS=1 eager"),
    "baseline": "MKL_NUM_THREADS=2",
    "environments": ("torch211=/venvs/211/bin/python", "own=/usr/bin/python3"),
    "settings": "harness",
    "controls": 3,
    "more_controls": 1,
    "same": "outcome",
    "margin": "0.005",
    "profile_steps": 5,
    "family": "proposals",
    "devices": ("cuda:1",),
    "parallel": "fsdp",
    "nodes": 2,
    "cpus": "0",
    "exclusive": True,
    "priority": -2,
    "cpu_threads": 1,
    "schedule": "sequential",
    "compile": "together",
    "block_steps": 3,
    "time_limit_seconds": 90.5,
    "keep_code": True,
    "keep_trace": True,
    "model.source": "model.py:build",
    "model.dropout": "off",
    "data.source": "data.py:load",
    "data.text_column": "review",
    "data.label_column": "stars",
    "data.train_split": "training",
    "data.eval_split": "dev",
    "data.test_split": "held out",
    "data.num_train_samples": 640,
    "data.num_eval_samples": 100,
    "data.num_test_samples": 50,
    "data.sequence_length": 32,
    "training.losses": ("model", "0.5*CrossEntropyLoss:label_smoothing=0.1+weight=(1, 2)"),
    "training.optimizer": "SGD",
    "training.optimizer_options": {"momentum": 0.9, "nesterov": True},
    "training.parameter_groups": ("classifier.*:lr=0.01", "*.bias:optimizer=Adam"),
    "training.learning_rate": 1e-7,
    "training.scheduler": "cosine",
    "training.warmup_steps": 3,
    "training.scheduler_options": {"num_cycles": 2, "milestones": (30, 60)},
    "training.batch_size": 4,
    "training.last_batch": "pad",
    "training.gradient_accumulation": 2,
    "training.epochs": 3,
    "training.max_steps": 7,
    "training.clip_norm": 1.0,
    "training.clip_value": 0.5,
    "training.record_gradient_norm": True,
    "training.gradient_statistics_every": 5,
    "training.precision": "fp16",
    "training.scaler_options": {"init_scale": 1024.0},
    "training.seed": 5,
    "evaluation.when": "steps",
    "evaluation.every": 20,
    "evaluation.splits": ("test", "validation"),
    "evaluation.compiled": False,
    "evaluation.metric": "f1",
    "evaluation.predictions": ("validation", "test"),
    "stopping.nonfinite": True,
    "stopping.patience": 2,
    "stopping.min_delta": 0.25,
    "stopping.threshold": -1e-9,
    "checkpoints.every": 10,
    "checkpoints.unit": "steps",
    "checkpoints.keep_last": 2,
    "checkpoints.keep_best": 1,
    "plan.steps": 20_000,
    "plan.max_seconds": 300.0,
    "plan.target_width": 0.05,
    "plan.starts": 10,
    "plan.parity": "full",
    "speed.part": "inference",
    "speed.batches": 2,
    "speed.warm_up_blocks": 3,
    "speed.target_width": 0.05,
    "speed.min_rounds": 8,
    "speed.max_rounds": 60,
    "speed.max_seconds": 45.0,
    "speed.repeats": 3,
    "accuracy.iterations": 4,
    "accuracy.tolerance": 0.005,
    "accuracy.layers": "always",
    "accuracy.parts": ("inference",),
    "cache.part": "inference",
    "cache.repeats": 3,
    "cache.steps": 30,
    "script.arguments": ("--epochs", "3", "--name=It's -- mine"),
    "script.folder": "/home/me/my project",
    "script.module": "mine.train",
    "script.variables": ("OMP_NUM_THREADS=4", "NAME=It's -- mine"),
    "script.ranks": 2,
    "script.steps": 500,
    "script.patience_seconds": 60.5,
    "script.compiles": "train.py:Net",
}
"""The values by path."""
ALONE = ("nodes", "environments", "named_arms", "baseline", "family")
TOGETHER = tuple(path for path in CHANGED if path not in ALONE)
"""Fields that break no rule together: only comparisons of runs can span several machines or
environments, have arms with names, or belong to a family."""

NEEDED = {
    "training.precision": ("devices",),
    "training.scaler_options": ("devices", "training.precision"),
    "evaluation.splits": ("data.num_test_samples",),
    "evaluation.predictions": ("data.num_test_samples",),
}
"""Fields that must change with another one."""


def with_changes(*paths: str) -> ExperimentSpec:
    """An experiment in which the fields at these paths, and the fields that they need, are
    changed."""
    values: dict[str, Any] = {"name": "one"}
    needed = [other for path in paths for other in NEEDED.get(path, ())]
    for path in (*paths, *needed):
        section, _, name = path.rpartition(".")
        holder = values.setdefault(section, {}) if section else values
        holder[name] = CHANGED[path]
    return ExperimentSpec.from_dict(values)
