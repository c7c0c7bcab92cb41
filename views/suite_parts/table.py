"""Every cell of a suite run as a table, each leading to its experiments on Compare."""

from collections.abc import Callable, Sequence
from urllib.parse import quote

import pandas as pd

from breakeven.storage.comparison.correctness import PASS
from breakeven.storage.numbers.metrics import DASH, METRICS
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.suite.groups import Outcome
from breakeven.views.charts.palette import run_looks, run_mark
from breakeven.views.comparison.leaderboard import doubt_mark, scrolled, verdict_word, with_interval
from breakeven.views.comparison.verdicts import VERDICT_CLASSES
from breakeven.views.shared.inert import Html, inert
from breakeven.views.shared.links import anchor_html

HtmlCell = Callable[[Outcome], Html]
STATUS = "num_tensors"
"""The number that is defined where statuses are."""
PLAIN = ("compile_seconds", "memory_ratio")
CACHES = {"cold_compile_seconds": "cold_seconds", "warm_compile_seconds": "warm_seconds"}
"""Name of a metric to that of the outcome's field."""


def html(found: Sequence[Outcome]) -> Html:
    """The whole table; text from specifications is escaped."""
    columns = _columns(found)
    head = "".join(f"<th>{title}</th>" for title in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{cell(one)}</td>" for cell in columns.values()) + "</tr>"
        for one in found
    )
    return scrolled(f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>", "Every cell")


def frame(found: Sequence[Outcome]) -> pd.DataFrame:
    """One row per cell, in numbers."""
    return pd.DataFrame(
        [
            {
                **one.cell._asdict(),
                "status": one.status,
                "speedup": one.speedup and one.speedup.median,
                "speedup_low": one.speedup and one.speedup.low,
                "speedup_high": one.speedup and one.speedup.high,
                "speed_verdict": one.speed_verdict,
                "compile_seconds": one.compile_seconds,
                "memory_ratio": one.memory_ratio,
                "cold_compile_seconds": one.cold_seconds,
                "warm_compile_seconds": one.warm_seconds,
                "failure": one.failure,
                **{f"{name}_experiment": key for name, key in one.experiments.items()},
            }
            for one in found
        ]
    )


def _columns(found: Sequence[Outcome]) -> dict[str, HtmlCell]:
    """By the title's HTML; columns that say nothing of any cell are left out."""
    looks = run_looks(one.cell.backend for one in found)
    columns: dict[str, HtmlCell] = {
        "Model": lambda one: inert(one.cell.model),
        "Backend": lambda one: run_mark(one.cell.backend, looks[one.cell.backend]),
        "Precision": lambda one: inert(one.cell.precision),
        "Part": lambda one: inert(one.cell.part),
    }
    if any("accuracy" in one.experiments for one in found):
        columns[anchor_html(STATUS, "Accuracy check")] = _status
    if any("speed" in one.experiments for one in found):
        columns[_title("speedup")] = _speedup
        columns[_title("speed_verdict")] = _verdict
        for name in PLAIN:
            columns[_title(name)] = _plain(name, name)
    if any("cache" in one.experiments for one in found):
        for name, field in CACHES.items():
            columns[_title(name)] = _plain(name, field)
    return columns


def _title(name: str) -> Html:
    return anchor_html(name, METRICS[name].title, METRICS[name].definition)


def _plain(name: str, field: str) -> HtmlCell:
    return lambda one: inert(METRICS[name].format(getattr(one, field)))


def _status(one: Outcome) -> Html:
    if one.status is None:
        return _to_experiment(one, "accuracy", DASH)
    kind = "good" if one.status == PASS else "bad"
    word = verdict_word(one.status, kind, one.explanation)
    return _to_experiment(one, "accuracy", word)


def _speedup(one: Outcome) -> Html:
    if one.speed_failure:
        return _to_experiment(one, "speed", verdict_word("failed", "bad", one.speed_failure))
    text = with_interval(ratio_text(one.speedup))
    return doubt_mark(one.doubts) + _to_experiment(one, "speed", text)


def _verdict(one: Outcome) -> Html:
    if one.speed_verdict is None:
        return DASH
    return verdict_word(one.speed_verdict, VERDICT_CLASSES[one.speed_verdict], one.failure or "")


def _to_experiment(one: Outcome, scenario: str, text: Html) -> Html:
    """The text, leading to the experiment on Compare, which is the page at the root."""
    key = one.experiments.get(scenario)
    return (
        f'<a class="quiet" target="_self" href="./experiment?experiment={quote(key)}">{text}</a>'
        if key
        else text
    )
