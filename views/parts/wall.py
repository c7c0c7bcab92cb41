"""The wall, for a large screen: the experiment on each device, its progress and the last result."""

from collections.abc import Mapping
from typing import Any
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
from breakeven.views.parts.progress import Progress, progress
from breakeven.views.shared import words
from breakeven.views.shared.inert import Html, inert
from breakeven.views.shared.resources import capabilities, keeping_up

PARAMETER = "wall"
SECONDS = 1.0
"""Seconds between two drawings; `keeping_up` decides how often new rows are read."""
POINTS, FEWEST = 60, 5
"""Points of a run's losses in the small chart, and the fewest that are shown."""
COMPUTE_SECONDS = 0.2
"""Most seconds for computing the result of the last experiment."""
WIDTH, HEIGHT, EDGE = 300, 90, 4
"""Size and margin of a chart of losses, in its own units."""
CLASSES = {"faster": "good", "slower": "bad", "same": "plain", "unsure": "doubtful"}
IDLE: Html = '<p class="idle">Nothing is running.</p>'


def is_asked() -> bool:
    """Whether the address asks for the wall instead of Live."""
    return st.query_params.get(PARAMETER) == "1"


def show(store: Store) -> None:
    st.html('<style>[data-testid="stHeader"] { display: none; }</style>')
    st.fragment(_draw, run_every=SECONDS)(store)


def _draw(store: Store) -> None:
    with keeping_up(store):
        found = "".join(tiles(store, pd.Timestamp.now(tz="UTC")))
    none: Html = '<section class="tile"><p>No device is known yet.</p></section>'
    st.html(f'<div class="wall">{found or none}</div>')


def tiles(store: Store, now: pd.Timestamp) -> list[Html]:
    """A tile for each device of this machine, and for other devices in use; the page has as many
    columns as fit."""
    experiments = queries.list_experiments(store)
    local = experiments[experiments["origin"] == "local"]
    machine = capabilities()
    names = {one.id: one.name for one in machine.devices} if machine else {}
    active = local[local["state"].isin(ACTIVE_EXPERIMENTS)]
    found: list[Html] = []
    for device in dict.fromkeys([*names, *active["device"]]):
        mine = local[local["device"] == device]
        found += _tiles(store, device, names.get(device, device), mine, now)
    return found


def _tiles(
    store: Store, device: str, name: str, mine: pd.DataFrame, now: pd.Timestamp
) -> list[Html]:
    """One tile, or one for each of the experiments that share the device; `mine`: all of its
    experiments, newest first."""
    known = mine["device_name"].dropna()
    name = name if name != device or known.empty else str(known.iloc[0])
    active = mine[mine["state"].isin(ACTIVE_EXPERIMENTS)].iloc[::-1]
    running = active[active["state"] == ExperimentState.RUNNING]
    shown = running if len(running) else active[:1]
    # Experiments copied from another machine have another device's name.
    here = mine[mine["device_name"].isna() | (mine["device_name"] == name)]
    over = here.loc[~here["state"].isin(ACTIVE_EXPERIMENTS), "experiment_id"]
    num_waiting = len(active) - len(shown)
    last = _last(store, str(over.iloc[0]), now) if len(over) else ""
    found: list[Html] = []
    for going in [_going(store, one, now) for one in shown.to_dict("records")] or [IDLE]:
        found.append(tile(name, going, *(() if found else (num_waiting, last))))
    return found


def tile(device: str, going: Html = IDLE, num_waiting: int = 0, last: Html = "") -> Html:
    queue = inert(f"{num_waiting} more in the queue" if num_waiting else "")
    head = f'<header><h2>{inert(device)}</h2><span class="waiting">{queue}</span></header>'
    return f'<section class="tile">{head}{going}{last}</section>'


def _going(store: Store, one: Mapping[Any, Any], now: pd.Timestamp) -> Html:
    experiment_id = str(one["experiment_id"])
    runs = queries.latest_runs(store, experiment_id)
    losses = queries.losses(store, experiment_id)
    return going_html(str(one["name"]), runs, progress(store, experiment_id, runs), losses, now)


