"""Measuring a run again: the experiment that does so, and nothing that it does not need."""

from dataclasses import replace

from breakeven.runner.errors import RunnerError
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.variants import parse_backend


def replay(spec: ExperimentSpec, experiment_id: str, label: str) -> ExperimentSpec:
    """An experiment that measures a run again, with a baseline and at least one control.  All other
    settings are unchanged, the seed too. Only dropout becomes explicit, because another backend may
    have decided it (`ExperimentSpec.has_dropout`). Raises `RunnerError` if the experiment has no
    such run, or none that is timed with a baseline.
    """
    if not spec.kind.compares_runs:
        raise RunnerError(
            f"the scenario {spec.scenario!r} times no run together with a baseline, so there is "
            "no number to measure again; run the whole experiment again"
        )
    return replace(
        spec.on_its_own,
        backends=backends_of(spec, label),
        controls=max(1, spec.controls),
        model=replace(spec.model, dropout="keep" if spec.has_dropout else "off"),
        replay_of=experiment_id,
    )


def backends_of(spec: ExperimentSpec, label: str) -> tuple[str, ...]:
    """The backend that a run is of, as the specification names it; none for baseline and control.

    `label` is that of a run, one of several repeats among them, or of all of them together. Raises
    `RunnerError` if there is none.
    """
    for text in spec.backends:
        if label in labels_of(spec, text):
            return (text,)
    together = {one for whole, each in spec.repeats_by_label.items() for one in (whole, *each)}
    if label not in together:
        raise RunnerError(f"no run {label!r}; there are {', '.join(sorted(together))}")
    return ()


def labels_of(spec: ExperimentSpec, backend: str) -> set[str]:
    """What the runs of a backend are called, each and together."""
    together = parse_backend(backend).label
    return {together, *spec.repeats_by_label.get(together, ())}
