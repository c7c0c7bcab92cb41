"""The profile of each run of an experiment: its turns, and the kernels of the one in the middle.

A profile is believed if its parts are no longer than the step that they are parts of. On several
devices, a rank that comes early to a collective waits in it, and its kernel runs all the while, for
as long as others dawdle under the profiler. So sending takes what it takes the rank that waits
least, beyond what its own computing hides. How long a timed step waits, the clock says: idle time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from breakeven.runner.folders.states import MAX_TIME, RunState
from breakeven.storage import queries
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.index.store import Store
from breakeven.storage.profile.classes import CLASSES, classify

SLACK = 1.10
"""Parts may add up to so much of their step."""
PACE = 1.5
"""Times that a profiled step may take of a timed one, and the other way round, where the CPUs are
the device. The profiler itself costs 0.5 us a call, some per cent of a step; what is beyond that
was taken by other processes, which slow operators and Python unlike."""

Kind = Literal["times", "sum", "pace"]
SENDS = "nccl"
"""In the name of each kernel that sends."""
IDLE = "idle"
"""A further class: the part of a step's time by the clock in which no kernel worked."""


@dataclass(frozen=True)
class Misfit:
    """Why a profile is not believed."""

    kind: Kind
    seconds: float = math.nan
    """Of the parts together; where the pace does not fit, of a profiled step."""
    step_seconds: float = math.nan
    """That they should come to."""


def misfit(
    kernels: pd.Series, turn: pd.Series, step_seconds: float | None, *, works_by_itself: bool
) -> Misfit | None:
    """Whether anything speaks against a profiled turn.

    `kernels`: seconds a step of each kernel. `turn`: the row of the turn, as `queries.profiles`
    gives it, its `seconds` those of a profiled step. `step_seconds`: of a timed one, if any was.
    """
    host = host_seconds(turn).values()
    parts = [one for one in (turn.get("underfilled_seconds"), *host) if not pd.isna(one)]
    times = [*kernels, *parts]
    if not all(map(_is_time, times)):
        return Misfit("times")
    total, profiled = float(kernels.sum()), float(turn["seconds"])
    longest = max(total, float(turn["busy_seconds"]), *times)
    if longest > SLACK * profiled:
        return Misfit("sum", longest, profiled)
    if not total / SLACK <= turn["busy_seconds"] <= total * SLACK:
        return Misfit("sum", total, float(turn["busy_seconds"]))
    if step_seconds is None:
        return None
    if works_by_itself:
        return Misfit("sum", total, step_seconds) if total > SLACK * step_seconds else None
    fits = 1 / PACE <= profiled / step_seconds <= PACE
    return None if fits else Misfit("pace", profiled, step_seconds)


def host_seconds(turn: pd.Series) -> dict[str, Any]:
    """What the host did in a profiled turn, by name; empty where the journal does not say."""
    times = turn.get("host_seconds")
    return times if isinstance(times, dict) else {}


def _is_time(seconds: Any) -> bool:
    """Whether a run can have measured this: a journal may come from anywhere."""
    return isinstance(seconds, int | float) and 0 <= seconds < MAX_TIME


def turns_without_waiting(
    turns: pd.DataFrame, kernels: pd.DataFrame, ranks: pd.DataFrame
) -> pd.DataFrame:
    """`queries.profiles` with `busy_seconds` of computing and sending, and `underfilled_seconds`
    without the kernels that send, which fill no device. Of runs on one device the same."""
    sends = kernels["name"].str.contains(SENDS, case=False, na=False)
    if not sends.any():
        return turns
    # The last word of a turn: a journal may say it twice.
    computing = ranks[ranks["rank"] == 0].groupby(["label", "round"])["compute_seconds"].last()
    busy = computing + sending_seconds(ranks)
    few_blocks = kernels[sends].groupby(["label", "round"])["seconds"].sum()
    whose = pd.MultiIndex.from_frame(turns[["label", "round"]])
    known = busy.reindex(whose).to_numpy()
    underfilled = (
        turns["underfilled_seconds"] - few_blocks.reindex(whose, fill_value=0.0).to_numpy()
    )
    return turns.assign(
        busy_seconds=turns["busy_seconds"].where(pd.isna(known), known),
        underfilled_seconds=underfilled.clip(lower=0.0),
    )


