"""Why each run of an experiment is faster or slower than the baseline: everything in one place."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import pandas as pd

from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.profile.bridge import Bridge, OwnSpeedup, bridge, own_speedup
from breakeven.storage.profile.case import Case, Finding, variant_of
from breakeven.storage.profile.findings import findings
from breakeven.storage.profile.profiles import Profile, load_profiles

NOT_A_PERSONS = ("runner/worker/", "torch/")
"""Where graph breaks lie that nobody can mend: at the `loss.backward()` of Breakeven's own step, or
where torch itself asks for one."""


MAX_KEPT = 8
"""Explanations kept per store."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """What profiles say of an experiment's runs."""

    comparison: Comparison
    profiles: tuple[Profile, ...]
    """One for each result, in their order."""
    bridges: dict[str, Bridge]
    """By label, of the backends that were timed and profiled beside such a baseline."""
    own_speedups: dict[str, OwnSpeedup]
    """By label, where the device works by itself."""
    findings: tuple[Finding, ...]
    """The most costly first."""

    @property
    def is_known(self) -> bool:
        """Whether any run was profiled."""
        return any(one.is_known for one in self.profiles)

    def profile_of(self, label: str) -> Profile:
        return next(one for one in self.profiles if one.label == label)


def explain(store: Store, experiment_id: str) -> Explanation:
    """Raises `NotInStore`. Without any profile everything but the comparison is empty.

    Kept as long as the comparison is the same: one in which anything changed is another object.
    """
    comparison = compare(store, experiment_id)
    kept = _kept.setdefault(store, {})
    known = kept.get(experiment_id)
    if known is None or known.comparison is not comparison:
        known = kept[experiment_id] = _explain(store, comparison)
        for oldest in list(kept)[:-MAX_KEPT]:
            kept.pop(oldest, None)
    return known


_kept: WeakKeyDictionary[Store, dict[str, Explanation]] = WeakKeyDictionary()


def _explain(store: Store, comparison: Comparison) -> Explanation:
    profiles = load_profiles(store, comparison)
    baseline = next((one for one in profiles if one.label == comparison.baseline), None)
    backends = {one.label for one in comparison.results if one.role == "backend"}
    others = [one for one in profiles if one.label in backends]
    bridges = {one.label: bridge(baseline, one) for one in others if baseline is not None}
    speedups = {one.label: own_speedup(baseline, one) for one in others if baseline is not None}
    return Explanation(
        comparison=comparison,
        profiles=tuple(profiles),
        bridges={label: found for label, found in bridges.items() if found is not None},
        own_speedups={label: found for label, found in speedups.items() if found is not None},
        findings=tuple(findings(_cases(store, comparison, profiles, baseline))),
    )


def _cases(
    store: Store, comparison: Comparison, profiles: list[Profile], baseline: Profile | None
) -> list[Case]:
    if not any(profile.is_known for profile in profiles):
        return []
    experiment_id, spec = comparison.experiment_id, comparison.spec
    breaks, frames = (
        _in_training(ask(store, experiment_id))
        for ask in (queries.graph_breaks, queries.compile_metrics)
    )
    breaks = breaks[breaks["cause"] == "code"]
    breaks = breaks[~breaks["location"].fillna("").str.startswith(NOT_A_PERSONS)]
    workloads = queries.workloads(store, experiment_id).set_index("label")
    is_known = baseline is not None and baseline.is_known
    cases = []
    for profile in profiles:
        variant, text = variant_of(spec, profile.label)
        # Controls are baselines once more: what is found there was found already.
        if variant.role == "control" or not profile.is_known:
            continue
        labels = spec.repeats_by_label[profile.label]
        cases.append(
            Case(
                spec=spec,
                variant=variant,
                text=text,
                profile=profile,
                baseline=baseline if is_known and profile is not baseline else None,
                workload=workloads.loc[labels[0]].to_dict() if labels[0] in workloads.index else {},
                breaks=breaks[breaks["label"] == labels[0]],
                frames=frames[frames["label"] == labels[0]],
            )
        )
    return cases


def _in_training(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["phase"] == "training"]
