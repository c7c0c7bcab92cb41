"""Experiments side by side: speedups, other numbers, differences, scaling over devices."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations, islice

import pandas as pd
import streamlit as st

from breakeven.storage import queries
from breakeven.storage.comparison.results import Result
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import DASH, format_ratio
from breakeven.storage.numbers.metrics import METRICS, NUMBERS
from breakeven.storage.side_by_side.ratios import (
    Difference,
    Refusal,
    Scaling,
    differences,
    scalings,
)
from breakeven.storage.side_by_side.sides import (
    MAX_SIDES,
    Differing,
    Side,
    comparable,
    differing,
    labels,
    load_sides,
)
from breakeven.storage.statistics.break_even import with_ends
from breakeven.storage.words.side_by_side import (
    SHOWN,
    WHY_NOT_COMPARED,
    difference_text,
    efficiency_text,
    number_rows,
    obstacles,
    results_by_side,
    scaling_notes,
    wrong_trainings,
)
from breakeven.views.charts import speed as side_charts
from breakeven.views.charts.losses import losses as losses_chart
from breakeven.views.charts.palette import run_looks, run_mark
from breakeven.views.comparison import leaderboard
from breakeven.views.comparison.leaderboard import cell, state_mark, verdict_word, with_interval
from breakeven.views.parts.downloads import Card, expect_parts, show_card, titled
from breakeven.views.parts.pictures import Origin, files_of, slug
from breakeven.views.shared import words
from breakeven.views.shared.address import bound, titles
from breakeven.views.shared.definition_links import anchor_html, explained
from breakeven.views.shared.inert import Html, inert

CLASSES = {"higher": "good", "lower": "bad", "same": "plain", "unsure": "doubtful"}
TITLES = {"setting": "Setting", "environment": "Machine and software", "data": "Model and data"}

EXPLANATION = (
    "A quotient above 1 is a higher speedup than in the first experiment. Its 95 % interval is "
    "computed from the intervals of the two speedups (Zou and Donner 2008). “Higher” and “lower” "
    "mean a difference that is larger than chance explains, corrected over all quotients, and "
    f"larger than the noise floor of both machines. {explained(['speedup', 'over_first'])}"
)


def speedup_html(sides: Sequence[Side], quotients: Sequence[Difference]) -> Html:
    """A row for each backend: its speedup on each side, and the ratios to the first side; text from
    specifications is escaped."""
    by_place = {(quotient.label, quotient.letter): quotient for quotient in quotients}
    names = labels(sides)
    looks = run_looks(names)
    over = NUMBERS["over_first"].definition
    head: list[Html] = ["Backend", *(_title(side) for side in sides)]
    head += [
        anchor_html("over_first", f"{side.letter} over {sides[0].letter}", over)
        for side in sides[1:]
    ]
    rows: list[list[Html]] = []
    for label in names:
        speeds = [_speed(side.result(label)) for side in sides]
        quotient_cells = [_quotient(by_place.get((label, side.letter))) for side in sides[1:]]
        rows.append([run_mark(label, looks[label]), *speeds, *quotient_cells])
    return leaderboard.table("Speedups side by side", head, rows)


def speedup_frame(sides: Sequence[Side], quotients: Sequence[Difference]) -> pd.DataFrame:
    """One row per backend and side, with the quotient."""
    by_place = {(quotient.label, quotient.letter): quotient for quotient in quotients}
    rows = []
    for side in sides:
        for label in labels(sides):
            result, quotient = side.result(label), by_place.get((label, side.letter))
            rows.append(
                {
                    "experiment": side.experiment_id,
                    "name": side.name,
                    "label": label,
                    **with_ends("speedup", result.speedup if result else None),
                    "speed_verdict": result and result.speed_verdict,
                    "over_first": quotient and quotient.ratio,
                    "over_first_low": quotient and quotient.low,
                    "over_first_high": quotient and quotient.high,
                    "p_holm": quotient and quotient.p_holm,
                    "verdict": quotient and quotient.verdict,
                }
            )
    return pd.DataFrame(rows)


def numbers_html(sides: Sequence[Side]) -> Html:
    """All other numbers; a run has a row for each side. A number that cannot be compared with the
    first side's is a dash."""
    shown = [name for name in SHOWN if len(number_rows(sides, name)) > 1]
    runs = ["baseline", *labels(sides)]
    looks = run_looks(runs)
    head: list[Html] = ["Run", ""]
    head += map(leaderboard.heading, shown)
    rows: list[list[Html]] = []
    for label in runs:
        for place, side in enumerate(sides):
            title = "" if place else run_mark(label, looks[label])
            numbers = [_number(sides, label, name, place) for name in shown]
            rows.append([title, inert(side.letter), *numbers])
    return leaderboard.table("Other numbers side by side", head, rows)