def kernels_without_waiting(
    kernels: pd.DataFrame, turn: pd.Series, ranks: pd.DataFrame
) -> pd.DataFrame:
    """Kernels of a turn, of which those that ran at once share the time, with the seconds that
    computing and sending take as in `turns_without_waiting`. On one device the same."""
    sending = sending_seconds(ranks).get((turn["label"], turn["round"]))
    sends = kernels["work_class"] == "communication"
    if sending is None or pd.isna(sending) or not sends.any():
        return kernels
    totals = kernels.groupby(sends)["seconds"].sum()
    factors = {True: sending / totals[True]}
    if False in totals:
        factors[False] = (turn["busy_seconds"] - sending) / totals[False]
    return kernels.assign(seconds=kernels["seconds"] * sends.map(factors))


def sending_seconds(ranks: pd.DataFrame) -> pd.Series:
    """Seconds a step by label and round, of `queries.rank_profiles`; NaN where a rank is silent."""
    return ranks.groupby(["label", "round"])["exposed_seconds"].agg(
        lambda seconds: seconds.min(skipna=False)
    )


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Where the time of a run's steps goes. Seconds are of one step."""

    label: str
    step_seconds: float | None
    """By the clock, from the timed rounds, not from the profiled ones."""
    state: RunState
    works_by_itself: bool
    """Whether the device goes on while the host does something else. Where the CPUs are the device,
    what no operator took is Python and the operators' own preparations."""
    turns: pd.DataFrame
    """A row for each profiled turn that succeeded, as `queries.profiles` gives it."""
    kernels: pd.DataFrame
    """name, work_class, op, phase, dtype, calls, seconds: of the turn whose time was in the
    middle. Empty where the profile is not believed."""
    cost_seconds: float
    """Wall time that all its profiled turns took; none of it is in a timing."""
    failures: tuple[str, ...] = ()
    misfit: Misfit | None = None
    """Why the profile is not believed."""
    scale: float = 1.0
    """Seconds here for each in the profiled turn."""

    @property
    def is_known(self) -> bool:
        return not self.kernels.empty

    @property
    def busy_seconds(self) -> float:
        return float(self.kernels["seconds"].sum())

    @property
    def idle_seconds(self) -> float | None:
        """What the clock says beyond the kernels; None without a timed step."""
        step = self.step_seconds
        return None if step is None else max(0.0, step - self.busy_seconds)

    @property
    def idle_share(self) -> float | None:
        idle = self.idle_seconds
        return None if idle is None or not self.step_seconds else idle / self.step_seconds

    @cached_property
    def by_class(self) -> pd.Series:
        """Seconds by class, every key of `CLASSES` and, with a timed step, `IDLE`."""
        found = self.kernels.groupby("work_class")["seconds"].sum()
        found = found.reindex(list(CLASSES), fill_value=0.0)
        if self.idle_seconds is not None:
            found[IDLE] = self.idle_seconds
        return found

    @property
    def unknown_share(self) -> float:
        """Share of the kernels' time that no rule knows."""
        return float(self.by_class["other"] / self.busy_seconds) if self.busy_seconds else 0.0

    @property
    def unknown_kernels(self) -> list[str]:
        """Names of the kernels that no rule knows, those that take longest first."""
        unknown = self.kernels[self.kernels["work_class"] == "other"]
        seconds = unknown.groupby("name")["seconds"].sum().sort_values(ascending=False)
        return list(map(str, seconds.index))

    @property
    def middle(self) -> pd.Series:
        """The turn that `kernels` is of."""
        order = self.turns.sort_values("busy_seconds", kind="stable")
        return order.iloc[(len(order) - 1) // 2]


def hides_optimizer(baseline: Profile, run: Profile) -> bool:
    """Whether a run compiled its optimizer with the rest of the step, so that nothing tells what of
    its work the optimizer's is."""
    before, after = (float(one.by_class["optimizer"]) for one in (baseline, run))
    return before > 0 and after == 0


def load_profiles(store: Store, comparison: Comparison) -> list[Profile]:
    """One for each result, in their order; those of runs without a profile are not `is_known`."""
    kernels = queries.profile_kernels(store, comparison.experiment_id)
    ranks = queries.rank_profiles(store, comparison.experiment_id)
    turns = queries.profiles(store, comparison.experiment_id)
    if len(ranks):
        turns = turns_without_waiting(turns, kernels, ranks)
    devices = queries.environments(store, comparison.experiment_id)
    on_cpu = set(devices.loc[devices["device_type"] == "cpu", "label"])
    nothing = classified(kernels.iloc[:0])
    return [
        _profile(
            one,
            labels,
            turns,
            kernels,
            ranks,
            nothing,
            works_by_itself=not on_cpu.intersection(labels),
        )
        for one in comparison.results
        for labels in [comparison.spec.repeats_by_label[one.label]]
    ]


def _profile(
    result: Result,
    labels: Sequence[str],
    turns: pd.DataFrame,
    kernels: pd.DataFrame,
    ranks: pd.DataFrame,
    nothing: pd.DataFrame,
    *,
    works_by_itself: bool,
) -> Profile:
    """The repeats of a run count as one: the turn in the middle is that of all of them."""
    mine = turns[turns["label"].isin(labels)] if len(turns) else turns
    profile = Profile(
        label=result.label,
        step_seconds=result.measured.step_seconds,
        state=RunState(result.state),
        works_by_itself=works_by_itself,
        turns=mine,
        kernels=nothing,
        cost_seconds=0.0,
    )
    if mine.empty:
        return profile
    # Kernels of a turn in which something compiled are no steady step's.
    is_steady = ~mine["compiled"].fillna(False).astype(bool)
    times = mine[["busy_seconds", "seconds"]]
    sound = mine[is_steady & (times.gt(0) & times.lt(MAX_TIME)).all(axis=1)]
    profile = replace(
        profile,
        turns=sound,
        cost_seconds=float(mine["cost_seconds"].sum()),
        failures=tuple(mine["failure"].dropna().unique()),
    )
    if sound.empty:
        is_odd = bool((is_steady & mine["failure"].isna()).any())
        return replace(profile, misfit=Misfit("times") if is_odd else None)
    middle = profile.middle
    chosen = (kernels["label"] == middle["label"]) & (kernels["round"] == middle["round"])
    found = classified(kernels[chosen])
    return believed(replace(profile, kernels=kernels_without_waiting(found, middle, ranks)))


def believed(profile: Profile) -> Profile:
    """The profile as everybody shows it: with its parts in the time that a timed step takes, or
    without any where they cannot be true.

    Where the CPUs are the device parts are shares of the profiled step, whatever other processes
    took of it. A device that works by itself takes as long for its kernels as it does at any time.
    """
    middle, step = profile.middle, profile.step_seconds
    seconds = profile.kernels["seconds"]
    found = misfit(seconds, middle, step, works_by_itself=profile.works_by_itself)
    if found is not None:
        return replace(profile, kernels=profile.kernels.iloc[:0], misfit=found)
    if step is None or not len(seconds):
        return profile
    scale = min(1.0, step / seconds.sum())
    if not profile.works_by_itself:
        scale = step / max(middle["seconds"], seconds.sum())
    return replace(profile, kernels=profile.kernels.assign(seconds=seconds * scale), scale=scale)


def classified(kernels: pd.DataFrame) -> pd.DataFrame:
    """Rows of `queries.profile_kernels` with the class of each."""
    columns = ["name", "op", "phase", "dtype"]
    classes = []
    if len(kernels):
        rows = kernels[columns].astype(object).where(kernels[columns].notna(), None)
        classes = [classify(*row) for row in rows.itertuples(index=False, name=None)]
    found = kernels.assign(work_class=pd.Series(classes, index=kernels.index, dtype=object))
    return found[["name", "work_class", "op", "phase", "dtype", "calls", "seconds"]]
