"""Experiments about one run of another experiment: a second measurement of the run, and trials that
find the cause of its fault."""

from dataclasses import dataclass, replace

from breakeven.runner.errors import RunnerError
from breakeven.runner.specs.arm_fields import ENVIRONMENT_MARK
from breakeven.runner.specs.arms import split_name
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import InvestigationSpec, Part, Problem

BUDGET_SECONDS = 900.0
"""Default time limit of an investigation."""
LONGEST_NAME = 120
LONGEST_ERROR = 500
DATA_FILE = "repro-data.pt"
"""Tensors of the training that the program reads, in its folder."""


@dataclass(kw_only=True)
class Finding:
    """What is known about a cause: the event `investigation_finding` of docs/events.md."""

    cause: str = "searching"
    compiler_stage: str | None = None
    subsystem: str | None = None
    subsystem_number: int | None = None
    operation: str | None = None
    labels: tuple[str, ...] = ()
    problem: str | None = None
    step: int | None = None
    quantity: str | None = None
    tensor: str | None = None
    max_error: float | None = None
    allowed_error: float | None = None
    error: str | None = None
    traceback: str | None = None
    graph: int | None = None
    num_graphs: int | None = None
    program: str | None = None
    num_nodes: int | None = None
    program_tries: int | None = None
    program_fails: int | None = None
    program_passes: int | None = None
    program_note: str | None = None
    environment: str | None = None
    generated_code: str | None = None


def investigation(
    spec: ExperimentSpec,
    experiment_id: str,
    label: str,
    problem: Problem,
    step: int = 0,
    budget_seconds: float = BUDGET_SECONDS,
    error: str = "",
    part: Part = "training",
) -> ExperimentSpec:
    """The experiment that investigates a run of a backend.

    Only dropout becomes explicit, because another backend may have decided it. Raises `RunnerError`
    for a run that cannot be investigated.
    """
    backends = run_backends(spec, label)
    arm = parse_backend(backends[0]) if backends else None
    if arm is None or arm.backend is None:
        raise RunnerError(f"{label} has no compiler, so no compiler is to blame for its fault")
    if arm.batch_times > 1:
        spec = spec.with_batch(arm.batch_times)
        backends = (replace(arm, batch_times=1).text,)
    return replace(
        spec.on_its_own,
        name=f"cause of {label} in {spec.name}"[:LONGEST_NAME],
        scenario="investigate",
        family=None,
        backends=backends,
        named_arms=(),
        model=replace(spec.model, dropout="keep" if spec.has_dropout else "off"),
        time_limit_seconds=budget_seconds,
        investigates=f"{experiment_id}.{label}",
        investigation=InvestigationSpec(
            problem=problem,
            step=step,
            error=error[:LONGEST_ERROR],
            part=part if spec.trains else "inference",
        ),
    )


def timed_again(spec: ExperimentSpec, label: str) -> ExperimentSpec:
    """An experiment that times a run again, with a baseline and at least one control. All other
    settings are unchanged, also the seed. Only dropout becomes explicit, because another backend
    may have decided it (`ExperimentSpec.has_dropout`). Raises `RunnerError` if the experiment has
    no such run, or times no run together with a baseline.
    """
    if not spec.kind.has_speedups:
        raise RunnerError(
            f"the scenario {spec.scenario!r} times no run together with a baseline, so there is "
            "no number to measure again"
        )
    return replace(
        spec.on_its_own,
        backends=run_backends(spec, label),
        named_arms=tuple(text for text in spec.named_arms if _is_run_of(spec, text, label)),
        controls=max(1, spec.controls),
        model=replace(spec.model, dropout="keep" if spec.has_dropout else "off"),
    )


def _is_run_of(spec: ExperimentSpec, named_arm: str, label: str) -> bool:
    """Whether a label is that of an arm with a name, or of one of its runs."""
    return label in _labels(spec, split_name(named_arm)[0])


def run_backends(spec: ExperimentSpec, label: str) -> tuple[str, ...]:
    """The backend of a run, as written in the specification; empty for baseline and control.

    `label`: of a run, one of its repeats, or all repeats together. Raises `RunnerError` for an
    unknown label.
    """
    for text in spec.backends:
        if label in backend_labels(spec, text):
            return (text,)
    together = {
        known_label
        for together_label, runs in spec.repeats_by_label.items()
        for known_label in (together_label, *runs)
    }
    if label not in together:
        raise RunnerError(f"no run {label!r}; there are {', '.join(sorted(together))}")
    return ()


def backend_labels(spec: ExperimentSpec, backend: str) -> set[str]:
    """The labels of a backend's runs, and the label of all of them together."""
    return _labels(spec, parse_backend(backend).label)


def _labels(spec: ExperimentSpec, together: str) -> set[str]:
    return {
        label
        for together_label, runs in spec.repeats_by_label.items()
        if together_label.partition(ENVIRONMENT_MARK)[0] == together
        for label in (together_label, *runs)
    }
