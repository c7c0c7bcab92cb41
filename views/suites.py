"""Suites: what many models come to under each backend, and what changed since an earlier run."""

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from storage import queries
from storage.exchange.suites import SUITE_FORMATS, suite_rows
from storage.metrics import DASH, METRICS
from storage.store import Store
from storage.suite import Group, Outcome, groups
from storage.suite_cells import outcomes
from storage.suite_regressions import Against, against
from storage.suite_report import other_conditions, share_text
from views import exchange, suite_charts, suite_table, words
from views.downloads import chart_card, csv_button
from views.links import linked
from views.resources import get_store
from views.selection import choose_earlier, choose_suite_run
from views.tables import show_table

EMPTY = """\
#### No suite was run here yet

A suite runs many models of PyTorch's benchmarks under every backend, checks what they compute and
times them. Queue one on the command line, with small models where there is no GPU:

```
python -m runner suite huggingface --backends inductor --models BertForMaskedLM,T5Small \\
    --shrink 16 --batch-size 2 --sequence-length 64
python -m runner supervise
```
"""


def main() -> None:
    store = get_store()
    runs = queries.list_suite_runs(store)
    if runs.empty:
        st.markdown(EMPTY)
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        run = choose_suite_run(runs)
        earlier = choose_earlier(runs, run["suite_run"])
    with st.spinner(f"Reading {words.plural(run['num_experiments'], 'experiment')} …"):
        found = outcomes(store, run["suite_run"])
        before = outcomes(store, earlier) if earlier else []
    compared = against(found, before) if earlier else None
    show_answer(run, found, compared, earlier)
    show_summary(store, run, found)
    if compared is not None:
        show_changes(earlier, compared, other_conditions(runs, run["suite_run"], earlier))
    show_speedups(found, before)
    show_cells(found)
    exchange.show_imported(store, run["suite_run"], suite_rows)


def show_answer(
    run: pd.Series, found: Sequence[Outcome], compared: Against | None, earlier: str
) -> None:
    """The answer in a sentence or two, how far the run is, and where it ran."""
    num_open = run["num_experiments"] - run["num_over"]
    if num_open:
        st.info(
            f"{num_open} of {run['num_experiments']} experiments are still to come: what follows "
            "is what is known so far.",
            icon=":material/hourglass_top:",
        )
    st.markdown(f"### {headline(groups(found), compared, earlier)}")
    parts = [run["device_name"], words.day(run["submitted"])]
    parts += [f"torch {run['torch_version']}"] if run["torch_version"] else []
    st.caption(" · ".join(str(part) for part in parts if part))


def headline(rows: Sequence[Group], compared: Against | None = None, earlier: str = "") -> str:
    """All that the best backend comes to; then what got worse."""
    rated = [row for row in rows if row.geomean_speedup is not None]
    if rated:
        best = max(rated, key=lambda row: row.geomean_speedup or 0.0)
        told = [_told(row) for row in rated if row.backend == best.backend]
        said = f"**{best.backend}** comes to {' and to '.join(told)}."
    else:
        said = "No model has a speedup that counts."
    failed = sum(row.num_checked - row.num_passed for row in rows)
    if failed:
        said += f" {words.plural(failed, 'accuracy check')} did not pass."
    if compared is not None:
        worse = len(compared.regressions)
        said += (
            f" {words.plural(worse, 'number') if worse else 'Nothing'} got worse since {earlier}."
        )
    return said


def _told(row: Group) -> str:
    """`1.32x in training (bf16, 41 of 43 models)`."""
    speed = linked("geomean_speedup", METRICS["geomean_speedup"].format(row.geomean_speedup))
    total = len(row.speedups) + len(row.failures)
    models = words.plural(total, "model")
    return f"{speed} in {row.part} ({row.precision}, {len(row.speedups)} of {models})"


def show_summary(store: Store, run: pd.Series, found: Sequence[Outcome]) -> None:
    """A row for each backend, precision and part, and the files in the harness's formats."""
    rows = groups(found)
    show_table("All models together", summary(rows), "suite-summary", "",
               dict.fromkeys(("models", "counted", "failed"), "geomean_speedup"))  # fmt: skip
    named = {f"{model} ({row.backend}, {row.precision}, {row.part}): {reason}": None
             for row in rows for model, reason in row.failures.items()}  # fmt: skip
    if named:
        listed = "\n".join(f"- {one}" for one in named)
        st.warning(f"Left out of the mean speedup:\n{listed}", icon=":material/info:")
    exchange.buttons(store, run["suite_run"], SUITE_FORMATS)


def summary(rows: Sequence[Group]) -> pd.DataFrame:
    """Written for people; a column that says nothing of any row is left out."""
    columns: dict[str, list[str]] = {
        "backend": [row.backend for row in rows],
        "precision": [row.precision for row in rows],
        "part": [row.part for row in rows],
        "models": [str(len(row.outcomes)) for row in rows],
        "pass_rate": [share_text(row) for row in rows],
        **{
            name: [METRICS[name].format(getattr(row, name)) for row in rows]
            for name in ("geomean_speedup", "mean_compile_seconds", "memory_ratio",
                         "compile_time_saved")
        },
        "counted": [str(len(row.speedups)) for row in rows],
        "failed": [str(len(row.failures)) for row in rows],
    }  # fmt: skip
    return pd.DataFrame({name: cells for name, cells in columns.items() if set(cells) != {DASH}})


def show_changes(earlier: str, compared: Against, conditions: str) -> None:
    """What is worse or better than before, which cells only one of the runs has, and what differed
    where they were made."""
    if conditions:
        st.warning(f"The two runs were made under other conditions: {conditions}.",
                   icon=":material/info:")  # fmt: skip
    table = pd.DataFrame(
        [
            {
                **change.cell._asdict(),
                "what": change.kind,
                "change": "worse" if change.is_worse else "better",
                "before": change.before,
                "now": change.now,
                "doubt": " ".join(change.doubts),
            }
            for change in compared.changes
        ]
    )
    if not any(change.doubts for change in compared.changes):
        table = table.drop(columns="doubt", errors="ignore")
    show_table(f"Worse or better than {earlier}", table, "suite-changes",
               "No cell is clearly better or worse.",
               {"before": "suite_change", "now": "suite_change"})  # fmt: skip
    notes = []
    if compared.geomean_change is not None:
        change = METRICS["geomean_speedup"].format(compared.geomean_change)
        notes.append(f"Over the {words.plural(compared.num_paired, 'cell')} that have a speedup in "
                     f"both runs, speedups are {linked('suite_change', change)} the earlier "
                     "ones.")  # fmt: skip
    for which, cells in (("earlier", compared.only_before), ("later", compared.only_now)):
        if cells:
            models = ", ".join(dict.fromkeys(cell.model for cell in cells))
            notes.append(f"Only the {which} run has {words.plural(len(cells), 'cell')}: {models}.")
    st.caption("  \n".join(notes))


def show_speedups(found: Sequence[Outcome], before: Sequence[Outcome]) -> None:
    frame = suite_charts.speedup_frame(found, before)
    if frame.empty:
        return
    draw = {
        title: partial(suite_charts.speedups, part.reset_index(drop=True))
        for title, part in frame.groupby("conditions", sort=False)
    }
    chart_card("Speedup of every model", draw, frame, name="suite-speedups", numbers=["speedup"])


def show_cells(found: Sequence[Outcome]) -> None:
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown("**Every cell**", width="stretch")
            csv_button("CSV", suite_table.frame(found), "suite-cells")
        st.html(suite_table.html(found))


main()