def differing_html(sides: Sequence[Side], facts: Sequence[Differing]) -> Html:
    """Shows only the differences."""
    about = NUMBERS["facts"].definition
    letters = [anchor_html("facts", side.letter, about) for side in sides]
    return leaderboard.table_of_differing("What differs", facts, TITLES, letters)


def _number(sides: Sequence[Side], label: str, name: str, place: int) -> Html:
    result = results_by_side(sides, label, name)[place]
    return DASH if result is None else cell(name)(result)


def _title(side: Side) -> Html:
    letter = anchor_html("speedup", side.letter, METRICS["speedup"].definition)
    return f"{letter} <small>{inert(side.name)}</small>"


def _speed(result: Result | None) -> Html:
    """The speedup as Compare shows it, with warnings, its verdict, and the state of an unfinished
    run."""
    if result is None:
        return DASH
    if result.is_wrong:
        return f"does not count{state_mark(result)}"
    if result.speedup is None:
        return cell("speed_verdict")(result)
    return f"{cell('speedup')(result)} {cell('speed_verdict')(result)}{state_mark(result)}"


def _quotient(quotient: Difference | None) -> Html:
    if quotient is None:
        return '<span class="verdict plain">not compared</span>'
    text = difference_text(quotient).rpartition(", ")[0].replace(" times", "x", 1)
    return f"{with_interval(text)} {verdict_word(quotient.verdict, CLASSES[quotient.verdict])}"


SCALING = (
    "At 100 % each device does as much as it would alone. The 95 % interval comes from the rounds "
    "of both experiments; the rows of baseline and control show how much equal processes differ. "
    f"{explained(['scaling_efficiency'])}"
)


def show_scaling(
    sides: Sequence[Side], scaled_runs: Sequence[Scaling], refused: Sequence[Refusal]
) -> None:
    """Shows nothing unless one side has one device and another several."""
    if not scaled_runs and not refused:
        return
    frame = scaling_frame(scaled_runs) if scaled_runs else None
    with titled("Scaling over devices", frame, "scaling", SCALING):
        if scaled_runs:
            st.html(scaling_html(scaled_runs))
        for note in scaling_notes(sides, scaled_runs, refused):
            st.caption(inert(note))


def scaling_html(scaled_runs: Sequence[Scaling]) -> Html:
    """A row for each run on several devices."""
    looks = run_looks(list(dict.fromkeys(scaled.label for scaled in scaled_runs)))
    about = NUMBERS["scaling_efficiency"]
    head = [
        "Run",
        "",
        "Devices",
        *(
            anchor_html("scaling_efficiency", title, about.definition)
            for title in (about.title, "x one device")
        ),
    ]
    rows: list[list[Html]] = []
    for scaled in scaled_runs:
        texts = (
            scaled.letter,
            str(scaled.num_devices),
            efficiency_text(scaled),
            format_ratio(scaled.throughput),
        )
        rows.append([run_mark(scaled.label, looks[scaled.label]), *map(with_interval, texts)])
    return leaderboard.table("Scaling over devices", head, rows)


def scaling_frame(scaled_runs: Sequence[Scaling]) -> pd.DataFrame:
    """One row per run on several devices."""
    return pd.DataFrame(
        [
            {
                "label": scaled.label,
                "side": scaled.letter,
                "kind": scaled.kind,
                "devices": scaled.num_devices,
                "scaling_efficiency": scaled.efficiency,
                "scaling_efficiency_low": scaled.low,
                "scaling_efficiency_high": scaled.high,
                "throughput_of_one": scaled.throughput,
            }
            for scaled in scaled_runs
        ]
    )


PARAMETER = "side"
MAX_LINKS = 8


def show(store: Store) -> None:
    expect_parts()
    listed = queries.list_experiments(store).set_index("experiment_id", drop=False)
    names = titles(listed)
    given = bound(PARAMETER, [], list(names), most=MAX_SIDES)
    chosen = st.multiselect(
        "Experiments",
        list(names),
        **given,
        format_func=names.__getitem__,
        max_selections=MAX_SIDES,
        select_all=False,
        placeholder="Choose two or more",
        help="The others are compared with the first one.",
    )
    if len(chosen) < 2:
        st.info(
            "**Choose two experiments or more** above, or tick them in the table, to "
            "compare days, machines, versions, batch sizes or precisions.",
            icon=":material/compare_arrows:",
        )
        suggest(listed, names, chosen)
        return
    sides = load_sides(store, chosen)
    show_who(sides)
    for obstacle in (*obstacles(sides), *wrong_trainings(sides)):
        st.warning(inert(obstacle), icon=":material/block:")
    facts = tuple(f"{side.letter}: {side.name} · {side.experiment_id}" for side in sides)
    with files_of(Origin(name=slug("-".join(side.name for side in sides)), facts=facts)):
        show_all(store, sides)


ALIKE = ["task", "model", "data"]
"""What experiments have in common that are suggested."""
MOST_SUGGESTED = 5


