"""Loads the profile of each run of an experiment: its turns, and the kernels of the median turn.

A profile is valid if its parts are no longer than their step. On several devices, a rank that
reaches a collective early waits in it, and its kernel runs all the while, longer than usual because
of the profiler. Communication time is therefore the exposed time of the rank that waits least. The
waiting in a timed step is part of its idle time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd

from breakeven.runner.protocol.records import MAX_TIME
from breakeven.runner.protocol.states import RunState
from breakeven.storage import queries
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.comparison.run_numbers import memory_needed
from breakeven.storage.index.store import Store
from breakeven.storage.profile.kernel_classes import CLASSES, classify

SLACK = 1.10
"""Largest sum of the parts over their step."""
PACE = 1.5
"""Largest ratio between the times of a profiled and a timed step on a CPU, in both directions. The
profiler costs 0.5 us per call, some percent of a step; larger differences are from other processes,
which slow operators and Python differently."""

Kind = Literal["times", "sum", "pace"]
SENDS = "nccl"
"""Part of the name of each communication kernel."""
IDLE = "idle"
"""A further class: the part of a timed step in which no kernel ran."""


@dataclass(frozen=True)
class Misfit:
    """Why a profile is invalid."""

    kind: Kind
    seconds: float = math.nan
    """Sum of the parts; for the kind "pace", time of a profiled step."""
    step_seconds: float = math.nan
    """The expected value of `seconds`."""


def misfit(
    kernels: pd.Series, turn: pd.Series, step_seconds: float | None, *, works_by_itself: bool
) -> Misfit | None:
    """The reason why a profiled turn is invalid; None if it is valid.

    `kernels`: seconds per step of each kernel. `turn`: a row of `queries.profiles`, whose `seconds`
    is the time of a profiled step. `step_seconds`: the time of a timed step, if known.
    """
    host = host_seconds(turn).values()
    parts = [part for part in (turn.get("underfilled_seconds"), *host) if not pd.isna(part)]
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
    """Seconds of the host's work in a profiled turn, by name; empty if not recorded."""
    times = turn.get("host_seconds")
    return times if isinstance(times, dict) else {}


def _is_time(seconds: Any) -> bool:
    """Whether this is a plausible time; a journal may come from an unknown source."""
    return isinstance(seconds, int | float) and 0 <= seconds < MAX_TIME


