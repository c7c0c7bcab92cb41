"""A run that was profiled, what is known beside its profile, and what a finding in it is."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.variants import Variant, parse_backends
from breakeven.storage.profile.profiles import Profile

Kind = Literal[
    "attention_unfused", "float32_products", "tf32_off", "device_idle", "underfilled",
    "graph_breaks", "recompiled", "random_as_eager", "padding", "small_kernels", "costly_kernel",
    "optimizer_unfused", "copied_each_step",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """What would show whether a finding holds."""

    fields: tuple[tuple[str, Any], ...]
    """Fields of the specification, by path, and their new values."""
    backend: str | None = None
    """Where it is a further variant of the same experiment, that one, as `backends` names it."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something in a run's steps that costs time."""

    kind: Kind
    label: str
    seconds: float | None
    """Of a step, that are at stake: the most that mending it could save, of graph breaks the least;
    None where that cannot be told."""
    share: float | None = None
    """Of the run's step, the same."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What was seen, by name: the evidence."""
    remedy: Remedy | None = None
    also: tuple[tuple[str, float | None], ...] = ()
    """Labels of other runs that have the same, and the seconds at stake there."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run that was profiled, and what is known beside its profile."""

    spec: ExperimentSpec
    variant: Variant
    text: str | None
    """The run's backend as the experiment names it; None for baseline and controls."""
    profile: Profile
    baseline: Profile | None
    """None for the baseline itself."""
    workload: dict[str, Any]
    breaks: pd.DataFrame
    """Graph breaks of the run: location, reason, count."""
    frames: pd.DataFrame
    """Compiled frames of the run."""

    @property
    def step_seconds(self) -> float:
        """By the clock, or, without a timed step, by the profiler."""
        return self.profile.step_seconds or self.profile.busy_seconds

    @property
    def is_compiled(self) -> bool:
        return self.variant.backend is not None

    def share(self, seconds: float) -> float:
        return seconds / self.step_seconds

    def seconds(self, *classes: str) -> float:
        return float(self.profile.by_class[list(classes)].sum())

    def found(
        self, kind: Kind, seconds: float | None, remedy: Remedy | None = None, **facts: Any
    ) -> Finding:
        share = None if seconds is None else self.share(seconds)
        label = self.profile.label
        if self.spec.is_script and remedy is not None and remedy.backend is None:
            remedy = None  # what a script computes, and how, only its author can change
        return Finding(
            kind=kind, label=label, seconds=seconds, share=share, facts=facts, remedy=remedy
        )

    def with_setting(self, name: str, value: str) -> Remedy | None:
        """The run's backend with one setting more, unless it has it; None where there is none."""
        if self.text is None or self.variant.backend != "inductor":
            return None
        separator = "+" if ":" in self.text else ":"
        text = f"{self.text}{separator}{name}={value}"
        if text in self.spec.backends:
            return None
        return Remedy(fields=(("backends", (*self.spec.backends, text)),), backend=text)


def variant_of(spec: ExperimentSpec, label: str) -> tuple[Variant, str | None]:
    """The variant that a result is of, and how the experiment's `backends` name it."""
    first = spec.repeats_by_label[label][0]
    variant = next(one for one in spec.possible_variants if one.label == first)
    labels = [one.label for one in parse_backends(spec.backends)]
    return variant, dict(zip(labels, spec.backends, strict=True)).get(label)
