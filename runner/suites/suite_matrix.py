"""Benchmark suites: models of one origin, and the matrix of experiments of a suite run, whose cells
are queued.

A cell of the matrix is one model in one precision, one part (training or inference) and one
scenario. It is a separate experiment with all backends.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.experiments.queue import experiments, new_experiment_id, submit
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.arm_fields import Settings
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import require
from breakeven.runner.specs.scenario_fields import Part, SpeedSpec
from breakeven.runner.specs.scenarios.base import Scenario, ScenarioName
from breakeven.runner.specs.scenarios.by_name import SCENARIOS
from breakeven.runner.specs.training import MODEL_LOSS, Precision
from breakeven.runner.specs.workload import RANDOM_DATA, SUITE_TASK

Values = Mapping[str, Any]
"""Fields of a specification by name; each section is a nested mapping."""
PARTS: tuple[Part, ...] = ("training", "inference")
SUITE_SCENARIOS: tuple[ScenarioName, ...] = ("accuracy", "speed", "cache")
"""Without `train`: a model learns nothing from random samples."""


@dataclass(frozen=True, kw_only=True)
class SuiteModel:
    """A model of a suite, in the size of the Dynamo harness."""

    source: str
    """`suite:name`, as in `ModelSpec.source`."""
    batch_size: int
    accuracy_batch_size: int
    """Batch size in the scenario `accuracy`, where the harness takes fewer samples."""
    sequence_length: int | None = None
    """Tokens per sample; None for samples without tokens."""
    losses: tuple[str, ...] = (MODEL_LOSS,)
    tolerances: Mapping[str, float] = field(default_factory=dict)
    """Tolerances in the scenario `accuracy` that differ from the usual one of the harness: by part,
    or by device and part, such as `cuda training`."""
    optimizer: str | None = None
    """Optimizer of training, if not the usual one of the harness."""
    cuda_accuracy_optimizer: str | None = None
    """The same, only for the scenario `accuracy` on CUDA."""
    parts: tuple[Part, ...] = PARTS
    skipped: str | None = None
    """Why the harness skips the model; it then runs only on request by name."""

    @property
    def name(self) -> str:
        return self.source.partition(":")[2]

    def harness_optimizer(self, part: Part, scenario: ScenarioName, device: str) -> str | None:
        """The model's optimizer; None for the usual one."""
        if part != "training":
            return None
        if SCENARIOS[scenario].has_checks and device.startswith("cuda"):
            return self.cuda_accuracy_optimizer or self.optimizer
        return self.optimizer

    def tolerance(self, part: Part, device: str) -> float | None:
        """The model's tolerance; None for the usual one of the suite."""
        on_device = f"{device.partition(':')[0]} {part}"
        return self.tolerances.get(on_device, self.tolerances.get(part))


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Models that run together."""

    name: str
    text: str
    """Description of the suite in a sentence."""
    models: tuple[SuiteModel, ...]
    begin_with: tuple[str, str]
    """Names of two small models of different kinds."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Models of the harness's list that are not available, with the reason."""
    scenarios: tuple[ScenarioName, ...] = ("accuracy", "speed")
    """By default `accuracy` for the pass rate, `speed` for speed and memory."""
    package: str | None = None
    """Package that its models need; None if Breakeven's own packages suffice."""
    install: str = ""
    """Instructions to install the package."""
    has_strict_tolerances: bool = False
    """Whether the harness has stricter tolerances for its models than for other suites."""

    def choose(self, names: Sequence[str]) -> tuple[SuiteModel, ...]:
        """The models with these names; without names, all that the harness runs. Raises
        `InvalidSpec` for a name that is not in the suite."""
        if not names:
            return tuple(model for model in self.models if model.skipped is None)
        known = {model.name: model for model in self.models}
        for name in names:
            rule = f"is not in the suite {self.name}: " + self.left_out.get(
                name, f"its models are {', '.join(known)}"
            )
            require(name in known, "models", name, rule)
        return tuple(known[name] for name in names)


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """The dimensions of a suite run. Every combination is a cell."""

    suite: Suite
    models: tuple[SuiteModel, ...]
    precisions: tuple[Precision, ...]
    parts: tuple[Part, ...]
    scenarios: tuple[ScenarioName, ...]
    settings: tuple[Settings, ...] = ("harness",)
    """Settings of torch; with both, there are two cells for each combination."""
    shrink: int = 1
    """Factor by which the models are smaller than the suite's, for trials on small machines."""

    def cells(self, replaced: Values, suite_run: str) -> Iterator[ExperimentSpec]:
        """Yields one experiment per cell, model by model, in order of the scenarios, with the
        values in `replaced` in place of the suite's own. Raises `InvalidSpec`."""
        dimensions = (self.models, self.precisions, self.parts, self.scenarios, self.settings)
        for model, precision, part, scenario, settings in product(*dimensions):
            if part in model.parts:
                own = self._values(model, precision, part, scenario, replaced)
                values = _merged(own, _values_of_settings(settings, scenario))
                device = replaced.get("devices", ("cpu",))[0]
                optimizer = model.harness_optimizer(part, scenario, device)
                if settings == "harness" and optimizer is not None:
                    values = _merged(values, {"training": {"optimizer": optimizer}})
                yield ExperimentSpec.from_dict(
                    {**_merged(values, replaced), "suite_run": suite_run}
                )

    def _values(
        self,
        model: SuiteModel,
        precision: Precision,
        part: Part,
        scenario: ScenarioName,
        replaced: Values,
    ) -> Values:
        checks = SCENARIOS[scenario].has_checks
        batch_size = model.accuracy_batch_size if checks else model.batch_size
        batch_size = replaced.get("training", {}).get("batch_size", batch_size)
        device = replaced.get("devices", ("cpu",))[0]
        smaller = "" if self.shrink == 1 else f"/{self.shrink}"
        values: dict[str, Any] = {
            "name": f"{model.name}{smaller}, {precision}, {part}, {scenario}",
            "scenario": scenario,
            "task": SUITE_TASK,
            "model": {"source": model.source + smaller},
            "data": {
                "source": RANDOM_DATA,
                "num_train_samples": batch_size * _num_batches(SCENARIOS[scenario], replaced),
                "num_eval_samples": 1,
            },
            "training": {"precision": precision, "batch_size": batch_size, "losses": model.losses},
            "evaluation": {"when": "never"},
        }
        if model.sequence_length is not None:
            values["data"]["sequence_length"] = model.sequence_length
        if checks:
            values[scenario] = {"parts": (part,), "tolerance": model.tolerance(part, device)}
        else:
            values[scenario] = {"part": part}
        return values


