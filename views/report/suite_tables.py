"""A suite run in words and tables: the answer, the formatted summary, and every cell."""

from collections.abc import Callable, Sequence
from urllib.parse import quote

import pandas as pd

from breakeven.storage.comparison.correctness import PASS
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.numbers.metrics import DASH, METRICS
from breakeven.storage.statistics.break_even import with_ends
from breakeven.storage.statistics.speedups import SpeedDoubt, SpeedVerdict, ratio_text, speed_doubt
from breakeven.storage.suite_runs.groups import MIN_MODELS, Group, Outcome, SuiteChanges
from breakeven.storage.words.suites import compile_text, rests_on, share_text
from breakeven.views.charts.palette import run_looks, run_mark
from breakeven.views.comparison.headline import VERDICT_CLASSES, VERDICTS, none_faster, reasons
from breakeven.views.comparison.leaderboard import (
    heading,
    table,
    verdict_word,
    warning_mark,
    with_interval,
)
from breakeven.views.shared import words
from breakeven.views.shared.definition_links import anchor_html, linked, sentence
from breakeven.views.shared.inert import Html, Markdown, inert
from breakeven.views.shared.words import joined, listed

DOUBTS: dict[SpeedDoubt, Markdown] = {
    "few": f"too few models to tell (at least {MIN_MODELS} are needed)",
    "chance": "the difference may be chance, because models and rounds differ so much",
    "margin": "the difference is too small to tell from noise",
}


def headline(
    rows: Sequence[Group], compared: SuiteChanges | None = None, earlier: str = ""
) -> Markdown:
    """The verdicts of the backends, the checks that did not pass, and what got worse."""
    sentences = [_speeds(rows), _checks(rows)]
    sentences += [] if compared is None else [_changes(compared, earlier)]
    return " ".join(filter(None, sentences))


def _speeds(rows: Sequence[Group]) -> Markdown:
    rated = [row for row in rows if row.mean is not None]
    if not rated:
        saved = [_saved_text(row) for row in rows if row.compile_time_saved is not None]
        return " ".join(saved) or "No model has a speedup."
    rated.sort(key=lambda row: -row.speedup.median if row.speedup else 0.0)
    faster = [row for row in rated if row.mean and row.mean.verdict == "faster"]
    if not faster:
        return _none_faster(rated, are_all=len(rated) == len(rows))
    best = faster[0].row.backend
    text = _of_backend(best, [row for row in rated if row.row.backend == best])
    others = [f"{_name(row)} at {_speed(row)}" for row in faster if row.row.backend != best]
    return f"{text} Also faster: {listed(others)}." if others else text


def _none_faster(rated: Sequence[Group], *, are_all: bool) -> Markdown:
    at: dict[SpeedVerdict, list[Markdown]] = {}
    unsure: list[SpeedDoubt] = []
    for row in rated:
        assert row.mean is not None
        at.setdefault(row.mean.verdict, []).append(f"{_name(row)} at {_speed(row)}")
        if row.mean.verdict == "unsure":
            unsure.append(speed_doubt(row.mean.ratio, row.mean.p_holm))
    return none_faster(at, reasons(unsure, DOUBTS), are_all=are_all)


def _of_backend(backend: str, rows: Sequence[Group]) -> Markdown:
    """`**inductor** is faster than without a compiler in training (...) at 1.32x, and ...`."""
    parts = []
    for verdict in VERDICTS:
        places = [
            f"{_where(row)} at {_speed(row)}"
            for row in rows
            if row.mean and row.mean.verdict == verdict
        ]
        word = "as fast" if verdict == "same" else inert(format_verdict(verdict))
        than = " than without a compiler" if verdict == "faster" else ""
        parts += [f"{word}{than} {listed(places)}"] if places else []
    return f"**{inert(backend)}** is {joined(parts)}."


def _checks(rows: Sequence[Group]) -> Markdown:
    failed = sum(row.num_checked - row.num_passed for row in rows)
    return f"{words.plural(failed, 'accuracy check')} did not pass." if failed else ""


