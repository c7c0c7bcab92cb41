"""An active experiment: progress, remaining time, activities, compile phases, other users."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from breakeven.runner.machine.cpus import CpuAllowance
from breakeven.runner.protocol.states import RunState
from breakeven.runner.texts import capital
from breakeven.storage import queries
from breakeven.storage.comparison.device_warnings import SHARED_CPU
from breakeven.storage.compiling.timeline import PhaseTimes
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import METRICS, NUMBERS
from breakeven.storage.queries.time_use import ELAPSED, KIND_OF_PHASE, elapsed
from breakeven.storage.remaining import Costs, costs_of, earlier_costs, remaining_seconds
from breakeven.storage.result_caches import always, memo
from breakeven.views.charts.palette import NEUTRAL, PHASE_DEPTHS, run_looks, run_mark
from breakeven.views.shared import words
from breakeven.views.shared.definition_links import anchor_html, linked
from breakeven.views.shared.inert import Html, Markdown, inert

_shown_shares: dict[tuple[int, str], tuple[pd.Timestamp, float]] = {}
"""By store and experiment: its start, and the largest share of its time that the page has shown as
done."""
MOST_DONE = 0.99
"""Largest share done of an active experiment."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of an experiment in time."""

    elapsed: float
    """Seconds with a process so far, those of earlier processes included."""
    phases: Mapping[str, float]
    """Elapsed seconds by activity, named as in `storage.queries.activities.ELAPSED`."""
    left: float | None
    """Estimated seconds to the end; None without an estimate."""
    share: float
    """Share of the time that is done: never decreases, below 1 while the experiment is active."""


def progress(store: Store, experiment_id: str, runs: pd.DataFrame) -> Progress | None:
    """`runs`: rows of `storage.queries.list_runs`; None before the first of them has started."""
    if runs["started"].isna().all():
        return None
    now, begun = time.time(), runs["started"].min()
    costs = costs_of(store, experiment_id), earlier_of(store, experiment_id)
    known = *costs, now, compiling_seconds(runs, now)
    rough = remaining_seconds(*known, guess=True)
    phases = _phases(store, experiment_id, runs, now)
    so_far = sum(phases.values())
    share = 0.0 if rough is None else so_far / max(so_far + rough, 1e-9)
    before = _shown_shares.get((store.id, experiment_id), (begun, 0.0))
    share = max(min(share, MOST_DONE), before[1] if before[0] == begun else 0.0)
    _shown_shares[store.id, experiment_id] = begun, share
    return Progress(
        elapsed=so_far,
        phases=phases,
        left=None if remaining_seconds(*known) is None else rough,
        share=share,
    )


def _phases(
    store: Store, experiment_id: str, runs: pd.DataFrame, now: float
) -> Mapping[str, float]:
    """Journals have past activities; the time since their last line counts as what runs do now."""
    seconds, last_line = elapsed(store, experiment_id)
    running = runs[runs["state"] == RunState.RUNNING]
    if last_line is None or running.empty:
        return seconds
    doing = {KIND_OF_PHASE.get(phase, phase) for phase in running["phase"].fillna("loading")}
    doing |= {"compiling"} if running["compiling_since"].notna().any() else set()
    current = next((activity for activity in ELAPSED if activity in doing), "waiting")
    seconds = seconds | {current: seconds.get(current, 0.0) + max(0.0, now - last_line)}
    return {activity: seconds[activity] for activity in ELAPSED if activity in seconds}


def earlier_of(store: Store, experiment_id: str) -> list[Costs]:
    """Times of earlier experiments of the same kind."""
    machines = queries.environments(store, experiment_id)["device_name"].dropna()
    # An experiment that has just begun has not named its machine yet.
    return _earlier(store, experiment_id, None if machines.empty else str(machines.iloc[0]))


@memo(always)
def _earlier(store: Store, experiment_id: str, machine: str | None) -> list[Costs]:
    """Cached: experiments that were over when this one began no longer change."""
    return earlier_costs(store, queries.experiment_spec(store, experiment_id), machine)


def usual_compile_seconds(store: Store, experiment_id: str, runs: pd.DataFrame) -> dict[str, float]:
    """Compile time of the newest earlier run of the same backend on this machine, by label, for
    runs that compile now."""
    compiling = runs[runs["compiling_since"].notna()]
    if compiling.empty:
        return {}
    earlier = earlier_of(store, experiment_id)
    usual_seconds = {}
    for label in compiling["label"]:
        same = (costs.run_costs(label) for costs in earlier)
        took = [run.compile_seconds for run in same if run and run.compile_seconds]
        usual_seconds.update({label: took[0]} if took else {})
    return usual_seconds


