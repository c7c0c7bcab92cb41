"""The table at the top of a comparison: one row per run, warnings next to each number.

Plain HTML: readers can select the text and have it read aloud. Each header shows the number's
definition on hover and links to the full text. The colours follow the theme because they inherit
from it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.scenarios.base import Scenario
from breakeven.runner.specs.scenarios.by_name import SCENARIOS
from breakeven.storage.comparison.device_warnings import Disturbed
from breakeven.storage.comparison.results import SCORES, Result
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.numbers.metrics import DASH, NUMBERS
from breakeven.storage.side_by_side.sides import Differing
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.words.answer_sentence import break_even_reason, break_even_text, speed_reason
from breakeven.storage.words.parity import parity_text, parity_words
from breakeven.views.charts.palette import Look, run_looks, run_mark
from breakeven.views.comparison.headline import VERDICT_CLASSES
from breakeven.views.shared import words
from breakeven.views.shared.definition_links import anchor_html
from breakeven.views.shared.inert import Html, inert

HtmlCell = Callable[[Result], Html]


def html(
    results: Sequence[Result],
    scenario: Scenario = SCENARIOS["train"],
    only: Sequence[str] | None = None,
) -> Html:
    """The table, or `only` some of its columns, without those that have no value in any row; text
    from specifications is escaped."""
    columns = _columns(results, scenario)
    columns = {name: column for name, column in columns.items() if only is None or name in only}
    looks = run_looks(result.label for result in results)
    rows = [
        [_run(result, looks[result.label]), *(write(result) for write in columns.values())]
        for result in results
    ]
    # The column break-even stays in view while the others scroll.
    classes = {
        place: "break-even" for place, name in enumerate(columns, 1) if name == "break_even_steps"
    }
    return table("All runs", ["Run", *map(heading, columns)], rows, classes)


def table(
    title: str,
    head: Sequence[Html],
    rows: Iterable[Sequence[Html]],
    classes: Mapping[int, str] = MappingProxyType({}),
) -> Html:
    """A table that scrolls sideways if it is wider than the page, by keyboard too; `classes`: CSS
    classes of columns by their place."""
    marks = [
        f' class="{inert(classes[place])}"' if place in classes else ""
        for place in range(len(head))
    ]
    body = "".join(f"<tr>{_cells('td', row, marks)}</tr>" for row in rows)
    return (
        f'<div class="leaderboard" role="region" tabindex="0" aria-label="{inert(title)}"><table>'
        f"<thead><tr>{_cells('th', head, marks)}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(tag: Html, cells: Sequence[Html], marks: Sequence[Html]) -> Html:
    return "".join(f"<{tag}{mark}>{cell}</{tag}>" for cell, mark in zip(cells, marks, strict=True))


def heading(name: str) -> Html:
    """The title of a number, which links to its definition."""
    return anchor_html(name, NUMBERS[name].title, NUMBERS[name].definition)


def table_of_differing(
    title: str, differences: Sequence[Differing], kinds: Mapping[str, str], sides: Sequence[Html]
) -> Html:
    """A table of facts that differ between sides, kind by kind; `kinds`: titles of the kinds."""
    rows: list[list[Html]] = []
    for place, difference in enumerate(differences):
        first = place == 0 or differences[place - 1].kind != difference.kind
        kind = inert(kinds[difference.kind]) if first else ""
        rows.append([kind, inert(difference.name), *(inert(value) for value in difference.values)])
    classes = dict.fromkeys(range(1, len(sides) + 2), "words")
    return table(title, ["What", "Differs in", *sides], rows, classes)


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
    # Verdicts come first: on a narrow screen the column break-even lies over the last columns.
    names = (
        "speed_verdict",
        "speedup",
        "parity",
        "step_seconds",
        throughput,
        "compile_seconds",
        "peak_memory_bytes",
        "energy_per_step",
        score,
        "break_even_steps",
    )
    columns = {name: cell(name) for name in names}
    # While runs go on, a column waits for its first value, unless the scenario may have none.
    are_over = all(RunState(result.state).is_final for result in results)
    may_lack = {"energy_per_step", *(() if scenario.trains_fully else (score, "parity"))}
    return {
        name: write
        for name, write in columns.items()
        if not (are_over or name in may_lack) or any(write(result) != DASH for result in results)
    }


def cell(name: str) -> HtmlCell:
    """Writes the metric `name` of a run with verdict and warnings, as in all tables of pages."""
    return CELLS.get(name) or _plain(name)


def _run(result: Result, look: Look) -> Html:
    return run_mark(result.label, look) + state_mark(result)


def state_mark(result: Result) -> Html:
    """The state of a run in small letters; empty if it finished."""
    ended = "" if result.state == RunState.FINISHED else words.STATES[result.state][0]
    return f" <small>{inert(ended)}</small>" if ended else ""


def _plain(name: str) -> HtmlCell:
    return lambda result: inert(result.text(name))


def _with_warnings(cell: HtmlCell) -> HtmlCell:
    """The cell, marked if there are warnings about the device, which shows on hover."""

    def marked(result: Result) -> Html:
        text = cell(result)
        return text if text == DASH else warning_mark(result.device_warnings) + text

    return marked


def warning_mark(warnings: Sequence[Disturbed]) -> Html:
    """The mark before a number, with the warnings on hover; empty without one."""
    reasons = inert("\n".join(str(warning.sentence_without_runs()) for warning in warnings))
    return f'<abbr class="warning" title="{reasons}">\N{WARNING SIGN}</abbr> ' if warnings else ""


def _verdict(kind: str | None, text: str | None = None, reason: str = "") -> Html:
    """A word in the colour of its kind; the reason shows on hover."""
    if kind is None:
        return DASH
    return verdict_word(text or kind, VERDICT_CLASSES[kind], reason)


def verdict_word(text: str, kind: Html, reason: str = "") -> Html:
    """A word that judges, in the colour of its kind; the reason shows on hover."""
    word = with_interval(format_verdict(text))
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
    # A word more, and the table would not fit a projector.
    written = with_interval(break_even_text(result.break_even).replace("about ", "~"))
    return f'<span title="{inert(reason)}">{written}</span>' if reason else written


def with_interval(text: str) -> Html:
    """Sets the part in parentheses smaller; on a narrow screen it has a line of its own."""
    value, bracket, rest = inert(text).partition(" (")
    return f"{value} <small>({rest}</small>" if bracket else value


CELLS: dict[str, HtmlCell] = {
    "speed_verdict": lambda result: _verdict(result.speed_verdict, reason=speed_reason(result)),
    "speedup": _with_warnings(lambda result: with_interval(ratio_text(result.speedup))),
    "step_seconds": _with_warnings(_plain("step_seconds")),
    "parity": _parity,
    "break_even_steps": _break_even,
}
"""Cells that show more than a number."""