def _changes(compared: SuiteChanges, earlier: str) -> Markdown:
    """How many numbers clearly got worse, and how many cells cannot be judged."""
    worse = compared.regressions
    doubtful = sum(bool(change.warnings) for change in worse)
    text = (
        f"{words.plural(len(worse), 'number')} got worse" if worse else "Nothing got clearly worse"
    )
    text += f" since {inert(earlier)}"
    text += f", {doubtful} of them in doubt." if doubtful else "."
    unclear = words.plural(len(compared.unclear), "cell")
    return f"{text} {unclear} cannot be judged." if compared.unclear else text


def _name(row: Group) -> Markdown:
    return f"**{inert(row.row.backend)}** {_where(row)}"


def _where(row: Group) -> Markdown:
    """`in training (bf16, 41 of 43 models)`."""
    total = words.plural(row.num_counted + len(row.failures), "model")
    return f"in {inert(row.row.part)} ({inert(row.row.precision)}, {row.num_counted:,} of {total})"


def _speed(row: Group) -> Markdown:
    return linked("geomean_speedup", inert(ratio_text(row.speedup)))


def _saved_text(row: Group) -> Markdown:
    """The share of compile time that filled caches saved, over all models and per model."""
    write = METRICS["compile_time_saved"].format
    saved, shares = row.compile_time_saved or 0.0, row.saved_by_model
    saved_share = f"{write(saved)} of the compile time" if saved > 0 else "nothing"
    spread = (
        f"; single models {write(min(shares))} to {write(max(shares))}" if len(shares) > 1 else ""
    )
    models = words.plural(len(shares), "model")
    return (
        f"Filled caches saved {linked('compile_time_saved', saved_share)} of "
        f"**{inert(row.row.backend)}** "
        f"in {inert(row.row.part)} ({inert(row.row.precision)}, {models}{spread})."
    )


def models_in_means(rows: Sequence[Group]) -> list[Markdown]:
    """The models in each mean."""
    return [f"{_name(row)}: {sentence(rest)}" for row in rows if (rest := rests_on(row.mean)).parts]


def summary(rows: Sequence[Group]) -> pd.DataFrame:
    """A table of formatted values, without columns that are empty in every row."""
    columns: dict[str, list[str]] = {
        "backend": [row.row.backend for row in rows],
        "precision": [row.row.precision for row in rows],
        "part": [row.row.part for row in rows],
        "models": [str(len(row.outcomes)) for row in rows],
        "pass_rate": [share_text(row) for row in rows],
        "geomean_speedup": [ratio_text(row.speedup) for row in rows],
        "speed_verdict": [format_verdict(row.mean and row.mean.verdict) for row in rows],
        "mean_compile_seconds": [compile_text(row) for row in rows],
        "memory_ratio": [ratio_text(row.memory) for row in rows],
        "compile_time_saved": [
            METRICS["compile_time_saved"].format(row.compile_time_saved) for row in rows
        ],
        "counted": [str(row.num_counted) if row.is_timed else DASH for row in rows],
        "failed": [str(len(row.failures)) for row in rows],
    }
    return pd.DataFrame({name: cells for name, cells in columns.items() if set(cells) != {DASH}})


def numbers(rows: Sequence[Group]) -> pd.DataFrame:
    """The summary in numbers, for downloads, with the models in each mean."""
    return pd.DataFrame([_numbers(row) for row in rows])


def _numbers(row: Group) -> dict[str, object]:
    mean = row.mean
    most = mean.left_out[0] if mean and mean.left_out else None
    return {
        **row.row._asdict(),
        "models": len(row.outcomes),
        "checked": row.num_checked,
        "passed": row.num_passed,
        "pass_rate": row.pass_rate,
        **with_ends("geomean_speedup", mean.ratio if mean else None),
        "p_holm": mean and mean.p_holm,
        "speed_verdict": mean and mean.verdict,
        "counted": row.num_counted,
        "failed": len(row.failures),
        "verdict_changes_without": "; ".join(left_out.model for left_out in mean.deciding)
        if mean
        else None,
        "mean_moves_most_without": most and most.model,
        "geomean_speedup_without": most and most.mean,
        "mean_compile_seconds": row.mean_compile_seconds,
        "longest_compile_seconds": max(row.compile_seconds, default=None),
        **with_ends("memory_ratio", row.memory),
        "compile_time_saved": row.compile_time_saved,
    }


