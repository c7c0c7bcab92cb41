"""The wall: `live?wall=1`. Nothing to press, and it draws itself anew."""

from urllib.parse import quote

import pandas as pd
import streamlit as st

from breakeven.runner.texts import duration
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import METRICS
from breakeven.views.charts.palette import run_looks, run_mark
from breakeven.views.shared import words
from breakeven.views.shared.inert import Html, inert
from breakeven.views.shared.pace import keeping_up
from breakeven.views.wall.tiles import Going, Last, Tile, tiles

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
    """All tiles, as many beside each other as there is room for."""
    if not found:
        return (
            '<div class="wall"><section class="tile"><p>No device is known yet.</p></section></div>'
        )
    return f'<div class="wall">{"".join(_tile(one, now) for one in found)}</div>'


def _tile(tile: Tile, now: pd.Timestamp) -> Html:
    queue = inert(f"{tile.num_waiting} more in the queue" if tile.num_waiting else "")
    head = f'<header><h2>{inert(tile.device)}</h2><span class="waiting">{queue}</span></header>'
    going = _going(tile.going) if tile.going else '<p class="idle">Nothing is running.</p>'
    last = _last(tile.last, now) if tile.last else ""
    return f'<section class="tile">{head}{going}{last}</section>'


def _going(going: Going) -> Html:
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


def _last(last: Last, now: pd.Timestamp) -> Html:
    ago = (
        "" if last.ended is None else f", {words.duration((now - last.ended).total_seconds())} ago"
    )
    said = inert(words.STATES[last.state][0])
    if last.best and last.speedup is not None:
        verdict = f' <em class="{CLASSES[last.verdict]}">{inert(last.verdict)}</em>' \
            if last.verdict in CLASSES else ""  # fmt: skip
        parity = f", parity {inert(METRICS['parity'].format(last.parity))}" if last.parity else ""
        speedup = METRICS["speedup"].format(last.speedup)
        said = f"<b>{inert(last.best)} {speedup}</b>{verdict}{parity}"
    return f"<footer><small>Last: {inert(last.name + ago)}</small><p>{said}</p></footer>"