def turns_without_waiting(
    turns: pd.DataFrame, kernels: pd.DataFrame, ranks: pd.DataFrame
) -> pd.DataFrame:
    """`queries.profiles` with `busy_seconds` of computing and communication without waiting, and
    `underfilled_seconds` without communication. Runs on one device are unchanged."""
    sends = kernels["name"].str.contains(SENDS, case=False, na=False)
    if not sends.any():
        return turns
    # The last row of a turn counts, because a journal may have several.
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
    """Kernels of a turn, scaled to the times of `turns_without_waiting`; simultaneous kernels share
    the time. Runs on one device are unchanged."""
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
    """Communication seconds per step by label and round; NaN if a rank has no value."""
    return ranks.groupby(["label", "round"])["exposed_seconds"].agg(
        lambda seconds: seconds.min(skipna=False)
    )


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How the steps of a run spend their time. Seconds are per step."""

    label: str
    step_seconds: float | None
    """Step time from the timed rounds, not from the profiled ones."""
    state: RunState
    works_by_itself: bool
    """Whether the device works independently of the host. On a CPU, the time without an operator is
    Python and preparation of operators."""
    turns: pd.DataFrame
    """A row of `queries.profiles` for each successful profiled turn."""
    kernels: pd.DataFrame
    """name, work_class, op, phase, dtype, calls, seconds of the turn with the median time. Empty if
    the profile is invalid."""
    cost_seconds: float
    """Wall time of all profiled turns; no timing includes it."""
    failures: tuple[str, ...] = ()
    misfit: Misfit | None = None
    """Why the profile is invalid."""
    scale: float = 1.0
    """Seconds here over seconds in the profiled turn."""

    @property
    def is_known(self) -> bool:
        return not self.kernels.empty

    @property
    def busy_seconds(self) -> float:
        return float(self.kernels["seconds"].sum())

    @property
    def idle_seconds(self) -> float | None:
        """Step time minus the time of kernels; None without a timed step."""
        step = self.step_seconds
        return None if step is None else max(0.0, step - self.busy_seconds)

    @property
    def idle_share(self) -> float | None:
        idle = self.idle_seconds
        return None if idle is None or not self.step_seconds else idle / self.step_seconds

    @cached_property
    def by_class(self) -> pd.Series:
        """Seconds by class: all keys of `CLASSES` and, with a timed step, `IDLE`."""
        seconds = self.kernels.groupby("work_class")["seconds"].sum()
        seconds = seconds.reindex(list(CLASSES), fill_value=0.0)
        if self.idle_seconds is not None:
            seconds[IDLE] = self.idle_seconds
        return seconds

    @property
    def unknown_share(self) -> float:
        """Share of the kernels' time that matches no rule."""
        return float(self.by_class["other"] / self.busy_seconds) if self.busy_seconds else 0.0

    @property
    def unknown_kernels(self) -> list[str]:
        """Names of kernels that match no rule, the slowest first."""
        unknown = self.kernels[self.kernels["work_class"] == "other"]
        seconds = unknown.groupby("name")["seconds"].sum().sort_values(ascending=False)
        return list(map(str, seconds.index))

    @property
    def middle(self) -> pd.Series:
        """The median turn, from which `kernels` comes."""
        order = self.turns.sort_values("busy_seconds", kind="stable")
        return order.iloc[(len(order) - 1) // 2]

    @property
    def waited_seconds(self) -> float | None:
        """Median of the steps that were waited for in the first turn; None without. After a profile
        steps are slower (docs/own-training.md), so those of later turns do not count."""
        first = self.turns["waited_seconds"].iloc[0]
        return None if pd.isna(first) else float(first)


def hides_optimizer(baseline: Profile, run: Profile) -> bool:
    """Whether a run compiled its optimizer with the rest of the step, so that the time of the
    optimizer is unknown."""
    before, after = (float(profile.by_class["optimizer"]) for profile in (baseline, run))
    return before > 0 and after == 0


def load_profiles(store: Store, comparison: Comparison) -> list[Profile]:
    """One profile per result, in their order; `is_known` is false for runs without a profile."""
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
            result,
            labels,
            turns,
            kernels,
            ranks,
            nothing,
            works_by_itself=not on_cpu.intersection(labels),
        )
        for result in comparison.results
        for labels in [comparison.spec.repeats_by_label[result.label]]
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
    """The profile of a run with all its repeats, whose turns together give the median turn."""
    own_turns = turns[turns["label"].isin(labels)] if len(turns) else turns
    profile = Profile(
        label=result.label,
        step_seconds=result.measured.step_seconds,
        state=RunState(result.state),
        works_by_itself=works_by_itself,
        turns=own_turns,
        kernels=nothing,
        cost_seconds=0.0,
    )
    if own_turns.empty:
        return profile
    # The kernels of a turn that compiled do not represent a steady step.
    is_steady = ~own_turns["compiled"].fillna(False).astype(bool)
    times = own_turns[["busy_seconds", "seconds"]]
    sound = own_turns[is_steady & (times.gt(0) & times.lt(MAX_TIME)).all(axis=1)]
    profile = replace(
        profile,
        turns=sound,
        cost_seconds=float(own_turns["cost_seconds"].sum()),
        failures=tuple(own_turns["failure"].dropna().unique()),
    )
    if sound.empty:
        is_odd = bool((is_steady & own_turns["failure"].isna()).any())
        return replace(profile, misfit=Misfit("times") if is_odd else None)
    middle = profile.middle
    chosen = (kernels["label"] == middle["label"]) & (kernels["round"] == middle["round"])
    of_turn = classified(kernels[chosen])
    return scaled_to_timed_step(
        replace(profile, kernels=kernels_without_waiting(of_turn, middle, ranks))
    )


