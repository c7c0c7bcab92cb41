"""The first screen of a verdict: the plan, the break-even chart, and a card for each backend."""

from argparse import ArgumentTypeError
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from breakeven.runner.commands.length import LENGTHS, read_length
from breakeven.runner.settings import Prices, read_settings
from breakeven.storage.comparison.results import Comparison, Result, standings
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.recorded import NUMBERS
from breakeven.storage.plan import Plan, UnknownLength, own_steps, plan, steps_of
from breakeven.storage.profile.findings import variant_of
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.terminal.plan_words import advice
from breakeven.storage.terminal.recipe import recipe
from breakeven.views.charts.palette import Look, run_looks, run_mark
from breakeven.views.comparison import leaderboard, more_rounds
from breakeven.views.comparison.cards import verdict_cards
from breakeven.views.parts.downloads import show_card
from breakeven.views.shared import words
from breakeven.views.shared.address import bound
from breakeven.views.shared.inert import Html, Markdown, inert
from breakeven.views.shared.links import anchor_html, linked

CHART_SHARE, CARDS_SHARE = 3, 2
"""The chart takes 60 % of the width."""


def show(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """Plan above, chart on the left, cards on the right; on a phone the cards come first."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="planned"):
        planned = plan(comparison, ask_steps(comparison))
        prices = read_settings(store.data_dir.path).prices
        found = standings(comparison)
        # The total of a failed baseline says nothing about a whole training.
        is_sure = bool(found.counted) or not found.baseline_ended_early
        _show_recipe(comparison, planned)
        st.markdown(plan_text(planned, prices) if is_sure else "", width="stretch")
    drawn = verdict_cards(store, comparison, comparison.results, planned.num_steps)
    if not drawn:
        st.html(cards_html(comparison, planned))
        more_rounds.button(store, experiment, comparison)
        return
    with st.container(key="first-screen"):
        chart, cards = st.columns([CHART_SHARE, CARDS_SHARE])
    with chart:
        for card in drawn:
            show_card(card)
    with cards:
        st.html(cards_html(comparison, planned))
        more_rounds.button(store, experiment, comparison)


def _show_recipe(comparison: Comparison, planned: Plan) -> None:
    """Shows how to train with the backend that the plan recommends."""
    if planned.best is None:
        return
    variant, _ = variant_of(comparison.spec, planned.best.label)
    with st.popover("Use it", icon=":material/content_paste:"):
        st.caption(f"Lines for a training of your own, to take {inert(planned.best.label)}:")
        # Colours of syntax are hard to read in the dark theme.
        st.code(recipe(comparison.spec, variant), language=None)


def ask_steps(comparison: Comparison) -> int:
    """Asks for the length of the intended training; the experiment's own number by default."""
    own = own_steps(comparison)
    given = bound("plan", str(own))
    st.markdown("I mean to train", width="content")
    text = st.text_input("Length of the training", label_visibility="collapsed", width=120,
                         help=f"For example: {LENGTHS}.", **given)  # fmt: skip
    if text.replace(",", "").strip().isdecimal():
        st.markdown(f"{linked('num_steps', 'steps')}.", width="content")
    try:
        return steps_of(read_length(text), comparison)
    except (ArgumentTypeError, UnknownLength) as error:
        st.warning(f"{inert(str(error))}. The plan takes the experiment's own {own:,} steps.")
    return own


def plan_text(planned: Plan, prices: Prices) -> Markdown:
    """The recommended backend and the time it saves; empty without a measured baseline."""
    found = advice(planned, prices)
    if found is None:
        return ""
    times = "".join(inert(text) + linked("planned_seconds", words.duration(one))
                    for text, one in zip(found.texts, found.seconds, strict=False))  # fmt: skip
    return f"**{inert(found.action)}**: {times}{inert(found.texts[-1])}"


def cards_html(comparison: Comparison, planned: Plan) -> Html:
    """A card for each backend, the best first, then the baseline."""
    looks = run_looks(result.label for result in comparison.results)
    backends = [one for one in comparison.results if one.role == "backend"]
    shown = sorted(backends, key=lambda one: planned.totals.get(one.label, float("inf")))
    shown += [one for one in comparison.results if one.role == "baseline"]
    cards = [_card(comparison.experiment_id, one, planned, looks[one.label]) for one in shown]
    return f'<div class="backend-cards" role="list">{"".join(cards)}</div>'


def _card(experiment_id: str, result: Result, planned: Plan, look: Look) -> Html:
    """The card of a run; its label links to everything that the run recorded."""
    address = {"experiment": experiment_id, "tab": "Runs", "run": result.run_id}
    run: Html = inert(urlencode(address))
    mark = run_mark(result.label, look)
    label: Html = f'<a class="quiet" target="_self" href="experiment?{run}">{mark}</a>'
    is_best = planned.best is not None and planned.best.label == result.label
    verdict = leaderboard.cell("speed_verdict")(result) if result.role == "backend" else ""
    speed = inert(ratio_text(result.speedup)) if result.speedup and verdict else ""
    facts = [
        _fact("planned_seconds", words.duration(planned.totals.get(result.label))),
        _fact("break_even_steps", leaderboard.cell("break_even_steps")(result)),
        _fact("peak_memory_bytes", leaderboard.cell("peak_memory_bytes")(result)),
        _fact("compile_seconds", leaderboard.cell("compile_seconds")(result)),
    ]
    parity = ""
    if result.role == "backend":
        parity = f'<span class="parity">{leaderboard.cell("parity")(result)}</span>'
    else:
        facts = [facts[0], facts[2]]
    best = " best" if is_best else ""
    return (
        f'<div class="backend-card{best}" role="listitem"><div>'
        f"<b>{label}</b>{verdict}<strong>{speed}</strong>{parity}</div>"
        f"<dl>{''.join(facts)}</dl></div>"
    )


def _fact(name: str, value: Html) -> Html:
    title = METRICS[name].title if name in METRICS else NUMBERS[name].title
    return f"<div><dt>{anchor_html(name, title)}</dt><dd>{value}</dd></div>"
