"""Benchmark suites: models of one origin, the matrix of experiments that a suite run makes, and how
its cells are queued.

A cell of the matrix is one model in one precision and one part (training or inference) under one
scenario; it is an experiment of its own, which names every backend.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import Experiment, experiments, new_experiment_id, submit
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import require
from breakeven.runner.specs.scenarios import SCENARIOS, Part, Scenario, ScenarioName, SpeedSpec
from breakeven.runner.specs.training import MODEL_LOSS, Precision
from breakeven.runner.specs.variants import Settings
from breakeven.runner.specs.workload import RANDOM_DATA, SUITE_TASK

Values = Mapping[str, Any]
"""Fields of a specification by name; those of its sections in a mapping of their own."""
PARTS: tuple[Part, ...] = ("training", "inference")
SUITE_SCENARIOS: tuple[ScenarioName, ...] = ("accuracy", "speed", "cache")
"""Random samples teach nothing, so nothing is trained on them for its own sake."""


@dataclass(frozen=True, kw_only=True)
class SuiteModel:
    """A model of a suite, in the size in which the Dynamo harness runs it."""

    source: str
    """`suite:name`, as `ModelSpec.source` has it."""
    batch_size: int
    accuracy_batch_size: int
    """Of the scenario `accuracy`, where the harness takes fewer samples."""
    sequence_length: int | None = None
    """Tokens per sample; None for what has none."""
    losses: tuple[str, ...] = (MODEL_LOSS,)
    tolerances: Mapping[str, float] = field(default_factory=dict)
    """Of the scenario `accuracy`, where the harness has one of its own for the model: by part, or
    by device and part, as `cuda training`."""
    optimizer: str | None = None
    """Of training, where the harness does not take its usual one."""
    cuda_accuracy_optimizer: str | None = None
    """The same, where it does so only in the scenario `accuracy` on CUDA."""
    parts: tuple[Part, ...] = PARTS
    skipped: str | None = None
    """Why the harness itself leaves the model out: it then takes part only when it is named."""

    @property
    def name(self) -> str:
        return self.source.partition(":")[2]

    def optimizer_in(self, part: Part, scenario: ScenarioName, device: str) -> str | None:
        """None: the usual one."""
        if part != "training":
            return None
        if SCENARIOS[scenario].compares_tensors and device.startswith("cuda"):
            return self.cuda_accuracy_optimizer or self.optimizer
        return self.optimizer

    def tolerance(self, part: Part, device: str) -> float | None:
        """None: the usual one of the suite."""
        on_device = f"{device.partition(':')[0]} {part}"
        return self.tolerances.get(on_device, self.tolerances.get(part))


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Models that are run together."""

    name: str
    text: str
    """What it is, in a sentence."""
    models: tuple[SuiteModel, ...]
    begin_with: tuple[str, str]
    """Names of two small ones of different kinds."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Models of the harness's list that cannot be had, and why."""
    scenarios: tuple[ScenarioName, ...] = ("accuracy", "speed")
    """The first for the pass rate, the second for speed and memory."""
    package: str | None = None
    """What must be importable here for its models; None for what Breakeven needs in any case."""
    install: str = ""
    """How to get the package."""
    is_held_closely: bool = False
    """Whether the harness asks its models for closer agreement than those of other suites."""

    def choose(self, names: Sequence[str]) -> tuple[SuiteModel, ...]:
        """The models of these names, or without any all that the harness runs.

        Raises `InvalidSpec` for a name that the suite does not have.
        """
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
    """What a suite run is made of. Every combination is a cell."""

    suite: Suite
    models: tuple[SuiteModel, ...]
    precisions: tuple[Precision, ...]
    parts: tuple[Part, ...]
    scenarios: tuple[ScenarioName, ...]
    settings: tuple[Settings, ...] = ("harness",)
    """What torch is set to; with both, every cell is there twice."""
    shrink: int = 1
    """How many times smaller than the suite's the models are, for trials on small machines."""

    def cells(self, replaced: Values, suite_run: str) -> Iterator[ExperimentSpec]:
        """One experiment per cell, model by model, the accuracy of each before its speed.

        `replaced` are values that replace the suite's own, in all cells. Raises `InvalidSpec`.
        """
        dimensions = (self.models, self.precisions, self.parts, self.scenarios, self.settings)
        for model, precision, part, scenario, settings in product(*dimensions):
            if part in model.parts:
                own = self._values(model, precision, part, scenario, replaced)
                under = _merged(own, _under(settings, scenario))
                device = replaced.get("devices", ("cpu",))[0]
                optimizer = model.optimizer_in(part, scenario, device)
                if settings == "harness" and optimizer is not None:
                    under = _merged(under, {"training": {"optimizer": optimizer}})
                yield ExperimentSpec.from_dict({**_merged(under, replaced), "suite_run": suite_run})

    def _values(
        self,
        model: SuiteModel,
        precision: Precision,
        part: Part,
        scenario: ScenarioName,
        replaced: Values,
    ) -> Values:
        checks = SCENARIOS[scenario].compares_tensors
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
            "training": {
                "precision": precision,
                "batch_size": batch_size,
                "losses": model.losses,
            },
            "evaluation": {"when": "never"},
        }
        if model.sequence_length is not None:
            values["data"]["sequence_length"] = model.sequence_length
        if checks:
            values[scenario] = {"parts": (part,), "tolerance": model.tolerance(part, device)}
        else:
            values[scenario] = {"part": part}
        return values


