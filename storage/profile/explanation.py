"""Explains why each run of an experiment is faster or slower than the baseline.

A bridge divides the difference between the baseline's step time and a run's into classes; its parts
add up to the difference.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.profile.findings import Case, CostFinding, arm_of, findings
from breakeven.storage.profile.kernel_classes import CLASSES
from breakeven.storage.profile.recorded_profiles import (
    IDLE,
    Profile,
    hides_optimizer,
    load_profiles,
)
from breakeven.storage.result_caches import memo, revision
from breakeven.storage.statistics.intervals import half_width

NOT_USERS_CODE = ("runner/worker/", "torch/")
"""Places of graph breaks that users cannot fix: the `loss.backward()` of Breakeven's own step, and
breaks that torch itself requests."""


@dataclass(frozen=True, kw_only=True)
class Bridge:
    """The difference between two runs' step times by class of kernels."""

    baseline: Profile
    run: Profile
    parts: pd.DataFrame
    """work_class, baseline, run, difference: seconds per step, in the order of `CLASSES`, idle time
    last. The differences add up to that of the step times."""

    @property
    def difference(self) -> float:
        """Seconds of the run's step minus those of the baseline's."""
        return float(self.parts["difference"].sum())

    @property
    def kernels(self) -> pd.DataFrame:
        """name, work_class, baseline, run, difference: seconds per step of each kernel whose time
        differs, the largest difference first."""
        sides = {"baseline": self.baseline.kernels, "run": self.run.kernels}
        differences = pd.DataFrame(
            {
                side: kernels.groupby(["name", "work_class"])["seconds"].sum()
                for side, kernels in sides.items()
            }
        ).fillna(0.0)
        differences["difference"] = differences["run"] - differences["baseline"]
        order = differences["difference"].abs().sort_values(ascending=False, kind="stable").index
        differences = differences.loc[order].reset_index()
        return differences[differences["difference"] != 0]


@dataclass(frozen=True, kw_only=True)
class OwnSpeedup:
    """Speedup of the device's own time: the baseline's kernel time over the run's."""

    ratio: float
    low: float | None
    """95 % interval; None with a single turn."""
    high: float | None
    num_turns: int


def bridge(baseline: Profile, run: Profile) -> Bridge | None:
    """The bridge between two runs; None unless both were timed and profiled."""
    if not (baseline.is_known and run.is_known):
        return None
    if baseline.step_seconds is None or run.step_seconds is None:
        return None
    parts = pd.DataFrame({"baseline": baseline.by_class, "run": run.by_class})
    if hides_optimizer(baseline, run):  # The run's other kernels include the optimizer.
        parts.loc["elementwise"] += parts.loc["optimizer"]
        parts.loc["optimizer"] = 0.0
    parts["difference"] = parts["run"] - parts["baseline"]
    is_there = (parts[["baseline", "run"]] != 0).any(axis=1) | (parts.index == IDLE)
    parts = parts[is_there].rename_axis("work_class").reset_index()
    return Bridge(baseline=baseline, run=run, parts=parts)


