"""The summary of a comparison for a pull request, in GitHub's Markdown: the answer, a table, folded
warnings and the command. Foreign texts are shown literally and mention nobody."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from breakeven.runner.arguments.options import command_line
from breakeven.runner.protocol.states import RunState, state_words
from breakeven.storage.comparison.measuring_warnings import OfFamily
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.comparison.warnings import ComparisonWarning
from breakeven.storage.numbers.formats import count_of
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.words.answer_sentence import break_even_text, times_to_loss
from breakeven.storage.words.compiler_advice import warning_words
from breakeven.storage.words.environments import environment_sentences
from breakeven.storage.words.inert import JOINER, inert
from breakeven.storage.words.parity import parity_text

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""Names the file whose Markdown GitHub shows with a job."""
MENTION = re.compile(r"[@#](?=\w)")
"""Starts of the names of accounts and the numbers of issues, which GitHub links and notifies."""


def write_summary(file: Path, summary: str) -> None:
    """Writes a summary into a file, and adds it to that of a job on GitHub. Raises `OSError`."""
    content = summary.encode(errors="backslashreplace")
    file.write_bytes(content)
    if of_job := os.environ.get(SUMMARY_VARIABLE):
        with open(of_job, "ab") as job:
            job.write(content)


def fenced(text: str, language: str = "") -> str:
    """The text as a block of code, which ends nowhere within the text."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}\n"


def _shown(text: object) -> str:
    return inert(MENTION.sub(lambda start: start[0] + JOINER, str(text)))


def summary(comparison: Comparison, answer: str) -> str:
    """The summary of a comparison with this answer."""
    experiment = f"{comparison.spec.name}, {comparison.spec.subject} on {comparison.spec.place}"
    parts = [
        f"**{_shown(answer)}**" if answer else "",
        "\n".join(_table(comparison)),
        " ".join(map(_shown, _remarks(comparison))),
        "\n".join(_folded(comparison)),
        f"Experiment {comparison.experiment_id}: {_shown(experiment)}",
        fenced(command_line(comparison.spec, " "), "sh"),
    ]
    return "\n\n".join(part for part in parts if part)


def _verdict(result: Result) -> str:
    """The verdict on a speed; the state of a run that did not finish."""
    if result.state != RunState.FINISHED:
        return state_words(RunState(result.state))
    return result.role if result.role != "backend" else result.text("speed_verdict")


COLUMNS: dict[str, Callable[[Result], str]] = {
    "name": lambda result: result.label,
    "verdict": _verdict,
    "speedup (95 %)": lambda result: ratio_text(result.speedup),
    "break-even": lambda result: break_even_text(result.break_even),
    "parity": lambda result: parity_text(result.parity),
    "memory": lambda result: result.text("peak_memory_bytes"),
}


def _table(comparison: Comparison) -> Iterator[str]:
    yield _row(COLUMNS)
    yield _row(["---"] * len(COLUMNS))
    for result in comparison.results:
        if result.role != "control":
            yield _row(_shown(cell(result)) for cell in COLUMNS.values())


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _remarks(comparison: Comparison) -> Iterator[str]:
    yield from (str(warning.words()) for warning in comparison.warnings if _is_place(warning))
    yield from environment_sentences(comparison)
    yield from (f"{label} {words}." for label, words in times_to_loss(comparison))
    if comparison.noise_floor is not None:
        floor = METRICS["noise_floor"].format(comparison.noise_floor)
        yield f"Two equal runs differ by up to {floor} (noise floor)."


def _is_place(warning: ComparisonWarning) -> bool:
    return isinstance(warning, OfFamily)


def _folded(comparison: Comparison) -> Iterator[str]:
    serious = comparison.serious_warnings
    minor = [warning for warning in comparison.minor_warnings if not _is_place(warning)]
    if not serious and not minor:
        return
    count = count_of(len(serious) + len(minor), "warning")
    yield f"<details><summary>{count}, {len(serious)} of them serious</summary>"
    yield ""
    yield from (f"- **serious**: {_shown(warning_words(warning))}" for warning in serious)
    yield from (f"- {_shown(warning_words(warning))}" for warning in minor)
    yield ""
    yield "</details>"
