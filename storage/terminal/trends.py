"""Texts of trends for the terminal: series with steps, and reasons to fail a nightly job."""

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Any

from breakeven.runner.arguments.conditions import Condition, Limit, add_fail_if
from breakeven.runner.texts import printable
from breakeven.storage.library.trends import QUANTITIES, Failure, Point, Series
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.lasting_changes import FEWEST
from breakeven.storage.statistics.parity import WRONG
from breakeven.storage.terminal.as_json import plain
from breakeven.storage.words.trends import change_text, failure_text, out_of_line_text, when_text

WITHIN = 10
WORSE = "worse"
USUAL_LEAST = 0.02
"""Default share by which a level must be worse to be reported."""
CONDITIONS = {
    WORSE: Limit("2%", is_needed=False, below=100),
    "out-of-line": None,
    "failed": None,
    "parity": None,
}
"""Conditions; all except the first concern a series' newest experiment."""
METAVAR = "worse|'worse>PERCENT'|out-of-line|failed|parity"
HELP = (
    "exit with status 5 and print the reason if a series is at a worse level (by more than "
    "PERCENT; in quotes, because the shell interprets >), or if its newest experiment is out of "
    "line with the level before, failed, or breaks parity. Join conditions by commas. Status 1: "
    "there is nothing to judge yet"
)


def add_trend_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command: the number, and the conditions for a failing job."""
    parser.add_argument(
        "--of",
        choices=QUANTITIES,
        default="speedup",
        help="the number of the trend (default: speedup)",
    )
    add_fail_if(parser, CONDITIONS, METAVAR, HELP)
    parser.add_argument(
        "--within",
        type=_count,
        default=WITHIN,
        metavar="COUNT",
        help=f"a step fails only among this many newest experiments (default: {WITHIN}); earlier "
        "steps were reported before",
    )


def report(all_series: Sequence[Series]) -> str:
    """All series with their levels and steps."""
    if not all_series:
        return "no experiment that is over has such a number"
    return "\n".join(line for series in all_series for line in _lines(series))


def as_json(all_series: Sequence[Series]) -> str:
    """A list of series, each with its points, levels and steps."""
    return json.dumps(plain([_series_document(series) for series in all_series]), indent=1)


def reasons(
    all_series: Sequence[Series],
    conditions: Sequence[Condition],
    within: int,
    failures: Iterable[tuple[str, Failure]] = (),
) -> list[str]:
    """Reasons for a job to fail: a line for each condition that a series meets, or a backend that
    never gave a number (`failures_without_series`)."""
    return [
        f"{_title(series)}: {sentence}"
        for series in all_series
        for condition in conditions
        if (sentence := _met(series, condition, within)) is not None
    ] + [
        f"{printable(title)}: {sentence}"
        for title, failure in failures
        for condition in conditions
        if (sentence := _met_by_newest(failure, condition)) is not None
    ]


def unjudged(all_series: Sequence[Series], conditions: Sequence[Condition]) -> str | None:
    """Why no condition could be judged; None if one could. Misspelt filters and missing experiments
    must not count as success."""
    least = FEWEST if all(condition.name == WORSE for condition in conditions) else 1
    newest: dict[tuple[str, str, Any], Series] = {}
    for series in all_series:  # A device with a new name ends the series of its host's former name.
        key = (series.workload, series.backend, series.points[-1].versions["host"])
        newest[key] = max(
            newest.get(key, series), series, key=lambda series: series.points[-1].experiment_id
        )
    longest = max((len(series.points) for series in newest.values()), default=0)
    if not conditions or longest >= least:
        return None
    return (
        f"there is nothing to judge: of the experiments that were chosen, the longest series has "
        f"{longest}, and it takes {least}"
    )


def _met(series: Series, condition: Condition, within: int) -> str | None:
    """The problem of a series, if it meets the condition."""
    if condition.name == WORSE:
        step = series.regression((condition.limit or 0.0) / 100, within)
        return None if step is None else change_text(series, step)
    if condition.name == "out-of-line" and series.is_out_of_line:
        return f"{out_of_line_text(series)} ({series.points[-1].experiment_id})"
    return _met_by_newest(series.failure or series.points[-1], condition)


def _met_by_newest(newest: Point | Failure, condition: Condition) -> str | None:
    if condition.name == "failed" and isinstance(newest, Failure) and newest.parity not in WRONG:
        return failure_text(newest)
    if condition.name == "parity" and newest.parity in WRONG:
        does = "breaks parity" if newest.parity == "broken" else "learns worse"
        return f"its newest experiment ({newest.experiment_id}) {does}"
    return None


def _lines(series: Series) -> list[str]:
    write = METRICS[series.quantity].format
    first, last = when_text(series.points[0]), when_text(series.points[-1])
    count = len(series.points)
    span = f"{count} experiments, {first} to {last}" if count > 1 else f"1 experiment, {first}"
    lines = [f"{_title(series)}: {write(series.levels[-1].value)} now; {span}"]
    lines += [f"  {change_text(series, step)}" for step in series.steps]
    lines += [f"  {failure_text(series.failure)}"] if series.failure else []
    return lines + ([f"  {out_of_line_text(series)}"] if series.is_out_of_line else [])


def _title(series: Series) -> str:
    title = METRICS[series.quantity].title.lower()
    return printable(f"{title} of {series.backend}: {series.title}, {series.device}")


def _series_document(series: Series) -> dict[str, Any]:
    return {
        **{
            name: getattr(series, name)
            for name in ("quantity", "workload", "title", "device", "backend")
        },
        "points": series.points,
        "levels": [
            {"first": level.first, "last": level.last, "value": level.value}
            for level in series.levels
        ],
        "steps": [
            {
                "index": step.index,
                "ratio": step.ratio,
                "interval": step.ratio_interval,
                "p_value": step.p_value,
                "changed": series.changed(step),
            }
            for step in series.steps
        ],
        "worse": _worse(series),
        "is_out_of_line": series.is_out_of_line,
        "failure": series.failure,
    }


def _worse(series: Series) -> dict[str, str | None] | None:
    """The step to a level that is worse than the best one of the last experiments by more than
    `USUAL_LEAST`, and the experiment that first showed the step."""
    step = series.regression(USUAL_LEAST, WITHIN)
    if step is None:
        return None
    sentence = f"{_title(series)}: {change_text(series, step)}"
    return {
        "experiment_id": series.points[step.index].experiment_id,
        "shown_by": series.first_experiment_with_regression(USUAL_LEAST, WITHIN),
        "sentence": sentence,
    }


def _count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of experiments")
    return count