def compiling_seconds(runs: pd.DataFrame, now: float) -> dict[str, float]:
    """Seconds for which the run with the turn has been in its phase, by label. Compiling comes
    first in a phase, as several compilations with short gaps."""
    busy = runs[
        (runs["state"] == RunState.RUNNING)
        & runs["phase"].isin(["training", "evaluating", "checking"])
    ]
    return {
        str(run.label): max(0.0, now - run.phase_started.timestamp()) for run in busy.itertuples()
    }


def compiling_html(runs: Sequence[PhaseTimes], now: pd.Timestamp) -> Html:
    """A pair of bars for each run, in its colour and all on one scale, below the phases' names;
    empty if no run compiles."""
    if not runs:
        return ""
    looks = run_looks(run.label for run in runs)
    longest = max(
        [
            1e-9,
            *(max(_so_far(run, now), sum(run.earlier_seconds_by_phase.values())) for run in runs),
        ]
    )
    names = "".join(
        f'<span><i style="{_fill(phase, NEUTRAL)}"></i>{inert(phase)}</span>'
        for phase in PHASE_DEPTHS
    )
    rows = "".join(
        f'<div class="phases" role="listitem"><span>{run_mark(run.label, looks[run.label])}</span>'
        f"<div>{_now(run, now, longest, looks[run.label].color)}"
        f"{_last(run, longest, looks[run.label].color)}</div></div>"
        for run in runs
    )
    title = anchor_html("compile_phases", "Compiling by phase")
    return f'<div class="phase-head"><b>{title}</b>{names}</div><div role="list">{rows}</div>'


def _so_far(run: PhaseTimes, now: pd.Timestamp) -> float:
    going = 0.0 if run.since is None else max(0.0, (now - run.since).total_seconds())
    return sum(run.seconds_by_phase.values()) + going


def _now(run: PhaseTimes, now: pd.Timestamp, longest: float, color: str) -> Html:
    """Reported phases in their depths; grey for the current phase, which is not reported yet."""
    going = _so_far(run, now) - sum(run.seconds_by_phase.values())
    text = anchor_html("compilation_seconds", words.duration(_so_far(run, now)))
    if run.since is not None:
        after = run.phase_after(going) if not run.seconds_by_phase else None
        hint = f", then in {inert(after)} last time" if after else ""
        text = f"compiling, {text}{hint}"
    return _bar("now", run.seconds_by_phase, going, longest, text, color)


def _last(run: PhaseTimes, longest: float, color: str) -> Html:
    if not run.earlier_seconds_by_phase:
        return ""
    took = anchor_html("compile_phases", words.duration(sum(run.earlier_seconds_by_phase.values())))
    return _bar("last time", run.earlier_seconds_by_phase, 0.0, longest, took, color)


def _bar(
    name: str, phases: Mapping[str, float], going: float, longest: float, text: Html, color: str
) -> Html:
    parts = [
        _part(phase, seconds, _fill(phase, color), longest)
        for phase, seconds in phases.items()
        if seconds > 0
    ]
    if going > 0:
        parts.append(_part("going on", going, "", longest))
    return (
        f'<div class="phase-bar"><small>{inert(name)}</small><span class="track">'
        f"{''.join(parts)}</span><small>{text}</small></div>"
    )


def _fill(phase: str, color: str) -> Html:
    """A share of the run's colour inside a line of the whole colour."""
    depth = f"color-mix(in srgb, {color} {PHASE_DEPTHS[phase]}%, transparent)"
    return inert(f"; background: {depth}; box-shadow: inset 0 0 0 1px {color}")


def _part(phase: str, seconds: float, fill: Html, longest: float) -> Html:
    label = inert(f"{phase}: {words.duration(seconds)}")
    width = inert(f"{100 * seconds / longest:.2f}")
    return f'<i role="img" aria-label="{label}" title="{label}" style="width: {width}%{fill}"></i>'


TURN = '<span title="It has its turn">\N{BLACK RIGHT-POINTING TRIANGLE}</span> '


def runs_html(
    runs: pd.DataFrame,
    usual_compile_seconds: Mapping[str, float],
    now: pd.Timestamp,
    *,
    has_steps: bool = True,
    about: Mapping[str, str] = {},
) -> Html:
    """The activity of each run and, if it makes steps, its progress, loss and speed.

    `runs`: rows of `storage.queries.list_runs`; `usual_compile_seconds`: an earlier run's compile
    time, by label; `about`: plain words, by label.
    """
    looks = run_looks(runs["label"])
    rows = [
        f'<div class="run-row" role="listitem"><span>{run_mark(run.label, looks[run.label])}</span>'
        f"<span>{_doing(run, usual_compile_seconds.get(run.label), now)}"
        f"<small>{inert(capital(about.get(run.label, '')))}</small></span>"
        + (f"{_progress(run)}<span>{_numbers(run)}</span></div>" if has_steps else "</div>")
        for run in runs.itertuples()
    ]
    return f'<div class="run-rows" role="list">{"".join(rows)}</div>'


