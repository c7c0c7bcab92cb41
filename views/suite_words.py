"""A suite run in words: the answer in a sentence or two, and the summary as people read it."""

from collections.abc import Sequence

import pandas as pd

from storage.metrics import DASH, METRICS
from storage.suite import Group
from storage.suite_regressions import Against
from storage.suite_report import share_text
from views import words
from views.inert import Markdown, inert
from views.links import linked


def headline(rows: Sequence[Group], compared: Against | None = None, earlier: str = "") -> Markdown:
    """All that the best backend comes to; then what got worse."""
    rated = [row for row in rows if row.geomean_speedup is not None]
    if rated:
        best = max(rated, key=lambda row: row.geomean_speedup or 0.0)
        told = [_told(row) for row in rated if row.backend == best.backend]
        said = f"**{inert(best.backend)}** comes to {' and to '.join(told)}."
    else:
        saved = [_told_saved(row) for row in rows if row.compile_time_saved is not None]
        said = f"Filled caches save {' and '.join(saved)}." if saved else "No model has a speedup."
    failed = sum(row.num_checked - row.num_passed for row in rows)
    if failed:
        said += f" {words.plural(failed, 'accuracy check')} did not pass."
    if compared is not None:
        worse = compared.regressions
        doubtful = sum(bool(change.doubts) for change in worse)
        said += f" {words.plural(len(worse), 'number') if worse else 'Nothing'} got worse since "
        said += (
            f"{inert(earlier)}, {doubtful} of them in doubt." if doubtful else f"{inert(earlier)}."
        )
    return said


def _told(row: Group) -> Markdown:
    """`1.32x in training (bf16, 41 of 43 models)`."""
    speed = linked("geomean_speedup", METRICS["geomean_speedup"].format(row.geomean_speedup))
    total = len(row.speedups) + len(row.failures)
    models = words.plural(total, "model")
    return f"{speed} in {inert(row.part)} ({inert(row.precision)}, {len(row.speedups)} of {models})"


def _told_saved(row: Group) -> Markdown:
    """`77.8 % of the compile time of inductor in training (float32, 1 model)`."""
    share = METRICS["compile_time_saved"].format(row.compile_time_saved)
    saved = linked("compile_time_saved", f"{share} of the compile time")
    models = words.plural(len(row.outcomes), "model")
    where = f"{inert(row.part)} ({inert(row.precision)}, {models})"
    return f"{saved} of **{inert(row.backend)}** in {where}"


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
        "counted": [str(len(row.speedups)) if row.is_timed else DASH for row in rows],
        "failed": [str(len(row.failures)) for row in rows],
    }  # fmt: skip
    return pd.DataFrame({name: cells for name, cells in columns.items() if set(cells) != {DASH}})