HtmlCell = Callable[[Outcome], Html]
STATUS = "num_tensors"
"""The number whose definition also explains statuses."""
PLAIN = ("compile_seconds", "memory_ratio")
CACHES = {"cold_compile_seconds": "cold_seconds", "warm_compile_seconds": "warm_seconds"}
"""The field of an outcome for each metric."""


def cells_html(outcomes: Sequence[Outcome]) -> Html:
    """The table of all cells; text from specifications is escaped."""
    columns = _columns(outcomes)
    rows = ([cell(outcome) for cell in columns.values()] for outcome in outcomes)
    return table("Every cell", list(columns), rows)


def cells_frame(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """One row per cell, in numbers."""
    return pd.DataFrame(
        [
            {
                **outcome.cell._asdict(),
                "status": outcome.status,
                **with_ends("speedup", outcome.speedup),
                "speed_verdict": outcome.speed_verdict,
                "compile_seconds": outcome.compile_seconds,
                "memory_ratio": outcome.memory_ratio,
                "cold_compile_seconds": outcome.cold_seconds,
                "warm_compile_seconds": outcome.warm_seconds,
                "failure": outcome.failure,
                **{f"{name}_experiment": key for name, key in outcome.experiments.items()},
            }
            for outcome in outcomes
        ]
    )


def _columns(outcomes: Sequence[Outcome]) -> dict[str, HtmlCell]:
    """Columns by the HTML of their titles, without columns that are empty in every cell."""
    looks = run_looks(outcome.cell.backend for outcome in outcomes)
    columns: dict[str, HtmlCell] = {
        "Model": lambda outcome: inert(outcome.cell.model),
        "Backend": lambda outcome: run_mark(outcome.cell.backend, looks[outcome.cell.backend]),
        "Precision": lambda outcome: inert(outcome.cell.precision),
        "Part": lambda outcome: inert(outcome.cell.part),
    }
    if any("accuracy" in outcome.experiments for outcome in outcomes):
        columns[anchor_html(STATUS, "Accuracy check")] = _status
    if any("speed" in outcome.experiments for outcome in outcomes):
        columns[heading("speedup")] = _speedup
        columns[heading("speed_verdict")] = _verdict
        for name in PLAIN:
            columns[heading(name)] = _plain(name, name)
    if any("cache" in outcome.experiments for outcome in outcomes):
        for name, field in CACHES.items():
            columns[heading(name)] = _plain(name, field)
    return columns


def _plain(name: str, field: str) -> HtmlCell:
    return lambda outcome: inert(METRICS[name].format(getattr(outcome, field)))


def _status(outcome: Outcome) -> Html:
    if outcome.status is None:
        return _to_experiment(outcome, "accuracy", DASH)
    kind = "good" if outcome.status == PASS else "bad"
    word = verdict_word(outcome.status, kind, outcome.explanation)
    return _to_experiment(outcome, "accuracy", word)


def _speedup(outcome: Outcome) -> Html:
    if outcome.speed_failure:
        return _to_experiment(
            outcome, "speed", verdict_word("failed", "bad", outcome.speed_failure)
        )
    text = with_interval(ratio_text(outcome.speedup))
    return warning_mark(outcome.warnings) + _to_experiment(outcome, "speed", text)


def _verdict(outcome: Outcome) -> Html:
    if outcome.speed_verdict is None:
        return DASH
    return verdict_word(
        outcome.speed_verdict, VERDICT_CLASSES[outcome.speed_verdict], outcome.failure or ""
    )


def _to_experiment(outcome: Outcome, scenario: str, text: Html) -> Html:
    """The text as a link to the experiment's page."""
    key = outcome.experiments.get(scenario)
    return (
        f'<a class="quiet" target="_self" href="./experiment?experiment={quote(key)}">{text}</a>'
        if key
        else text
    )
