"""Texts of a suite run for the terminal: the summary, all cells, and changes."""

from collections.abc import Callable, Sequence

import pandas as pd

from breakeven.storage.comparison.correctness import PASS
from breakeven.storage.numbers.formats import DASH, count_of, format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.sentences import Sentence, Words, fill, joined
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.suite.groups import (
    HIDDEN_SLOWDOWN,
    MIN_MODELS,
    Against,
    Group,
    MeanSpeedup,
    Outcome,
    groups,
)
from breakeven.storage.terminal.layout import aligned_table

ALL_PASS, UNFINISHED, FAILED, WORSE = 0, 1, 3, 5
DOUBTFUL = " (doubtful: the device was disturbed in one of the runs)"
UNCLEAR = f"its speeds are too imprecise to rule out {HIDDEN_SLOWDOWN * 100:.0f} % more time"
MAX_NAMED = 3
NUM_TEXT_COLUMNS = 4
"""Number of first columns with words, aligned to the left; the others are aligned to the right."""


def suite_report(suite_run: str, outcomes: Sequence[Outcome]) -> str:
    """Title, a row for each backend, precision and part, a row for each cell, and failures."""
    rows = groups(outcomes)
    summary = [list(SUMMARY), *([cell(group) for cell in SUMMARY.values()] for group in rows)]
    cells = [list(CELLS), *([cell(outcome) for cell in CELLS.values()] for outcome in outcomes)]
    reasons = [
        f"{', '.join(outcome.cell)}: {reason}"
        for outcome in outcomes
        if (
            reason := outcome.failure
            or (outcome.explanation and f"{outcome.status}; {outcome.explanation}")
        )
    ]
    lines = [f"suite run {suite_run}", "", *aligned_table(summary, NUM_TEXT_COLUMNS - 1), ""]
    lines += [
        f"{', '.join(group.row)}: {rest}" for group in rows if (rest := rests_on(group.mean)).parts
    ]
    return "\n".join([*lines, "", *aligned_table(cells, NUM_TEXT_COLUMNS), "", *reasons]).rstrip()


def against_report(earlier: str, compared: Against, conditions: str = "") -> str:
    """Numbers that became worse or better, and cells of only one of the suite runs; `conditions`
    are differences in conditions."""
    lines = [f"against {earlier}:"]
    if conditions:
        lines.append(f"warning: made under other conditions: {conditions}")
    for row, mean in compared.means.items():
        lines.append(f"{', '.join(row)}: {change_text(mean)}")
    lines += [
        f"{'WORSE' if change.is_worse else 'better'}  {', '.join(change.cell)}: {change.kind}: "
        f"{change.before} before, {change.now} now{DOUBTFUL if change.doubts else ''}"
        for change in compared.changes
    ]
    if not compared.changes:
        lines.append("no cell is clearly better or worse")
    lines += [f"cannot tell  {', '.join(cell)}: {UNCLEAR}" for cell in compared.unclear]
    for title, cells in (("earlier", compared.only_before), ("later", compared.only_now)):
        lines += [f"only in the {title} run: {', '.join(cell)}" for cell in cells]
    return "\n".join(lines)


def other_conditions(runs: pd.DataFrame, suite_run: str, earlier: str) -> str:
    """Differences in device and torch between two suite runs, which may cause every change; empty
    if there are none. `runs`: the result of `storage.queries.list_suite_runs`."""
    known = runs.set_index("suite_run")[["device_name", "torch_version"]].astype(object)
    now, then = known.loc[suite_run], known.loc[earlier]
    parts = [
        f"{name} {then[column]} before, {now[column]} now"
        for column, name in (("device_name", "device"), ("torch_version", "torch"))
        if pd.notna(then[column]) and pd.notna(now[column]) and then[column] != now[column]
    ]
    return "; ".join(parts)


def exit_status(outcomes: Sequence[Outcome], compared: Against | None) -> int:
    """5 if a cell became worse, 3 if one failed, 1 if one is unknown or too imprecise to compare,
    else 0."""
    if compared is not None and compared.regressions:
        return WORSE
    if any(outcome.failure or outcome.status not in (None, PASS) for outcome in outcomes):
        return FAILED
    unclear = compared is not None and compared.unclear
    return ALL_PASS if all(outcome.is_known for outcome in outcomes) and not unclear else UNFINISHED