def suggest(listed: pd.DataFrame, names: Mapping[str, str], chosen: Sequence[str]) -> None:
    """Links to pairs of experiments of one model and data: with the chosen one, or the latest."""
    groups = [list(group.index) for _, group in listed.groupby(ALIKE, sort=False, dropna=True)]
    pairs: Iterable[tuple[str, str]] = chain(*(combinations(group, 2) for group in groups))
    if chosen:
        others = chain(*(group for group in groups if chosen[0] in group))
        pairs = ((chosen[0], other) for other in others if other != chosen[0])
    suggested = list(islice(pairs, MOST_SUGGESTED))
    if not suggested:
        return
    st.markdown("Of the same model and data:")
    for pair in suggested:
        st.page_link(
            "views/all_experiments.py",
            label=inert(" and ".join(names[key] for key in pair)),
            icon=":material/compare_arrows:",
            query_params=[("view", "Side by side"), *((PARAMETER, key) for key in pair)],
        )


def show_who(sides: Sequence[Side]) -> None:
    """Shows the experiment of each letter."""
    for column, side in zip(st.columns(len(sides)), sides, strict=True):
        device = side.environment.get("device_name") or side.spec.device
        torch = (side.environment.get("versions") or {}).get("torch")
        mark = run_mark(side.letter, side_charts.LOOKS[side.letter])
        with column.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.html(f'<h3 class="side">{mark}</h3>', width="content")
            st.page_link(
                "views/experiment.py",
                label=inert(side.name),
                query_params={"experiment": side.experiment_id},
            )
        version = f", torch {inert(torch)}" if torch else ""
        count = len(side.comparison.warnings)
        warnings = f", {words.plural(count, 'warning')} in its verdict" if count else ""
        column.caption(f"{words.moment(side.submitted)}, {inert(device)}{version}{warnings}")


def show_all(store: Store, sides: Sequence[Side]) -> None:
    quotients = differences(sides)
    if labels(sides):
        with titled(
            "Speedups compared", speedup_frame(sides, quotients), "difference", EXPLANATION
        ):
            st.html(speedup_html(sides, quotients))
        alike = [side for side in sides if side is sides[0] or comparable(sides[0], side).speed]
        show_card(
            Card(
                "Speedups",
                lambda: side_charts.speedups_of_sides(alike),
                speedup_frame(sides, quotients),
                name="sides",
                numbers=["speedup"],
            )
        )
    show_scaling(sides, *scalings(sides))
    show_losses(store, sides)
    with titled("Other numbers"):
        st.html(numbers_html(sides))
    with titled("What differs"):
        others = differing(sides)
        if others:
            st.html(differing_html(sides, others))
        else:
            st.caption("Nothing: settings, machines, software and data are the same.")
    show_compilers(sides)


def show_compilers(sides: Sequence[Side]) -> None:
    """Links to the compiler differences between the first two sides."""
    first, second = sides[:2]
    both = [label for label in labels(sides) if first.result(label) and second.result(label)]
    if not both:
        return
    st.caption(f"Compiler differences, {inert(first.letter)} and {inert(second.letter)}:")
    with st.container(horizontal=True):
        for label in both[:MAX_LINKS]:
            run_id = first.comparison.result_of(label).run_id
            query = {
                "experiment": first.experiment_id,
                "run": run_id,
                "tab": "Runs",
                "part": "Compiling",
                "with": second.experiment_id,
            }
            st.page_link(
                "views/experiment.py",
                label=inert(label),
                query_params=query,
                icon=":material/difference:",
            )


def show_losses(store: Store, sides: Sequence[Side]) -> None:
    """Shows losses of one backend, or of the baselines, for all sides that learned the same; a
    caption above the chart names the omitted sides."""
    reference = sides[0]
    alike = [side for side in sides if side is reference or comparable(reference, side).learning]
    if len(alike) < 2:
        why = {obstacle for side in sides[1:] for obstacle in comparable(reference, side).obstacles}
        reasons = " and ".join(
            WHY_NOT_COMPARED[obstacle] for obstacle in WHY_NOT_COMPARED if obstacle in why
        )
        st.caption(f"Losses are not drawn together: {inert(reasons)}.")
        return
    names = ["baseline", *labels(alike)]
    given = bound("losses_of", names[0], names)
    first = names[given.pop("index")]
    label = st.segmented_control(
        "Losses of", names, default=first, required=True, format_func=inert, **given
    )
    frames = []
    for side in alike:
        losses, result = queries.losses(store, side.experiment_id), side.result(str(label))
        wanted = "" if result is None else result.run_id.partition(".")[2]
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
    show_card(
        Card(
            title,
            lambda: losses_chart(by_letter, looks=side_charts.LOOKS),
            frame,
            name="side-losses",
            numbers=["loss"],
        )
    )
