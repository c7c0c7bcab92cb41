"""What the commands print about compiling: two runs, the ladder of stages, and caches."""

from collections.abc import Sequence

from breakeven.runner.texts import printable
from breakeven.storage.comparison.cold_and_warm import ColdWarm, why_no_latency
from breakeven.storage.comparison.results import Result
from breakeven.storage.compiling.ladder import Ladder
from breakeven.storage.compiling.two_runs import CompiledRun, compile_difference, phases
from breakeven.storage.numbers.formats import format_seconds
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.terminal.layout import aligned_table
from breakeven.storage.words.answer_sentence import break_even_in_full
from breakeven.storage.words.cold_and_warm import starts_words
from breakeven.storage.words.compiling import findings, ladder_rows, same_text

LONGEST = 100


def caches_report(
    pairs: Sequence[ColdWarm], silent: Sequence[Result], num_steps: int | None
) -> str:
    """A line per backend, its time for a planned length, and sentences on processes without a
    compile latency."""
    seconds, share = METRICS["compile_seconds"].format, METRICS["compile_time_saved"].format
    lines = [
        f"filled caches, {pair.backend}: {seconds(pair.warm_median)} instead of "
        f"{seconds(pair.cold_median)}, {share(pair.time_saved)} of the compile time saved; "
        f"repeats: {len(pair.cold_seconds)}; "
        f"break-even cold: {break_even_in_full(pair.cold_break_even)}; "
        f"warm: {break_even_in_full(pair.warm_break_even)}"
        for pair in pairs
    ]
    planned = [f"plan for {num_steps:,} steps: {pair}" for pair in starts_words(pairs, num_steps)]
    return "\n".join([*lines, *planned, *why_no_latency(silent)])


def compile_report(first: CompiledRun, other: CompiledRun, code: Sequence[str] = ()) -> str:
    """The two runs, their differences, and the time of each phase of compiling. `code`: names of
    stored graphs and code that differ."""
    lines = [f"A  {printable(first.title)}", f"B  {printable(other.title)}", ""]
    differences = compile_difference(first, other)
    if same := same_text(differences):
        lines += [same, ""]
    if differences:
        rows = [
            [row.kind, *(printable(text, LONGEST) for text in (row.name, *row.values))]
            for row in differences
        ]
        lines += aligned_table([["what", "where", "A", "B"], *rows], 4)
    lines += [f"recorded file that differs: {printable(name)}" for name in code]
    times = [
        [row.phase, format_seconds(row.run), format_seconds(row.other)]
        for row in phases(first, other).itertuples()
    ]
    return "\n".join([*lines, "", *aligned_table([["phase of compiling", "A", "B"], *times], 1)])


def ladder_report(ladder: Ladder) -> str:
    """Sentences about faults, then a table with a row for each stage."""
    words = [printable(str(sentence)) for sentence in findings(ladder)]
    return "\n".join([*words, "", *aligned_table(ladder_rows(ladder), 3)])
