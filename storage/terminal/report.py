"""What commands print about an experiment."""

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence

from breakeven.runner.protocol.states import RunState, state_words
from breakeven.runner.specs.arms import words_of_arm
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.texts import duration, listed, printable
from breakeven.storage.comparison.results import AT_ONCE, Comparison, Result
from breakeven.storage.comparison.run_warnings import EndedEarly
from breakeven.storage.comparison.warnings import Recorded
from breakeven.storage.index.store import Store
from breakeven.storage.investigation import COMPILER_CAUSES, Investigation
from breakeven.storage.numbers.formats import DASH, format_share
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.profile.explanation import Explanation
from breakeven.storage.queries.time_use import shown_parts
from breakeven.storage.statistics.speedups import Ratio, ratio_text
from breakeven.storage.terminal.layout import aligned_table
from breakeven.storage.words.answer_sentence import (
    break_even_in_full,
    doubt_of_saving,
    speed_reason,
    times_to_loss,
)
from breakeven.storage.words.compiler_advice import warning_words
from breakeven.storage.words.environments import environment_lines, environment_sentences
from breakeven.storage.words.findings import finding_words, remedy_words
from breakeven.storage.words.investigation import (
    TRIAL_HEADER,
    facts,
    headline,
    remedies,
    trial_cells,
)
from breakeven.storage.words.issues import has_issue
from breakeven.storage.words.known_causes import KnownCause, remedy_text
from breakeven.storage.words.parity import parity_text, parity_words
from breakeven.storage.words.profile import (
    bridge_rows,
    bridge_words,
    unprofiled_words,
    words_of_profiles,
)

Cell = Callable[[Result], str]


def short_report(comparison: Comparison, answer: str = "") -> str:
    """Answer, title, the table of verdicts, why parity does not hold, times to the same loss, and
    the begin of warnings."""
    lines = [*_head(comparison, answer), *verdict_table(comparison), ""]
    lines += [*_environments(comparison), *_open_parities(comparison, answer)]
    lines += [
        f"{label} {words}" for label, words in times_to_loss(comparison) if words not in answer
    ]
    return "\n".join([*lines, *(f"warning: {text}" for text in _short_warnings(comparison))])


def _short_warnings(comparison: Comparison) -> Iterator[str]:
    """The begin of each warning; all of why the baseline ended early, with the runs that ended
    likewise."""
    warnings = comparison.serious_warnings
    ends = [warning for warning in warnings if isinstance(warning, EndedEarly)]
    first = next((end for end in ends if end.role == "baseline" and end.reason), None)
    likewise = [end for end in ends if first and end is not first and end.reason == first.reason]
    for warning in warnings:
        text = str(warning_words(warning))
        if warning is first:
            yield f"{text} (likewise {listed([end.run for end in likewise])})" if likewise else text
        elif warning not in likewise:
            yield textwrap.shorten(
                SENTENCE_END.split(text, 1)[0], LONGEST_WARNING, placeholder=" …"
            )


def _open_parities(comparison: Comparison, answer: str) -> Iterator[str]:
    """For each verdict that is no match the first run with its reason, unless the answer has it."""
    labels: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for result in comparison.results:
        if result.parity is not None and not result.parity.is_good:
            verdict = parity_text(result.parity)
            labels.setdefault(verdict, []).append(result.label)
            reasons.setdefault(verdict, str(parity_words(result.parity)))
    for verdict, (first, *others) in labels.items():
        likewise = f" (likewise {listed(others)})" if others else ""
        if others or reasons[verdict] not in answer:
            yield f"parity of {first}: {verdict}; {reasons[verdict]}{likewise}"


SENTENCE_END = re.compile(r"\.(?=\s|$)")
LONGEST_WARNING = 120
"""Characters of a warning in the short result."""


def _head(comparison: Comparison, answer: str) -> list[str]:
    """The answer, and what was compared."""
    spec = comparison.spec
    optimizer = f"optimizer {spec.training.optimizer}" if spec.suite_run and spec.trains else None
    work = spec.kind.work_words(spec)
    about = ", ".join(filter(None, [spec.subject, spec.precision, spec.place, optimizer, work]))
    title = f"{spec.name}: {about}"
    return [*([answer, ""] if answer else []), printable(title, len(title)), ""]