def _under(settings: Settings, scenario: ScenarioName) -> Values:
    """Settings in addition to torch's own: where nothing is checked, the harness times its models
    with their dropout."""
    keeps = settings == "harness" and not SCENARIOS[scenario].compares_tensors
    return {"settings": settings} | ({"model": {"dropout": "keep"}} if keeps else {})


def _num_batches(scenario: Scenario, replaced: Values) -> int:
    """How many different batches the steps of a cell need; where they go on by epochs, one has as
    many as a turn has steps, so that no turn is cut short."""
    if scenario.compares_tensors:
        return 1
    if not scenario.cycles_batches:
        block_steps: int = replaced.get("block_steps", ExperimentSpec.block_steps)
        return block_steps
    accumulation: int = replaced.get("training", {}).get("gradient_accumulation", 1)
    batches: int = replaced.get("speed", {}).get("batches", SpeedSpec.batches)
    return batches * accumulation


def _merged(own: Values, replaced: Values) -> dict[str, Any]:
    """The values of both; where both name a field, the requested one counts."""
    merged = dict(own)
    for name, value in replaced.items():
        mine = merged.get(name)
        is_section = isinstance(value, Mapping) and isinstance(mine, Mapping)
        merged[name] = {**mine, **value} if is_section and mine is not None else value
    return merged


def check_choice(name: str, values: Sequence[str], known: Sequence[str]) -> None:
    """Raises `InvalidSpec` for a value that is not known, or named twice, or if there is none."""
    rule = f"must name at least one of {', '.join(known)}, and none of them twice"
    wrong = not values or len(set(values)) < len(values) or not set(values) <= set(known)
    if wrong:
        raise InvalidSpec(name, tuple(values), rule)


def new_suite_run(suite: str) -> str:
    """An id that is unique, and sortable by time among those of a suite."""
    return f"{suite}-{new_experiment_id()}"


def check_suite_run(suite_run: str) -> None:
    """Raises `InvalidSpec` for what cannot be the id of a suite run."""
    rule = "must be letters, digits, '.', '_' or '-'"
    require(bool(re.fullmatch(r"[A-Za-z0-9][\w.-]*", suite_run)), "run", suite_run, rule)


def submit_missing(
    data_dir: DataDir, cells: Sequence[ExperimentSpec], checked: Sequence[ExperimentSpec]
) -> list[tuple[str, ExperimentSpec]]:
    """Queues the cells of which no experiment is finished or under way; their ids and cells.
    `checked`: those that torch need not check while their runs load. Raises `NotEnoughDisk`.
    """
    there = [_cell(one.spec) for one in experiments(data_dir) if _needs_no_other(one)]
    return [(submit(data_dir, cell, is_checked=cell in checked), cell)
            for cell in cells if _cell(cell) not in there]  # fmt: skip


def _needs_no_other(experiment: Experiment) -> bool:
    return not any(run.state.ended_early and run.is_recorded for run in experiment.runs)


def _cell(spec: ExperimentSpec) -> ExperimentSpec:
    """The same for a cell and for its repetition run by run where the device lacked memory."""
    return replace(spec, schedule="turns", fallback_of=None)
