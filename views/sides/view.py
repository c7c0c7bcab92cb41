"""Experiments side by side: their differences, and numbers that cannot be compared."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from breakeven.storage import queries
from breakeven.storage.difference.sides import (
    MAX_SIDES,
    Side,
    comparable,
    differing,
    labels,
    load_sides,
)
from breakeven.storage.difference.speedups import differences, scalings
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.terminal.difference import WHY, obstacles
from breakeven.views.charts import speed as side_charts
from breakeven.views.charts.layers import losses as losses_chart
from breakeven.views.charts.palette import run_mark
from breakeven.views.parts.downloads import chart_card, expect_parts
from breakeven.views.parts.exports import Origin, files_of, slug
from breakeven.views.shared import words
from breakeven.views.shared.address import bound
from breakeven.views.shared.inert import inert
from breakeven.views.shared.selection import titles
from breakeven.views.sides import tables

PARAMETER = "side"
MAX_LINKS = 8


def show(store: Store) -> None:
    expect_parts()
    listed = queries.list_experiments(store).set_index("experiment_id", drop=False)
    names = titles(listed)
    given = bound(PARAMETER, [], list(names), most=MAX_SIDES)
    chosen = st.multiselect(
        "Experiments", list(names), **given, format_func=names.__getitem__,
        max_selections=MAX_SIDES, placeholder="Choose two or more",
        help="The first one is what the others are compared with.",
    )  # fmt: skip
    if len(chosen) < 2:
        st.info("**Choose two experiments or more** above, or tick them in the table: of two "
                "days, machines, versions, batch sizes or precisions.",
                icon=":material/compare_arrows:")  # fmt: skip
        return
    sides = load_sides(store, chosen)
    show_who(sides)
    for obstacle in obstacles(sides):
        st.warning(inert(obstacle), icon=":material/block:")
    facts = tuple(f"{side.letter}: {side.name} · {side.experiment_id}" for side in sides)
    with files_of(Origin(name=slug("-".join(side.name for side in sides)), facts=facts)):
        show_all(store, sides)


def show_who(sides: Sequence[Side]) -> None:
    """Shows the experiment of each letter."""
    for column, side in zip(st.columns(len(sides)), sides, strict=True):
        device = side.environment.get("device_name") or side.spec.device
        torch = (side.environment.get("versions") or {}).get("torch")
        mark = run_mark(side.letter, side_charts.LOOKS[side.letter])
        with column.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.html(f"<h3>{mark}</h3>", width="content")
            st.page_link("views/experiment.py", label=inert(side.name),
                         query_params={"experiment": side.experiment_id})  # fmt: skip
        version = f", torch {inert(torch)}" if torch else ""
        count = len(side.comparison.warnings)
        doubts = f", {words.plural(count, 'warning')} in its verdict" if count else ""
        column.caption(f"{words.moment(side.submitted)}, {inert(device)}{version}{doubts}")


def show_all(store: Store, sides: Sequence[Side]) -> None:
    found = differences(sides)
    if labels(sides):
        tables.show_speedups(sides, found)
        alike = [side for side in sides
                 if side is sides[0] or comparable(sides[0], side).speed]  # fmt: skip
        chart_card("Speedups", lambda: side_charts.speedups_of_sides(alike),
                   tables.speedup_frame(sides, found), name="sides",
                   numbers=["speedup"])  # fmt: skip
    tables.show_scaling(sides, *scalings(store, sides))
    show_losses(store, sides)
    with st.container(border=True):
        st.markdown("**Other numbers**")
        st.html(tables.numbers_html(sides))
    with st.container(border=True):
        st.markdown("**What differs**")
        others = differing(sides)
        if others:
            st.html(tables.differing_html(sides, others))
        else:
            st.caption("Nothing: settings, machines, software and data are the same.")
    show_compilers(sides)


def show_compilers(sides: Sequence[Side]) -> None:
    """Links to the compiler differences between the first two sides."""
    one, other = sides[:2]
    both = [label for label in labels(sides) if one.result(label) and other.result(label)]
    if not both:
        return
    st.caption(f"Compiler differences, {inert(one.letter)} and {inert(other.letter)}:")
    with st.container(horizontal=True):
        for label in both[:MAX_LINKS]:
            run = one.spec.repeats_by_label[label][0]
            query = {"experiment": one.experiment_id,
                     "run": f"{one.experiment_id}.{run}", "tab": "Runs", "part": "Compiling",
                     "with": other.experiment_id}  # fmt: skip
            st.page_link("views/experiment.py", label=inert(label), query_params=query,
                         icon=":material/difference:")  # fmt: skip


def show_losses(store: Store, sides: Sequence[Side]) -> None:
    """Shows losses of one backend, or of the baselines, for all sides that learned the same; a
    caption above the chart names the omitted sides."""
    reference = sides[0]
    alike = [side for side in sides
             if side is reference or comparable(reference, side).learning]  # fmt: skip
    if len(alike) < 2:
        why = {obstacle for side in sides[1:] for obstacle in comparable(reference, side).obstacles}
        reasons = " and ".join(WHY[obstacle] for obstacle in WHY if obstacle in why)
        st.caption(f"Losses are not drawn together: {inert(reasons)}.")
        return
    names = ["baseline", *labels(alike)]
    given = bound("losses_of", names[0], names)
    first = names[given.pop("index")]
    label = st.segmented_control("Losses of", names, default=first, required=True,
                                 format_func=inert, **given)  # fmt: skip
    frames = []
    for side in alike:
        losses = queries.losses(store, side.experiment_id)
        wanted = side.spec.repeats_by_label.get(str(label), (str(label),))[0]
        frames.append(losses[losses["label"] == wanted].assign(letter=side.letter))
    frame = pd.concat(frames, ignore_index=True)
    if frame.empty:
        st.caption("No losses were recorded.")
        return
    left_out = [side.letter for side in sides if side not in alike]
    if left_out:
        st.caption(f"Without {inert(', '.join(left_out))}.")
    title = f"{METRICS['loss'].title} of {inert(label)}"
    by_letter = frame.assign(label=frame["letter"], role="side")
    chart_card(title, lambda: losses_chart(by_letter, looks=side_charts.LOOKS), frame,
               name="side-losses", numbers=["loss"])  # fmt: skip