def going_html(
    name: str, runs: pd.DataFrame, known: Progress | None, losses: pd.DataFrame, now: pd.Timestamp
) -> Html:
    """A running or waiting experiment: the run that has the device and its activity, or why no run
    works; the losses so far, and the share of its time."""
    at_work = next((run for run in runs.itertuples() if words.has_turn(run)), None)
    turn = ""
    if at_work is not None:  # In the colour of its line.
        color = run_looks([at_work.label])[at_work.label].color
        turn = f'<b style="border-color: {inert(color)}">{inert(at_work.label)}</b> '
    percent = f"{100 * known.share if known else 0:.0f}"
    left = f"about {duration(known.left)} left" if known and known.left is not None else ""
    return (
        f'<p class="name">{inert(name)}</p>'
        f'<p class="turn">{turn}<span>{inert(_doing(runs, at_work, now))}</span></p>'
        f"{_sparkline(losses)}"
        f'<div class="bar" role="progressbar" aria-label="Time done" aria-valuenow="{percent}">'
        f'<div style="width: {percent}%"></div></div>'
        f'<p class="left"><span>{percent} %</span><span>{inert(left)}</span></p>'
    )


def _doing(runs: pd.DataFrame, at_work: Any, now: pd.Timestamp) -> str:
    if at_work is None:
        waits = not (runs["state"] == "running").any()
        return "waits in the queue" if waits else "torch, model and data are loading"
    if pd.notna(at_work.compiling_since):
        return f"compiling {words.duration(words.compiled_seconds(at_work, now))}"
    return words.PHASES.get(str(at_work.phase), "racing")


def _sparkline(frame: pd.DataFrame) -> Html:
    """A line for each run's losses, as means of equal parts, on the same axes; empty before the
    first losses."""
    losses: dict[str, np.ndarray] = {}
    for label, run in frame.groupby("label", sort=False):
        values = run.sort_values("step")["loss"].astype(float).to_numpy()
        means = np.array([part.mean() for part in np.array_split(values, POINTS) if len(part)])
        if np.isfinite(means).sum() >= FEWEST:
            losses[str(label)] = means[np.isfinite(means)]
    if not losses:
        return '<div class="race"></div>'
    every = np.concatenate(list(losses.values()))
    low, high, longest = every.min(), every.max(), max(map(len, losses.values()))
    looks = run_looks(losses)
    lines = ""
    for label, means in losses.items():
        across = WIDTH * np.arange(len(means)) / max(1, longest - 1)
        down = EDGE + (HEIGHT - 2 * EDGE) * (high - means) / ((high - low) or 1.0)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
        lines += (f"<polyline points='{points}' fill='none' stroke='{looks[label].color}' "
                  "stroke-width='2.5' vector-effect='non-scaling-stroke'/>")  # fmt: skip
    who = "".join(f"<span>{run_mark(label, looks[label])}</span>" for label in losses)
    picture = (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' "
               f"preserveAspectRatio='none'>{lines}</svg>")  # fmt: skip
    source = f"data:image/svg+xml,{quote(picture)}"
    return f'<img class="race" alt="Losses so far" src="{source}"><p class="who">{who}</p>'


def _last(store: Store, experiment_id: str, now: pd.Timestamp) -> Html:
    compute(store, COMPUTE_SECONDS, only=[experiment_id])
    found = catalog(store)
    rows = found[found["experiment_id"] == experiment_id].to_dict("records")
    return last_html(rows[0], now) if rows else ""


def last_html(row: Mapping[Any, Any], now: pd.Timestamp) -> Html:
    """The result of the newest finished experiment; `row`: of the catalog."""
    ago = ""
    if row["duration"] is not None and pd.notna(row["submitted"]):
        ended = row["submitted"] + pd.Timedelta(seconds=row["duration"])
        ago = f", {words.duration((now - ended).total_seconds())} ago"
    text = inert(words.STATES[row["state"]][0])
    if row["best"] and row["speedup"] is not None:
        verdict = ""
        if row["verdict"] in CLASSES:
            word = inert(format_verdict(row["verdict"]))
            verdict = f' <em class="{CLASSES[row["verdict"]]}">{word}</em>'
        parity = row["parity"] and METRICS["parity"].format(row["parity"])
        matches = f", parity {inert(parity)}" if parity else ""
        speedup = METRICS["speedup"].format(row["speedup"])
        text = f"<b>{inert(row['best'])} {inert(speedup)}</b>{verdict}{matches}"
    return f"<footer><small>Last: {inert(row['name'] + ago)}</small><p>{text}</p></footer>"