def _environments(comparison: Comparison) -> list[str]:
    """What an environment gains or loses; nothing if there is only one."""
    if not comparison.across:
        return []
    headline = " ".join(environment_sentences(comparison))
    return [headline, *environment_lines(comparison.across), ""]


def report(comparison: Comparison, answer: str = "") -> str:
    """Answer, title, table, reasons for break-even and parity, warnings and notes."""
    spec = comparison.spec
    lines = [*_head(comparison, answer), *_table(comparison), "", *_arm_lines(spec)]
    lines += _environments(comparison)
    if comparison.noise_floor is not None:
        lines.append(
            f"noise floor: two equal runs differ by up to {format_share(comparison.noise_floor)}"
        )
    lines += [
        f"speed of {result.label}: {reason}"
        for result in comparison.results
        if (reason := speed_reason(result))
    ]
    lines += [
        f"break-even of {result.label}: "
        f"{break_even_in_full(result.break_even, doubt_of_saving(result))}"
        for result in comparison.results
        if result.break_even is not None
    ]
    lines += [
        f"parity of {result.label}: {parity_text(result.parity)}"
        + ("" if (why := str(parity_words(result.parity))) in answer else f"; {why}")
        for result in comparison.results
        if result.parity is not None
    ]
    times = times_to_loss(comparison, also_like_the_baseline=True)
    lines += [f"{label} {words}" for label, words in times]
    lines += [f"warning: {warning_words(warning)}" for warning in comparison.serious_warnings]
    lines += [
        # What a run recorded of itself, such as what was found in a script, is no warning.
        f"{'note' if isinstance(warning, Recorded) else 'minor warning'}: {warning_words(warning)}"
        for warning in comparison.minor_warnings
    ]
    return "\n".join(lines)


def _arm_lines(spec: ExperimentSpec) -> Iterator[str]:
    """What baseline and arms change in the command."""
    for arm in (*spec.arms, *spec.candidates):
        changes = words_of_arm(spec, arm)
        if changes and arm.role != "control":
            yield f"{arm.label}: {printable(changes, len(changes))}"


def causes_report(causes: Sequence[KnownCause]) -> str:
    """The known cause of each failure, and the commands that try its remedies."""
    lines = []
    for cause in causes:
        lines.append(f"cause of {cause.label}: {cause.words}")
        for remedy in cause.remedies:
            command = cause.command(remedy)
            lines.append(f"  to try {remedy_text(remedy)}: {printable(command, len(command))}")
    return "\n".join(lines)


def spent_words(seconds: Mapping[str, float]) -> str:
    """`time: 2 min 5 s (compiling 1 min 20 s, training steps 25 s, loading 20 s)`; empty if no run
    started. `seconds`: the result of `queries.time_use.elapsed`."""
    parts = ", ".join(f"{name} {duration(took)}" for name, took in shown_parts(seconds))
    return f"time: {duration(sum(seconds.values()))} ({parts})" if parts else ""


def _metric(name: str) -> Cell:
    return lambda result: METRICS[name].format(result.value(name))


COLUMNS: dict[str, Cell] = {
    "run": lambda result: result.label,
    "state": lambda result: state_words(result.state),
    "step": _metric("step_seconds"),
    "samples/s": _metric("samples_per_second"),
    "speedup (95 %)": lambda result: _speedup(result.speedup),
    "verdict": _metric("speed_verdict"),
    "compile": _metric("compile_seconds"),
    "break-even": lambda result: _steps(result),
    "memory": _metric("peak_memory_bytes"),
    "energy/step": _metric("energy_per_step"),
    "final loss": _metric("final_loss"),
    "accuracy": _metric("accuracy"),
    "parity": lambda result: parity_text(result.parity),
}
NUM_TEXT_COLUMNS = 2
"""Number of first columns with words, aligned to the left; the others are aligned to the right."""
OFTEN_EMPTY = ("energy/step",)
"""Columns that are hidden if no run has a number."""
OF_TRAINING = ("speedup (95 %)", "verdict", "break-even", "final loss", "accuracy", "parity")
"""Columns that are hidden in other scenarios if they are empty."""