def scaled_to_timed_step(profile: Profile) -> Profile:
    """The profile for display, with its parts scaled to a timed step; without parts if it is
    invalid.

    On a CPU, the parts are shares of the profiled step, whatever time other processes used. Other
    devices need as much time for kernels in a profiled step as in a timed one.
    """
    middle, step = profile.middle, profile.step_seconds
    seconds = profile.kernels["seconds"]
    problem = misfit(seconds, middle, step, works_by_itself=profile.works_by_itself)
    if problem is not None:
        return replace(profile, kernels=profile.kernels.iloc[:0], misfit=problem)
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
    with_classes = kernels.assign(work_class=pd.Series(classes, index=kernels.index, dtype=object))
    return with_classes[["name", "work_class", "op", "phase", "dtype", "calls", "seconds"]]


SECONDS = ["compute_seconds", "communication_seconds", "exposed_seconds"]
OF_RANK = ["label", "rank"]
"""Columns that identify a rank; seconds are per step, medians over the profiled turns, and missing
without a profile."""


def ranks_of(store: Store, experiment_id: str) -> pd.DataFrame:
    """label, rank, seconds and peak memory of each rank of every run on several devices, in the
    order of the arms."""
    known = [
        (
            *key,
            blocks["compile_seconds"].sum(min_count=1),
            memory_needed(blocks, on_cpu=bool(blocks["reserved_memory_bytes"].isna().all())),
        )
        for key, blocks in queries.rank_blocks(store, experiment_id).groupby(OF_RANK, sort=False)
    ]
    seconds = queries.rank_profiles(store, experiment_id).groupby(OF_RANK)[SECONDS].median()
    columns = [*OF_RANK, "rank_compile_seconds", "peak_memory_bytes"]
    by_rank = pd.DataFrame(known, columns=columns).join(seconds, on=OF_RANK)
    return by_rank[[*OF_RANK, *SECONDS, *columns[2:]]]


def collectives(store: Store, experiment_id: str) -> pd.DataFrame:
    """label, collective, calls, sent_bytes of rank 0 of every run; bytes are missing if a profiled
    turn lacks them."""
    rows = queries.collectives(store, experiment_id)
    kinds = rows[rows["rank"] == 0].rename(columns={"name": "collective"})
    return kinds.groupby(["label", "collective"], as_index=False).agg(
        calls=("calls", "median"),
        sent_bytes=("sent_bytes", lambda sizes: sizes.median(skipna=False)),
    )


def by_run(store: Store, experiment_id: str) -> pd.DataFrame:
    """A row for each run, over all of its ranks.

    Communication times are those of the rank that waits least, the best estimate without waiting: a
    collective lasts from a rank's arrival until the last rank is done. `slowest_rank` computes
    longest; `rank_lag` is its extra compute time over the fastest rank, as a share; `compile_skew`
    is how much longer one rank compiled than another. `sent_bytes` are those of all collectives of
    a step, and missing if one of them is. What is known of no run, as without a profile, has no
    column.
    """
    sizes = collectives(store, experiment_id).groupby("label")["sent_bytes"]
    sent = sizes.agg(lambda known: known.sum(skipna=False))
    rows = []
    for label, ranks in ranks_of(store, experiment_id).groupby("label", sort=False):
        computed = ranks.set_index("rank")["compute_seconds"].dropna()
        times = computed[computed > 0]
        rows.append(
            {
                "run": label,
                "communication_seconds": ranks["communication_seconds"].min(),
                "exposed_seconds": ranks["exposed_seconds"].min(),
                "sent_bytes": sent.get(label),
                "slowest_rank": None if computed.empty else f"rank {computed.idxmax()}",
                "compile_skew": np.ptp(ranks["rank_compile_seconds"].to_numpy(float)),
                "rank_lag": None if times.empty else times.max() / times.min() - 1,
            }
        )
    return pd.DataFrame(rows).dropna(axis="columns", how="all")