def _doing(run: Any, usual_compile_seconds: float | None, now: pd.Timestamp) -> Html:
    """The activity of a run, and whether it has the turn; all other runs wait for the turn."""
    turn = TURN if words.has_turn(run) else ""
    return turn + words.activity(run, now, usual_compile_seconds)


def _progress(run: Any) -> Html:
    """A bar of the steps done; full for a finished run, which may stop early by its own rules."""
    through = run.state == RunState.FINISHED
    # 0 if a script has not reported its steps yet, and in a search, which ends its runs.
    share = 1.0 if through else min(1.0, run.steps_done / max(run.num_steps, 1))
    of_all = f" / {run.num_steps:,}" if run.num_steps else ""
    done = anchor_html("num_steps", f"{run.steps_done:,}{of_all} steps")
    percent = f"{100 * share:.1f}"
    if not (through or run.num_steps):
        return f"<div>{done}</div>"
    return (
        f'<div>{done}<div class="bar" role="progressbar" aria-label="Steps done" '
        f'aria-valuenow="{percent}"><div style="width: {percent}%"></div></div></div>'
    )


def _numbers(run: Any) -> Html:
    facts = []
    if run.last_loss is not None:
        facts.append(anchor_html("loss", f"loss {METRICS['loss'].format(run.last_loss)}"))
    if pd.notna(run.steady_step_seconds):
        step_time = METRICS["step_seconds"].format(run.steady_step_seconds)
        facts.append(anchor_html("step_seconds", f"{step_time} / step"))
    return " · ".join(facts)


BUSY_LOAD = 0.5
"""Load average per usable CPU from which other programs are probably busy."""
LATEST = 5
"""Number of samples that describe the present; one may be too short for the kernel's counters."""
MAX_NAMED = 3
"""Most other processes in the line about the device."""
STATES = ("sm_clock_mhz", "temperature_celsius", "power_watts")


def before_launch(allowance: CpuAllowance, load: float) -> Markdown:
    """A warning if other programs keep the machine busy; `load`: its load average."""
    if load < BUSY_LOAD * allowance.usable:
        return ""
    shown = linked("load_average", f"load average {load:.1f}")
    return (
        f"This machine is busy: {shown} on {allowance.usable:,} CPUs over the last minute. Other "
        "processes make the runs slower and their times less certain."
    )


def load_average() -> float:
    """The load average; 0 if the system has none."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return 0.0


def while_running(samples: pd.DataFrame, *, on_cpu: bool) -> Markdown:
    """State and other users of the device, from the latest `storage.queries.device_samples`.

    `on_cpu`: whether the runs compute on the CPU, where other users are programs that take CPU
    time. `1,980 MHz, 61 °C, 412 W; held back: power cap; other processes: python (pid 4711)`.
    """
    blocks = samples[samples["round"].notna()].sort_values("time")
    latest = blocks.tail(LATEST)
    if latest.empty:
        return ""
    last = latest.iloc[-1]
    states = [name for name in STATES if pd.notna(last[name])]
    state = ", ".join(
        linked(name, f"{NUMBERS[name].format(last[name])} {NUMBERS[name].unit}") for name in states
    )
    held_back = sorted({name for names in latest["throttled_by"] for name in names or []})
    parts = [state] if state else []
    if held_back:
        parts.append(f"{linked('held_back', 'held back')}: {inert(', '.join(held_back))}")
    # On CUDA not every block samples other processes.
    looks = blocks[blocks["processes"].notna()].tail(LATEST)
    if others := _others(looks, on_cpu=on_cpu):
        parts.append(others)
    return "; ".join(parts)


def _others(looks: pd.DataFrame, *, on_cpu: bool) -> Markdown:
    seen = {process["pid"]: process["name"] for listed in looks["processes"] for process in listed}
    first = list(seen.items())[:MAX_NAMED]
    more = f" and {len(seen) - MAX_NAMED} more" if len(seen) > MAX_NAMED else ""
    names = ", ".join(f"{inert(name or '?')} (pid {inert(pid)})" for pid, name in first) + more
    if not on_cpu:
        return f"other processes on the device: {names}" if names else ""
    capacity = (looks["wall_seconds"] * looks["cpus"]).sum()
    taken = (looks["busy_cpu_seconds"] - looks["own_cpu_seconds"]).sum(min_count=1)
    share = float(taken / capacity) if capacity and pd.notna(taken) else 0.0
    if share <= SHARED_CPU:
        return ""
    shown = linked("others_cpu_share", NUMBERS["others_cpu_share"].format(share))
    return f"other processes take {shown} of the CPU time{f': {names}' if names else ''}"
