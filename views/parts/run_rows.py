"""The runs of an experiment while they go on, a row each, as one piece of HTML.

Live draws it several times a second on the machine that is being timed: one element costs a small
part of what a row of Streamlit's own, with its columns and texts, takes.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from breakeven.runner.folders.states import RunState
from breakeven.storage.numbers.metrics import METRICS
from breakeven.views.charts.palette import run_looks, run_mark
from breakeven.views.shared import words
from breakeven.views.shared.inert import Html
from breakeven.views.shared.links import anchor_html

TURN = '<span title="It has its turn">\N{BLACK RIGHT-POINTING TRIANGLE}</span> '


def html(runs: pd.DataFrame, usual_compile_seconds: Mapping[str, float], now: pd.Timestamp) -> Html:
    """What each run does, how far it is, its loss and speed.

    `runs`: rows of `storage.queries.list_runs`; `usual_compile_seconds`: what compiling took an
    earlier run, by label.
    """
    looks = run_looks(runs["label"])
    rows = [
        f'<div class="run-row" role="listitem"><span>{run_mark(run.label, looks[run.label])}</span>'
        f"<span>{_doing(run, usual_compile_seconds.get(run.label), now)}</span>"
        f"{_progress(run)}<span>{_numbers(run)}</span></div>"
        for run in runs.itertuples()
    ]
    return f'<div class="run-rows" role="list">{"".join(rows)}</div>'


def _doing(run: Any, usual_compile_seconds: float | None, now: pd.Timestamp) -> Html:
    """One run at a time has the device; the others wait for it."""
    turn = TURN if words.has_turn(run) else ""
    return turn + words.activity(run, now, usual_compile_seconds)


def _progress(run: Any) -> Html:
    """A run that ended by rules of its own is through, however many steps it did."""
    through = run.state == RunState.FINISHED
    known = max(run.num_steps, 1)  # 0 of a script that has not said how many
    share = 1.0 if through else min(1.0, run.steps_done / known) if run.num_steps else 0.0
    of_all = f" / {run.num_steps:,}" if run.num_steps else ""
    done = anchor_html("num_steps", f"{run.steps_done:,}{of_all} steps")
    percent = f"{100 * share:.1f}"
    return (
        f'<div>{done}<div class="bar" role="progressbar" aria-label="Steps done" '
        f'aria-valuenow="{percent}"><div style="width: {percent}%"></div></div></div>'
    )


def _numbers(run: Any) -> Html:
    step_time = METRICS["step_seconds"].format(run.steady_step_seconds)
    told = [anchor_html("step_seconds", f"{step_time} / step")]
    if run.last_loss is not None:
        told.insert(0, anchor_html("loss", f"loss {METRICS['loss'].format(run.last_loss)}"))
    return " · ".join(told)