def _values_of_settings(settings: Settings, scenario: ScenarioName) -> Values:
    """Values for the settings of torch: in scenarios without a check, the harness times its models
    with their dropout."""
    keeps = settings == "harness" and not SCENARIOS[scenario].has_checks
    return {"settings": settings} | ({"model": {"dropout": "keep"}} if keeps else {})


def _num_batches(scenario: Scenario, replaced: Values) -> int:
    """Number of different batches for the steps of a cell."""
    accumulation: int = replaced.get("training", {}).get("gradient_accumulation", 1)
    batches: int = replaced.get("speed", {}).get("batches", SpeedSpec.batches)
    block_steps: int = replaced.get("block_steps", ExperimentSpec.block_steps)
    return scenario.num_batches(block_steps, batches * accumulation)


def _merged(own: Values, replaced: Values) -> dict[str, Any]:
    """Merges both; if both have a field, the value in `replaced` counts."""
    merged = dict(own)
    for name, value in replaced.items():
        own_value = merged.get(name)
        is_section = isinstance(value, Mapping) and isinstance(own_value, Mapping)
        merged[name] = {**own_value, **value} if is_section and own_value is not None else value
    return merged


def check_choice(name: str, values: Sequence[str], known: Sequence[str]) -> None:
    """Raises `InvalidSpec` for an unknown or repeated value, or without any value."""
    rule = f"must name at least one of {', '.join(known)}, and none of them twice"
    wrong = not values or len(set(values)) < len(values) or not set(values) <= set(known)
    if wrong:
        raise InvalidSpec(name, tuple(values), rule)


def new_suite_run(suite: str) -> str:
    """A unique id; ids of a suite sort by time."""
    return f"{suite}-{new_experiment_id()}"


def check_suite_run(suite_run: str) -> None:
    """Raises `InvalidSpec` for a text that cannot be the id of a suite run."""
    rule = "must be letters, digits, '.', '_' or '-'"
    require(bool(re.fullmatch(r"[A-Za-z0-9][\w.-]*", suite_run)), "run", suite_run, rule)


def submit_missing(
    data_dir: DataDir, cells: Sequence[ExperimentSpec], checked: Sequence[ExperimentSpec]
) -> list[tuple[str, ExperimentSpec]]:
    """Queues the cells that have no finished or active experiment; returns their ids and cells.
    `checked`: cells that torch need not check while their runs load. Raises `NotEnoughDisk`.
    """
    there = [
        _cell(experiment.spec)
        for experiment in experiments(data_dir)
        if not any(run.state.ended_early and run.is_recorded for run in experiment.runs)
    ]
    return [
        (submit(data_dir, cell, is_checked=cell in checked), cell)
        for cell in cells
        if _cell(cell) not in there
    ]


def _cell(spec: ExperimentSpec) -> ExperimentSpec:
    """A key of a cell, the same for a repetition run by run after the device lacked memory."""
    return replace(spec, schedule="turns", fallback_of=None)
