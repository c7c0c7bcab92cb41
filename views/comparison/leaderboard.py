"""The table at the top of a comparison: one row per run, doubts next to each number.

Plain HTML: readers can select the text and have it read aloud. Each header shows the number's
definition on hover and links to the full text. The colours follow the theme because they inherit
from it.
"""

from collections.abc import Callable, Sequence

from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.scenarios import SCENARIOS, Scenario
from breakeven.storage.comparison.caution import Caution
from breakeven.storage.comparison.results import SCORES, Result
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.numbers.metrics import DASH, METRICS
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.terminal.break_even_words import (
    break_even_reason,
    break_even_text,
    speed_reason,
)
from breakeven.storage.terminal.caution_words import doubt_words
from breakeven.storage.terminal.parity_words import parity_text, parity_words
from breakeven.views.charts.palette import Look, run_looks, run_mark
from breakeven.views.comparison.verdicts import (
    VERDICT_CLASSES,
)
from breakeven.views.shared import words
from breakeven.views.shared.inert import Html, inert
from breakeven.views.shared.links import anchor_html

HtmlCell = Callable[[Result], Html]


def html(
    results: Sequence[Result],
    scenario: Scenario = SCENARIOS["train"],
    only: Sequence[str] | None = None,
) -> Html:
    """The whole table, or `only` some of its columns; text from specifications is escaped."""
    columns = _columns(results, scenario)
    columns = {name: one for name, one in columns.items() if only is None or name in only}
    looks = run_looks(result.label for result in results)
    head = "".join(_header(name) for name in columns)
    body = "".join(
        f"<tr><td>{_run(result, looks[result.label])}</td>"
        + "".join(f"<td{_side(name)}>{write(result)}</td>" for name, write in columns.items())
        + "</tr>"
        for result in results
    )
    return scrolled(f"<thead><tr><th>Run</th>{head}</tr></thead><tbody>{body}</tbody>", "All runs")


def scrolled(table: Html, title: str) -> Html:
    """A table that scrolls sideways if it is wider than the page, by keyboard too."""
    return (
        f'<div class="leaderboard" role="region" tabindex="0" aria-label="{inert(title)}">'
        f"<table>{table}</table></div>"
    )


def throughput_metric(results: Sequence[Result]) -> Html:
    """Tokens per second where the data are text, else samples per second."""
    has_tokens = any(result.measured.tokens_per_second is not None for result in results)
    return "tokens_per_second" if has_tokens else "samples_per_second"


def task_scores(results: Sequence[Result]) -> list[Html]:
    """Names of the scores that judge the task in addition to the loss, the most important first."""
    measured = {name for result in results for name in result.measured.metrics}
    if any(result.measured.accuracy is not None for result in results) or not measured:
        measured.add("accuracy")
    return [inert(name) for name in ("accuracy", *SCORES) if name in measured]


def _columns(results: Sequence[Result], scenario: Scenario) -> dict[str, HtmlCell]:
    throughput = throughput_metric(results)
    score = task_scores(results)[0]
    names = ("speed_verdict", "speedup", "step_seconds", throughput, "compile_seconds",
             "peak_memory_bytes", "energy_per_step", score, "parity",
             "break_even_steps")  # fmt: skip
    columns = {name: cell(name) for name in names}
    if all(result.measured.energy_per_step is None for result in results):
        del columns["energy_per_step"]
    if not scenario.trains_fully:  # may lack evaluations or parity
        for name in (score, "parity"):
            if {columns[name](result) for result in results} == {DASH}:
                del columns[name]
    return columns


def cell(name: str) -> HtmlCell:
    """Writes the metric `name` of a run with its verdict and doubts, as in every table of pages."""
    return CELLS.get(name) or _plain(name)


def _side(name: str) -> Html:
    """The class of the column break-even, which stays in view while the others scroll."""
    return ' class="namesake"' if name == "break_even_steps" else ""


def _header(name: str) -> Html:
    metric = METRICS[name]
    return f"<th{_side(name)}>{anchor_html(name, metric.title, metric.definition)}</th>"


def _run(result: Result, look: Look) -> Html:
    return run_mark(result.label, look) + state_mark(result)


def state_mark(result: Result) -> Html:
    """The state of a run in small letters; empty if it finished."""
    ended = "" if result.state == RunState.FINISHED else words.STATES[result.state][0]
    return f" <small>{inert(ended)}</small>" if ended else ""


def _plain(name: str) -> HtmlCell:
    return lambda result: inert(result.text(name))


def _doubted(cell: HtmlCell) -> HtmlCell:
    """The cell, marked if the device gave reason for doubt; the reason shows on hover."""

    def marked(result: Result) -> Html:
        text = cell(result)
        return text if text == DASH else doubt_mark(result.device_doubts) + text

    return marked


def doubt_mark(doubts: Sequence[Caution]) -> Html:
    """The mark before a doubtful number, with the reasons on hover; empty without doubts."""
    reasons = inert("\n".join(str(doubt_words(doubt)) for doubt in doubts))
    return f'<abbr class="doubt" title="{reasons}">\N{WARNING SIGN}</abbr> ' if doubts else ""


def _verdict(kind: str | None, text: str | None = None, reason: str = "") -> Html:
    """A word in the colour of its kind; the reason shows on hover."""
    if kind is None:
        return DASH
    return verdict_word(text or kind, VERDICT_CLASSES[kind], reason)


def verdict_word(text: str, kind: Html, reason: str = "") -> Html:
    """A word that judges, in the colour of its kind; the reason shows on hover."""
    word = inert(format_verdict(text))
    return f'<span class="verdict {kind}" title="{inert(reason)}">{word}</span>'


def _parity(result: Result) -> Html:
    if result.parity is None:
        return DASH
    why = str(parity_words(result.parity))
    return _verdict(result.parity.verdict, parity_text(result.parity), why)


def _break_even(result: Result) -> Html:
    reason = break_even_reason(result)
    if result.break_even_verdict == "unsure":
        return _verdict("unsure", reason=reason)
    written = with_interval(break_even_text(result.break_even))
    return f'<span title="{inert(reason)}">{written}</span>' if reason else written


def with_interval(text: str) -> Html:
    """Sets the part in parentheses smaller."""
    value, bracket, rest = inert(text).partition(" (")
    return f"{value} <small>({rest}</small>" if bracket else value


CELLS: dict[str, HtmlCell] = {
    "speed_verdict": lambda result: _verdict(result.speed_verdict, reason=speed_reason(result)),
    "speedup": _doubted(lambda result: with_interval(ratio_text(result.speedup))),
    "step_seconds": _doubted(_plain("step_seconds")),
    "parity": _parity,
    "break_even_steps": _break_even,
}
"""Cells that show more than a number."""
