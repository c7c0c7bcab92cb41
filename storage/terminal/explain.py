"""Why each backend is faster or slower, on the terminal."""

from runner.texts import printable
from storage.numbers.formats import DASH, aligned_table, format_seconds
from storage.profile.bridge import Bridge
from storage.profile.explanation import Explanation
from storage.terminal.finding_words import (
    bridge_words,
    finding_words,
    profile_words,
    remedy_words,
    waterfall_rows,
)

MAX_CHARACTERS = 2000
"""Of a line."""
NO_PROFILE = (
    "No run of this experiment was profiled: it was recorded by an older version, imported, or "
    "with --profile-steps 0."
)


def explain_report(found: Explanation) -> str:
    """A sentence and a table for each run that has a bridge, then what was found."""
    lines = [found.comparison.spec.name]
    if not found.is_known:
        return "\n".join([*lines, "", NO_PROFILE])
    for label, one in found.bridges.items():
        lines += ["", f"{label}: {bridge_words(one, found.own_speedups.get(label))}", ""]
        lines += aligned_table(_rows(one), 1)
    lines += ["", "Findings"] if found.findings else []
    for finding in found.findings:
        lines += [f"- {finding.label}: {finding_words(finding)}", f"  {remedy_words(finding)}"]
    lines += ["", *(str(profile_words(profile)) for profile in found.profiles)]
    return "\n".join(map(_plain, lines))


def _rows(found: Bridge) -> list[list[str]]:
    header = ["a step", "baseline", found.run.label, "difference"]
    rows = [
        [row.part, *(_time(value) for value in (row.baseline, row.run)), _signed(row.difference)]
        for row in waterfall_rows(found).itertuples()
    ]
    total = [found.baseline.step_seconds, found.run.step_seconds]
    return [header, *rows, ["whole step", *map(_time, total), _signed(found.difference)]]


def _time(seconds: float | None) -> str:
    return DASH if not seconds else format_seconds(seconds)


def _signed(seconds: float) -> str:
    sign = "+" if seconds > 0 else "-" if seconds < 0 else ""
    return sign + format_seconds(abs(seconds))


def _plain(line: str) -> str:
    return printable(line, MAX_CHARACTERS)