VERDICT_COLUMNS: dict[str, Cell] = {
    "run": COLUMNS["run"],
    "verdict": lambda result: (
        COLUMNS["verdict"](result)
        if result.state == RunState.FINISHED
        else state_words(result.state)
    ),
    **{title: COLUMNS[title] for title in ("speedup (95 %)", "break-even", "parity")},
}
"""The columns that answer: they fit a terminal of 80 columns."""


def verdict_table(comparison: Comparison) -> list[str]:
    """A row per run: what is said of its speed, when it pays off, and whether it learns the
    same."""
    rows = _rows(comparison, VERDICT_COLUMNS, kept=("run", "verdict"))
    return aligned_table(rows, NUM_TEXT_COLUMNS, narrows=True)


def _table(comparison: Comparison) -> list[str]:
    return aligned_table(_rows(comparison, COLUMNS), NUM_TEXT_COLUMNS)


def _rows(
    comparison: Comparison, shown: Mapping[str, Cell], kept: Sequence[str] = ()
) -> list[list[str]]:
    """The titles, and a row of each run; without columns that say nothing, unless they are kept."""
    results = comparison.results
    columns = {title: [cell(result) for result in results] for title, cell in shown.items()}
    optional = OFTEN_EMPTY if comparison.spec.kind.trains_fully else (*OFTEN_EMPTY, *OF_TRAINING)
    columns = {
        title: cells
        for title, cells in columns.items()
        if title in kept or title not in optional or set(cells) != {DASH}
    }
    return [list(columns), *(list(row) for row in zip(*columns.values(), strict=True))]


def _speedup(speedup: Ratio | None) -> str:
    has_none = speedup is not None and speedup.low is None
    return ratio_text(speedup) + (" (no interval)" if has_none else "")


def _steps(result: Result) -> str:
    written = result.text("break_even_steps")
    is_number = result.break_even_verdict in ("reached", "until") and written != AT_ONCE
    return f"{written} steps" if is_number else written


MAX_CHARACTERS = 2000
"""Largest length of a line."""


def explain_report(explanation: Explanation) -> str:
    """A sentence and a table for each run with a bridge, then the findings."""
    lines = [printable(explanation.comparison.spec.name)]
    if not explanation.is_known:
        lines += ["", *unprofiled_words(explanation).splitlines()]
    for label, bridge in explanation.bridges.items():
        lines += ["", f"{label}: {bridge_words(bridge, explanation.own_speedups.get(label))}", ""]
        lines += aligned_table(bridge_rows(bridge), 1)
    lines += ["", "Findings"] if explanation.findings else []
    for finding in explanation.findings:
        lines += [f"- {finding.label}: {finding_words(finding)}", f"  {remedy_words(finding)}"]
    if explanation.is_known:
        lines += ["", *map(str, words_of_profiles(explanation.profiles))]
    return "\n".join(printable(line, MAX_CHARACTERS) for line in lines)


def investigation_report(store: Store, investigation: Investigation) -> str:
    """Everything for the terminal but program and issue."""
    spec, cause = investigation.record.spec, remedies(store, investigation)
    lines = [f"{printable(spec.name)}:", "", headline(investigation), *facts(investigation)]
    if investigation.trials:
        table = [list(TRIAL_HEADER), *map(trial_cells, investigation.trials)]
        lines += ["", *aligned_table(table, len(TRIAL_HEADER) - 1)]
    if cause.remedies:
        lines.append("")
    for remedy in cause.remedies:
        command = cause.command(remedy)
        lines.append(f"to try {remedy_text(remedy)}: {printable(command, len(command))}")
    if investigation.finding.cause in COMPILER_CAUSES:
        lines += ["", has_issue(investigation.record.experiment_id, store.data_dir)]
    return "\n".join(lines)