def own_speedup(baseline: Profile, run: Profile) -> OwnSpeedup | None:
    """Speedup of the kernels alone, without gaps in which the device waited for the host. None on a
    CPU, whose own time is the wall time.

    The geometric mean over turns; the interval is Student's t for the mean of the logarithms of
    ratios paired by turn (Student 1908). It covers differences of turns, not of processes.
    """
    if not (baseline.is_known and run.is_known and run.works_by_itself):
        return None
    pairs = zip(baseline.turns["busy_seconds"], run.turns["busy_seconds"], strict=False)
    logs = np.array([math.log(before / after) for before, after in pairs])
    middle = float(logs.mean())
    width = half_width(logs) if len(logs) > 1 else None
    return OwnSpeedup(
        ratio=math.exp(middle),
        low=None if width is None else math.exp(middle - width),
        high=None if width is None else math.exp(middle + width),
        num_turns=len(logs),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """The results of profiles for an experiment's runs."""

    comparison: Comparison
    profiles: tuple[Profile, ...]
    """One profile per result, in their order."""
    bridges: dict[str, Bridge]
    """Bridges by label, for timed and profiled backends with such a baseline."""
    own_speedups: dict[str, OwnSpeedup]
    """Speedups by label, for devices that work independently of the host."""
    findings: tuple[CostFinding, ...]
    """The most costly first."""

    @property
    def is_known(self) -> bool:
        """Whether any run was profiled."""
        return any(profile.is_known for profile in self.profiles)

    def profile_of(self, label: str) -> Profile:
        return next(profile for profile in self.profiles if profile.label == label)


@memo(revision)
def explain(store: Store, experiment_id: str) -> Explanation:
    """Explains an experiment; without profiles only from what the compiler reported. Raises
    `NotInStore`."""
    comparison = compare(store, experiment_id)
    profiles = load_profiles(store, comparison)
    by_label = {profile.label: profile for profile in profiles}
    baseline = by_label.get(comparison.baseline)
    pairs = [
        (by_label[base.label], by_label[result.label])
        for result in comparison.results
        if result.role == "backend" and (base := comparison.baseline_of(result.label)) is not None
        if result.batch_times == 1  # The kernels of a larger batch compute other sizes.
    ]
    return Explanation(
        comparison=comparison,
        profiles=tuple(profiles),
        bridges={run.label: bridged for base, run in pairs if (bridged := bridge(base, run))},
        own_speedups={run.label: own for base, run in pairs if (own := own_speedup(base, run))},
        findings=tuple(findings(_cases(store, comparison, profiles, baseline))),
    )


def _cases(
    store: Store, comparison: Comparison, profiles: list[Profile], baseline: Profile | None
) -> list[Case]:
    experiment_id, spec = comparison.experiment_id, comparison.spec
    frames = queries.compile_metrics(store, experiment_id)
    frames = frames[frames["phase"] == "training"]
    breaks = queries.graph_breaks(store, experiment_id)
    breaks = breaks[(breaks["phase"] == "training") & (breaks["cause"] == "code")]
    breaks = breaks[~breaks["location"].fillna("").str.startswith(NOT_USERS_CODE)]
    workloads = queries.workloads(store, experiment_id).set_index("label")
    is_known = baseline is not None and baseline.is_known
    cases = []
    for profile in profiles:
        arm, text = arm_of(spec, profile.label)
        # Controls are further baselines and would give the same findings.
        if arm.role == "control":
            continue
        run = comparison.result_of(profile.label).run_id.partition(".")[2]
        cases.append(
            Case(
                spec=spec,
                arm=arm,
                text=text,
                profile=profile,
                baseline=baseline
                if is_known
                and profile.is_known
                and profile is not baseline
                and arm.batch_times == 1
                else None,
                workload=workloads.loc[run].to_dict() if run in workloads.index else {},
                breaks=breaks[breaks["label"] == run],
                frames=frames[frames["label"] == run],
            )
        )
    return cases


def seconds_by_class(explanation: Explanation) -> pd.DataFrame:
    """Seconds per step of every run, a row for each class that any run has."""
    frame = pd.DataFrame(
        {profile.label: profile.by_class for profile in explanation.profiles if profile.is_known}
    )
    frame = frame[(frame != 0).any(axis=1)].rename_axis("class").reset_index()
    return frame.assign(what=[CLASSES.get(name, name) for name in frame["class"]])


def profiles_table(explanation: Explanation) -> pd.DataFrame:
    """A row for each profiled run."""
    rows = []
    for profile in explanation.profiles:
        if not profile.is_known:
            continue
        own = explanation.own_speedups.get(profile.label)
        middle = profile.middle
        interval = "" if own is None or own.low is None else f"{own.low:.2f} to {own.high:.2f}"
        rows.append(
            {
                "run": profile.label,
                "step": profile.step_seconds,
                "kernels": profile.busy_seconds,
                "idle": profile.idle_seconds,
                "idle_share": profile.idle_share,
                "launches": middle["launches"] if profile.works_by_itself else None,
                "waited_for": profile.waited_seconds,
                "own_speedup": None if own is None else own.ratio,
                "its_interval": interval or DASH,
            }
        )
    frame = pd.DataFrame(rows).dropna(axis="columns", how="all")
    return frame if "own_speedup" in frame else frame.drop(columns="its_interval", errors="ignore")
