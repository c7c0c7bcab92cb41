"""The experiment that measures a run again."""

from dataclasses import replace

from breakeven.runner.errors import RunnerError
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.variants import ENVIRONMENT_MARK, parse_backend


def replay(spec: ExperimentSpec, experiment_id: str, label: str) -> ExperimentSpec:
    """An experiment that measures a run again, with a baseline and at least one control. All other
    settings are unchanged, also the seed. Only dropout becomes explicit, because another backend
    may have decided it (`ExperimentSpec.has_dropout`). Raises `RunnerError` if the experiment has
    no such run, or times no run together with a baseline.
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
    """The backend of a run, as written in the specification; empty for baseline and control.

    `label`: of a run, one of its repeats, or all repeats together. Raises `RunnerError` for an
    unknown label.
    """
    for text in spec.backends:
        if label in labels_of(spec, text):
            return (text,)
    together = {one for whole, each in spec.repeats_by_label.items() for one in (whole, *each)}
    if label not in together:
        raise RunnerError(f"no run {label!r}; there are {', '.join(sorted(together))}")
    return ()


def labels_of(spec: ExperimentSpec, backend: str) -> set[str]:
    """The labels of a backend's runs, and the label of all of them together."""
    together = parse_backend(backend).label
    return {
        label
        for whole, runs in spec.repeats_by_label.items()
        if whole.partition(ENVIRONMENT_MARK)[0] == together
        for label in (whole, *runs)
    }
