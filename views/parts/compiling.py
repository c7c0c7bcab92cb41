"""How compiling goes on Live: each phase beside what it took an earlier run, one piece of HTML."""

from collections.abc import Mapping, Sequence

import pandas as pd

from breakeven.storage.compiling.expected_phases import PhaseTimes
from breakeven.storage.compiling.timeline import PHASES
from breakeven.views.charts.palette import COLORS, run_looks, run_mark
from breakeven.views.shared import words
from breakeven.views.shared.inert import Html, inert
from breakeven.views.shared.links import anchor_html

PHASE_COLORS = dict(zip(PHASES, COLORS, strict=False))


def html(found: Sequence[PhaseTimes], now: pd.Timestamp) -> Html:
    """A pair of bars for each run, all on one scale, under the phases' names; nothing without a
    run that compiles."""
    if not found:
        return ""
    looks = run_looks(one.label for one in found)
    longest = max([1e-9, *(max(_so_far(one, now), sum(one.last.values())) for one in found)])
    names = "".join(f'<span><i style="background: {color}"></i>{inert(phase)}</span>'
                    for phase, color in PHASE_COLORS.items())  # fmt: skip
    rows = "".join(
        f'<div class="phases" role="listitem"><span>{run_mark(one.label, looks[one.label])}</span>'
        f"<div>{_now(one, now, longest)}{_last(one, longest)}</div></div>"
        for one in found
    )
    title = anchor_html("compile_phases", "Compiling by phase")
    return (f'<div class="phase-head"><b>{title}</b>{names}</div>'
            f'<div role="list">{rows}</div>')  # fmt: skip


def _so_far(one: PhaseTimes, now: pd.Timestamp) -> float:
    going = 0.0 if one.since is None else max(0.0, (now - one.since).total_seconds())
    return sum(one.now.values()) + going


def _now(one: PhaseTimes, now: pd.Timestamp, longest: float) -> Html:
    """What is reported in its colours, and what goes on, of which nothing is told yet, in grey."""
    going = _so_far(one, now) - sum(one.now.values())
    said = anchor_html("compilation_seconds", words.duration(_so_far(one, now)))
    if one.since is not None:
        after = one.phase_after(going) if not one.now else None
        hint = f", then in {inert(after)} last time" if after else ""
        said = f"compiling, {said}{hint}"
    return _bar("now", one.now, going, longest, said)


def _last(one: PhaseTimes, longest: float) -> Html:
    if not one.last:
        return ""
    took = anchor_html("compile_phases", words.duration(sum(one.last.values())))
    return _bar("last time", one.last, 0.0, longest, took)


def _bar(name: str, phases: Mapping[str, float], going: float, longest: float, said: Html) -> Html:
    parts = [_part(phase, seconds, PHASE_COLORS[phase], longest)
             for phase, seconds in phases.items() if seconds > 0]  # fmt: skip
    if going > 0:
        parts.append(_part("going on", going, "", longest))
    return (f'<div class="phase-bar"><small>{inert(name)}</small><span class="track">'
            f"{''.join(parts)}</span><small>{said}</small></div>")  # fmt: skip


def _part(phase: str, seconds: float, color: str, longest: float) -> Html:
    told = inert(f"{phase}: {words.duration(seconds)}")
    fill = inert(f"; background: {color}" if color else "")
    width = inert(f"{100 * seconds / longest:.2f}")
    return (f'<i role="img" aria-label="{told}" title="{told}" '
            f'style="width: {width}%{fill}"></i>')  # fmt: skip
