"""Suite runs: many models under each backend, and changes since an earlier run."""

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from breakeven.storage import queries
from breakeven.storage.exchange.formats import suite_rows
from breakeven.storage.index.store import Store
from breakeven.storage.suite.cells import outcomes
from breakeven.storage.suite.groups import Against, Outcome, against, groups
from breakeven.storage.terminal.caution_words import doubt_words
from breakeven.storage.terminal.suite import UNCLEAR, change_text, other_conditions
from breakeven.views.charts import matrix as suite_charts
from breakeven.views.charts.matrix import heat_map
from breakeven.views.parts import exchange
from breakeven.views.parts.downloads import chart_card, show_table, table_downloads
from breakeven.views.parts.exports import files_of, suite_origin
from breakeven.views.report import menu as report_menu
from breakeven.views.report import suite as suite_tables
from breakeven.views.shared import words
from breakeven.views.shared.inert import inert
from breakeven.views.shared.links import linked, sentence
from breakeven.views.shared.selection import choose_earlier, choose_suite_run

EMPTY = """\
#### No suite was run here yet

A suite runs many models of PyTorch's benchmarks under every backend, checks their numbers and
times them. `breakeven suite` does the same.
"""


def show(store: Store) -> None:
    runs = queries.list_suite_runs(store)
    if runs.empty:
        st.markdown(EMPTY)
        st.page_link("views/launch.py", label="Launch a suite", icon=":material/rocket_launch:",
                     query_params={"start": "suite"})  # fmt: skip
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        run = choose_suite_run(runs)
        earlier = choose_earlier(runs, run["suite_run"])
    with st.spinner(f"Reading {words.plural(run['num_experiments'], 'experiment')} …"):
        found = outcomes(store, run["suite_run"])
        before = outcomes(store, earlier) if earlier else []
    compared = against(found, before) if earlier else None
    show_answer(store, run, found, compared, earlier)
    with files_of(suite_origin(run)):
        show_summary(store, run, found)
        if compared is not None:
            show_changes(earlier, compared, other_conditions(runs, run["suite_run"], earlier))
        show_speedups(found, before)
        show_cells(found)
        exchange.show_imported(store, run["suite_run"], suite_rows)


def show_answer(
    store: Store, run: pd.Series, found: Sequence[Outcome], compared: Against | None, earlier: str
) -> None:
    """Shows the answer in one or two sentences, the progress of the run, and its machine."""
    num_open = run["num_experiments"] - run["num_over"]
    if num_open:
        st.info(
            f"{num_open:,} of {run['num_experiments']:,} experiments are not finished; the "
            "numbers below are preliminary.",
            icon=":material/hourglass_top:",
        )
    st.markdown(f"### {suite_tables.headline(groups(found), compared, earlier)}")
    parts = [run["device_name"], words.day(run["submitted"])]
    parts += [f"torch {run['torch_version']}"] if run["torch_version"] else []
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(" · ".join(inert(part) for part in parts if part), width="stretch")
        report_menu.links(run["suite_run"])
        with st.container(width="content"):
            report_menu.show(store, run["suite_run"], suite_origin(run), is_suite=True)


def show_summary(store: Store, run: pd.Series, found: Sequence[Outcome]) -> None:
    """A row for each backend, precision and part, and the files in the harness's formats."""
    rows = groups(found)
    show_table("All models together", suite_tables.summary(rows), "suite-summary", "",
               dict.fromkeys(("models", "counted", "failed"), "geomean_speedup"),
               download=suite_tables.numbers(rows))  # fmt: skip
    rested = suite_tables.rested(rows)
    if rested:
        st.caption(
            "  \n".join(
                [f"{linked('left_out', 'Influence of single models on the means')}:", *rested]
            )
        )
    named = {f"{model} ({', '.join(row.row)}): {reason}": None
             for row in rows for model, reason in row.failures.items()}  # fmt: skip
    if named:
        listed = "\n".join(f"- {inert(one)}" for one in named)
        st.warning(f"Left out of the mean speedup:\n{listed}", icon=":material/info:")
    exchange.buttons(store, run["suite_run"])


def show_changes(earlier: str, compared: Against, conditions: str) -> None:
    """Shows cells that became worse or better, cells that only one run has, and different
    conditions of the two runs."""
    if conditions:
        st.warning(f"The two runs had different conditions: {inert(conditions)}.",
                   icon=":material/info:")  # fmt: skip
    table = pd.DataFrame(
        [
            {
                **change.cell._asdict(),
                "what": change.kind,
                "change": "worse" if change.is_worse else "better",
                "before": change.before,
                "now": change.now,
                "doubt": " ".join(str(doubt_words(doubt)) for doubt in change.doubts),
            }
            for change in compared.changes
        ]
    )
    if not any(change.doubts for change in compared.changes):
        table = table.drop(columns="doubt", errors="ignore")
    show_table(f"Worse or better than {inert(earlier)}", table, "suite-changes",
               "No cell is clearly better or worse.",
               {"before": "suite_change", "now": "suite_change"})  # fmt: skip
    notes = [
        f"**{inert(', '.join(row))}**: {sentence(change_text(mean))}"
        for row, mean in compared.means.items()
    ]
    if compared.unclear:
        unclear = ", ".join(dict.fromkeys(cell.model for cell in compared.unclear))
        notes.append(f"{words.plural(len(compared.unclear), 'undecided cell')} (for each, "
                     f"{UNCLEAR}): {inert(unclear)}.")  # fmt: skip
    for which, cells in (("earlier", compared.only_before), ("later", compared.only_now)):
        if cells:
            models = ", ".join(dict.fromkeys(cell.model for cell in cells))
            notes.append(f"Only the {which} run has {words.plural(len(cells), 'cell')}: "
                         f"{inert(models)}.")  # fmt: skip
    st.caption("  \n".join(notes))


def show_speedups(found: Sequence[Outcome], before: Sequence[Outcome]) -> None:
    frame = suite_charts.speedup_frame(found, before)
    if frame.empty:
        return
    draw = suite_charts.by_conditions(frame)
    alike: dict[str, list[Outcome]] = {}
    for one in found:
        alike.setdefault(f"{one.cell.precision}, {one.cell.part}", []).append(one)
    draw |= {
        f"{title}, matrix": partial(heat_map, suite_charts.speedup_matrix(alike[title]))
        for title in list(draw)
    }
    chart_card("Speedup of every model", draw, frame, name="suite-speedups", numbers=["speedup"])


def show_cells(found: Sequence[Outcome]) -> None:
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown("**Every cell**", width="stretch")
            table_downloads(suite_tables.cells_frame(found), "suite-cells")
        st.html(suite_tables.cells_html(found))
