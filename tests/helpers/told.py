"""Warnings, notes and doubts of a comparison as the terminal has them."""

from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.terminal.caution_words import caution_words, doubt_words


def warnings_of(comparison: Comparison) -> tuple[str, ...]:
    return tuple(str(caution_words(caution)) for caution in comparison.warnings)


def notes_of(comparison: Comparison) -> tuple[str, ...]:
    return tuple(str(caution_words(caution)) for caution in comparison.notes)


def doubts_of(result: Result) -> tuple[str, ...]:
    return tuple(str(doubt_words(doubt)) for doubt in result.device_doubts)
