"""Why each backend is faster or slower, on the terminal."""

from breakeven.runner.folders.states import RunState
from breakeven.runner.texts import printable
from breakeven.storage.numbers.formats import aligned_table, format_seconds
from breakeven.storage.profile.explanation import Bridge, Explanation
from breakeven.storage.terminal.finding_words import (
    bridge_words,
    finding_words,
    profile_words,
    remedy_words,
    waterfall_rows,
)

MAX_CHARACTERS = 2000
"""Of a line."""


def explain_report(found: Explanation) -> str:
    """A sentence and a table for each run that has a bridge, then what was found."""
    lines = [found.comparison.spec.name]
    if not found.is_known:
        return "\n".join([*lines, "", unprofiled_words(found)])
    for label, one in found.bridges.items():
        lines += ["", f"{label}: {bridge_words(one, found.own_speedups.get(label))}", ""]
        lines += aligned_table(_rows(one), 1)
    lines += ["", "Findings"] if found.findings else []
    for finding in found.findings:
        lines += [f"- {finding.label}: {finding_words(finding)}", f"  {remedy_words(finding)}"]
    lines += ["", *(str(profile_words(profile)) for profile in found.profiles)]
    return "\n".join(map(_plain, lines))


def unprofiled_words(found: Explanation) -> str:
    """Why no run of an experiment has a profile."""
    if withheld := [one for one in found.profiles if one.misfit is not None]:
        return "\n".join(str(profile_words(one)) for one in withheld)
    states = [RunState(one.state) for one in found.comparison.results]
    if not found.comparison.spec.profiles:
        return "No run was profiled, as asked (--profile-steps 0)."
    if failures := [failure for one in found.profiles for failure in one.failures]:
        return f"Profiling failed: {failures[0]}."
    if not all(state.is_final for state in states):
        return "No run has been profiled yet: profiles follow the timed steps."
    if all(state.ended_early for state in states):
        return "No run came as far as its profile: all of them ended early."
    return (
        "No run was profiled: the runs were too short for it, imported, or recorded by an older "
        "version."
    )


def _rows(found: Bridge) -> list[list[str]]:
    header = ["a step", "baseline", found.run.label, "difference"]
    rows = [
        [row.part, *map(format_seconds, (row.baseline, row.run)), _signed(row.difference)]
        for row in waterfall_rows(found).itertuples()
    ]
    total = [found.baseline.step_seconds, found.run.step_seconds]
    return [header, *rows, ["whole step", *map(format_seconds, total), _signed(found.difference)]]


def _signed(seconds: float) -> str:
    sign = "+" if seconds > 0 else "-" if seconds < 0 else ""
    return sign + format_seconds(abs(seconds))


def _plain(line: str) -> str:
    return printable(line, MAX_CHARACTERS)
