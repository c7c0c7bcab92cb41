"""The wall: for a large screen, of each device what runs on it, how far that is, and what came out
last."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

import numpy as np
import pandas as pd
import streamlit as st

from breakeven.runner.folders.states import ACTIVE_EXPERIMENTS, ExperimentState
from breakeven.runner.texts import duration
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog, compute
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.views.charts.palette import run_looks, run_mark
from breakeven.views.parts.progress import progress
from breakeven.views.shared import words
from breakeven.views.shared.inert import Html, inert
from breakeven.views.shared.resources import capabilities, keeping_up

POINTS = 60
"""Of the losses of a run, as many as so small a chart shows."""
FEWEST = 5
"""Points of a line that says anything."""
SECONDS = 0.2
"""That finding out what the last experiment came to may take."""


@dataclass(frozen=True, kw_only=True)
class ActiveRun:
    """An experiment that is at work, or waits to be."""

    name: str
    is_running: bool
    turn: str | None
    """Label of the run that has the device; None while all load."""
    doing: str
    """What that run does, or why none does anything."""
    done: float
    """Share of its time."""
    seconds_left: float | None
    losses: dict[str, list[float]]
    """By label; means of equal parts, the finite ones."""


@dataclass(frozen=True, kw_only=True)
class Last:
    """What the newest experiment that is over came to. None is unknown, or was not measured."""

    name: str
    state: str
    best: str | None
    speedup: float | None
    verdict: str | None
    parity: str | None
    ended: pd.Timestamp | None


@dataclass(kw_only=True)
class Tile:
    """One device."""

    device: str
    going: ActiveRun | None = None
    num_waiting: int = 0
    last: Last | None = field(default=None)


def tiles(store: Store, now: pd.Timestamp) -> list[Tile]:
    """A tile for each device of this machine, and for others on which something runs."""
    experiments = queries.list_experiments(store)
    local = experiments[experiments["origin"] == "local"]
    machine = capabilities()
    names = {one.id: one.name for one in machine.devices} if machine else {}
    active = local[local["state"].isin(ACTIVE_EXPERIMENTS)]
    devices = dict.fromkeys([*names, *active["device"]])
    return [tile for device in devices
            for tile in _tiles(store, device, names.get(device, device),
                               local[local["device"] == device], now)]  # fmt: skip


def _tiles(
    store: Store, device: str, name: str, mine: pd.DataFrame, now: pd.Timestamp
) -> list[Tile]:
    """One, or one for each of the experiments that share the device; `mine` are all of it, newest
    first."""
    known = mine["device_name"].dropna()
    tile = Tile(device=name if name != device or known.empty else str(known.iloc[0]))
    active = mine[mine["state"].isin(ACTIVE_EXPERIMENTS)].iloc[::-1]
    running = active[active["state"] == ExperimentState.RUNNING]
    shown = running if len(running) else active[:1]
    tiles = [tile, *(Tile(device=tile.device) for _ in range(len(shown) - 1))]
    tile.num_waiting = len(active) - len(shown)
    for one, going in zip(tiles, shown.to_dict("records"), strict=False):
        one.going = _active_run(store, str(going["experiment_id"]), str(going["name"]), now)
    # What was measured on another machine and copied here has another device's name.
    here = mine[mine["device_name"].isna() | (mine["device_name"] == tile.device)]
    over = here.loc[~here["state"].isin(ACTIVE_EXPERIMENTS), "experiment_id"]
    if len(over):
        tile.last = _last(store, str(over.iloc[0]))
    return tiles


def _active_run(store: Store, experiment_id: str, name: str, now: pd.Timestamp) -> ActiveRun:
    runs, _ = queries.latest_runs(store, experiment_id)
    at_work = next((run for run in runs.itertuples() if words.has_turn(run)), None)
    known = progress(store, experiment_id, runs)
    return ActiveRun(
        name=name,
        is_running=bool((runs["state"] == "running").any()),
        turn=str(at_work.label) if at_work is not None else None,
        doing=_doing(runs, at_work, now),
        done=known.share if known else 0.0,
        seconds_left=known.left if known else None,
        losses=_losses(store, experiment_id),
    )


def _doing(runs: pd.DataFrame, at_work: object, now: pd.Timestamp) -> str:
    if at_work is None:
        waits = not (runs["state"] == "running").any()
        return "waits in the queue" if waits else "torch, model and data are loading"
    if pd.notna(getattr(at_work, "compiling_since", None)):
        return f"compiling {words.duration(words.compiled_seconds(at_work, now))}"
    return words.PHASES.get(str(getattr(at_work, "phase", "")), "racing")


def _losses(store: Store, experiment_id: str) -> dict[str, list[float]]:
    frame = queries.losses(store, experiment_id)
    found = {}
    for label, run in frame.groupby("label", sort=False):
        values = run.sort_values("step")["loss"].astype(float).to_numpy()
        parts = np.array_split(values, min(POINTS, len(values)))
        means = [float(np.mean(part)) for part in parts if len(part)]
        found[str(label)] = [value for value in means if np.isfinite(value)]
    return {label: values for label, values in found.items() if len(values) >= FEWEST}


def _last(store: Store, experiment_id: str) -> Last | None:
    compute(store, SECONDS, only=[experiment_id])
    rows: Sequence[dict] = catalog(store).to_dict("records")  # type: ignore[type-arg]
    row = next((one for one in rows if one["experiment_id"] == experiment_id), None)
    if row is None:
        return None
    ended = None
    if row["duration"] is not None and pd.notna(row["submitted"]):
        ended = row["submitted"] + pd.Timedelta(seconds=row["duration"])
    return Last(
        name=row["name"], state=row["state"], best=row["best"], speedup=row["speedup"],
        verdict=row["verdict"], parity=row["parity"], ended=ended,
    )  # fmt: skip


PARAMETER = "wall"
SECONDS = 1.0
"""How often it is drawn; what runs did is taken in as seldom as `keeping_up` allows."""
WIDTH, HEIGHT, EDGE = 300, 90, 4
"""Of a chart of losses, in its own units."""
CLASSES = {"faster": "good", "slower": "bad", "same": "plain", "unsure": "doubtful"}


def is_asked() -> bool:
    """Whether the address asks for the wall instead of Live."""
    return st.query_params.get(PARAMETER) == "1"


def show(store: Store) -> None:
    st.html('<style>[data-testid="stHeader"] { display: none; }</style>')
    st.fragment(_draw, run_every=SECONDS)(store)


def _draw(store: Store) -> None:
    with keeping_up(store):
        st.html(html(tiles(store, pd.Timestamp.now(tz="UTC")), pd.Timestamp.now(tz="UTC")))


def html(found: list[Tile], now: pd.Timestamp) -> Html:
    """All tiles, in as many columns as there is room for."""
    if not found:
        return (
            '<div class="wall"><section class="tile"><p>No device is known yet.</p></section></div>'
        )
    return f'<div class="wall">{"".join(_tile(one, now) for one in found)}</div>'


def _tile(tile: Tile, now: pd.Timestamp) -> Html:
    queue = inert(f"{tile.num_waiting} more in the queue" if tile.num_waiting else "")
    head = f'<header><h2>{inert(tile.device)}</h2><span class="waiting">{queue}</span></header>'
    going = _active_html(tile.going) if tile.going else '<p class="idle">Nothing is running.</p>'
    last = _last_html(tile.last, now) if tile.last else ""
    return f'<section class="tile">{head}{going}{last}</section>'


def _active_html(going: ActiveRun) -> Html:
    percent = f"{100 * going.done:.0f}"
    left = "" if going.seconds_left is None else f"about {duration(going.seconds_left)} left"
    return (
        f'<p class="name">{inert(going.name)}</p>'
        f'<p class="turn">{_turn(going.turn)}<span>{inert(going.doing)}</span></p>'
        f"{_sparkline(going.losses)}"
        f'<div class="bar" role="progressbar" aria-label="Time done" aria-valuenow="{percent}">'
        f'<div style="width: {percent}%"></div></div>'
        f'<p class="left"><span>{percent} %</span><span>{inert(left)}</span></p>'
    )


def _turn(label: str | None) -> Html:
    """Who has the device, in the colour of its line."""
    if label is None:
        return ""
    color = run_looks([label])[label].color
    return f'<b style="border-color: {inert(color)}">{inert(label)}</b> '


def _sparkline(losses: dict[str, list[float]]) -> Html:
    """A line for each run's losses, all on the same axes; nothing before the first ones."""
    every = [value for values in losses.values() for value in values]
    if not every:
        return '<div class="race"></div>'
    low, high = min(every), max(every)
    span, longest = (high - low) or 1.0, max(map(len, losses.values()))
    looks = run_looks(losses)
    lines = []
    for label, values in losses.items():
        points = " ".join(
            f"{WIDTH * place / max(1, longest - 1):.1f},"
            f"{EDGE + (HEIGHT - 2 * EDGE) * (high - value) / span:.1f}"
            for place, value in enumerate(values)
        )
        color = looks[label].color
        lines.append(f"<polyline points='{points}' fill='none' stroke='{color}' stroke-width='2.5' "
                     "vector-effect='non-scaling-stroke'/>")  # fmt: skip
    who = "".join(f"<span>{run_mark(label, looks[label])}</span>" for label in losses)
    picture = (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' "
               f"preserveAspectRatio='none'>{''.join(lines)}</svg>")  # fmt: skip
    source = f"data:image/svg+xml,{quote(picture)}"
    return f'<img class="race" alt="Losses so far" src="{source}"><p class="who">{who}</p>'


def _last_html(last: Last, now: pd.Timestamp) -> Html:
    ago = (
        "" if last.ended is None else f", {words.duration((now - last.ended).total_seconds())} ago"
    )
    text = inert(words.STATES[last.state][0])
    if last.best and last.speedup is not None:
        verdict = ""
        if last.verdict in CLASSES:
            word = inert(format_verdict(last.verdict))
            verdict = f' <em class="{CLASSES[last.verdict]}">{word}</em>'
        parity = f", parity {inert(METRICS['parity'].format(last.parity))}" if last.parity else ""
        speedup = METRICS["speedup"].format(last.speedup)
        text = f"<b>{inert(last.best)} {speedup}</b>{verdict}{parity}"
    return f"<footer><small>Last: {inert(last.name + ago)}</small><p>{text}</p></footer>"