def rests_on(mean: MeanSpeedup | None) -> Sentence:
    """Part of a sentence on the models that decide a mean's verdict or affect it most; empty with
    fewer than two models. `faster, but inconclusive without T5Small (1.04x)`."""
    if mean is None or not mean.left_out:
        return Sentence()
    most, verdict = mean.left_out[0], format_verdict(mean.verdict)
    if mean.deciding and mean.ratio.low is not None and most.verdict is not None:
        return fill("{verdict}, but {others}", verdict=verdict, others=_deciding(mean))
    begin = "{verdict}, whichever model is left out"
    if mean.ratio.low is None:
        begin = f"no interval, which takes {MIN_MODELS} models"
    elif most.verdict is None:
        begin = "{verdict}; {count:d} models are too few to leave one out"
    return fill(
        f"{begin}; {{model}} moves the mean most, which is {{mean:geomean_speedup}} without it",
        verdict=verdict,
        count=mean.ratio.n,
        model=most.model,
        mean=most.mean,
    )


def _deciding(mean: MeanSpeedup) -> Sentence:
    """The verdicts without single models: `inconclusive without T5Small (1.04x)`."""
    without: dict[str, list[Sentence]] = {}
    for decision in mean.deciding:
        named = fill("{model} ({mean:geomean_speedup})", model=decision.model, mean=decision.mean)
        without.setdefault(format_verdict(decision.verdict), []).append(named)
    return joined(
        (
            fill("{verdict} without {models}", verdict=verdict, models=either(models))
            for verdict, models in without.items()
        ),
        " and ",
    )


def either(names: Sequence[Words]) -> Sentence:
    """`A`, `A or B`, `A, B, C or any of 4 more`."""
    if len(names) > MAX_NAMED:
        more = f"any of {len(names) - MAX_NAMED} more"
        return joined([joined(names[:MAX_NAMED], ", "), more], " or ")
    first = [joined(names[:-1], ", ")] if len(names) > 1 else []
    return joined([*first, names[-1]], " or ")


def change_text(mean: MeanSpeedup) -> Sentence:
    """`speedups are 0.93x (0.90 to 0.96) the earlier ones over 12 models: slower`, and the deciding
    models."""
    rest = rests_on(mean)
    return fill(
        "speedups are [{ratio}](suite_change) the earlier ones over {models}: {rest}",
        ratio=ratio_text(mean.ratio),
        models=count_of(mean.ratio.n, "model"),
        rest=rest if rest.parts else format_verdict(mean.verdict),
    )


def compile_text(group: Group) -> str:
    """Mean and longest compile latency, `12 s (longest 41 s)`, as measured, without interval."""
    text = METRICS["mean_compile_seconds"].format
    if len(group.compile_seconds) < 2:
        return text(group.mean_compile_seconds)
    return f"{text(group.mean_compile_seconds)} (longest {text(max(group.compile_seconds))})"


def share_text(group: Group) -> str:
    """`95 % (19 of 20)`; a dash without a check."""
    rate = METRICS["pass_rate"].format(group.pass_rate)
    return f"{rate} ({group.num_passed} of {group.num_checked})" if group.num_checked else DASH


SUMMARY: dict[str, Callable[[Group], str]] = {
    "backend": lambda group: group.row.backend,
    "precision": lambda group: group.row.precision,
    "part": lambda group: group.row.part,
    "models": lambda group: str(len(group.outcomes)),
    "pass rate": share_text,
    "geomean speedup (95 %)": lambda group: ratio_text(group.speedup),
    "verdict": lambda group: format_verdict(group.mean and group.mean.verdict),
    "over": lambda group: str(group.num_counted),
    "failed": lambda group: str(len(group.failures)),
    "mean compile": compile_text,
    "memory ratio (95 %)": lambda group: ratio_text(group.memory),
    "caches save": lambda group: METRICS["compile_time_saved"].format(group.compile_time_saved),
    "not over": lambda group: str(group.num_open),
}
CELLS: dict[str, Callable[[Outcome], str]] = {
    "model": lambda outcome: outcome.cell.model,
    "precision": lambda outcome: outcome.cell.precision,
    "part": lambda outcome: outcome.cell.part,
    "backend": lambda outcome: outcome.cell.backend,
    "accuracy": lambda outcome: outcome.status or DASH,
    "speedup (95 %)": lambda outcome: ratio_text(outcome.speedup),
    "verdict": lambda outcome: format_verdict(outcome.speed_verdict),
    "compile": lambda outcome: METRICS["compile_seconds"].format(outcome.compile_seconds),
    "memory ratio": lambda outcome: METRICS["memory_ratio"].format(outcome.memory_ratio),
    "cold": lambda outcome: METRICS["cold_compile_seconds"].format(outcome.cold_seconds),
    "warm": lambda outcome: METRICS["warm_compile_seconds"].format(outcome.warm_seconds),
}
