"""Which experiments measure the same: what a step of training does, whatever it is called."""

import hashlib
import json
from dataclasses import asdict
from typing import Any

from breakeven.runner.specs.experiment import ExperimentSpec

OF_EXPERIMENT = ("scenario", "task", "cpu_threads")
WITHOUT_EFFECT: dict[str, tuple[str, ...]] = {
    "model": (),
    "data": ("num_eval_samples", "num_test_samples", "eval_split", "test_split"),
    "training": ("seed", "epochs", "max_steps"),
    "speed": ("target_width", "min_rounds", "max_rounds", "max_seconds", "repeats"),
}
"""Parts of a specification that decide what a step does, each without the fields that do not: how
long, how exactly or from which random numbers it is measured."""


def workload_key(spec: ExperimentSpec) -> str:
    """A short text that two experiments share exactly if their steps do the same on one kind of
    device. Backends are no part of it: of each its own trend is told."""
    content = asdict(spec)
    told: dict[str, Any] = {name: content[name] for name in OF_EXPERIMENT}
    told["device"] = spec.device.partition(":")[0]
    if spec.num_devices > 1:
        told["devices"] = [spec.num_devices, spec.parallel]
    for part, left_out in WITHOUT_EFFECT.items():
        told[part] = {name: value for name, value in content[part].items() if name not in left_out}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
