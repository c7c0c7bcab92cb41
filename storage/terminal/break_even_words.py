"""Texts of break-evens and of inconclusive speeds, shared by all tables and sentences."""

from breakeven.storage.comparison.results import Result
from breakeven.storage.numbers.formats import DASH, format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.statistics.speedups import BreakEven, ratio_text, speed_doubt
from breakeven.storage.terminal.caution_words import caution_words

_steps = METRICS["break_even_steps"].format


def break_even_text(found: BreakEven | None) -> str:
    """`210 steps (180 to 260), about 84.0 s`, `never`, `inconclusive`, or a dash for None."""
    return _written(found, with_epochs=False)


def break_even_in_full(found: BreakEven | None, doubt: str = "may be chance") -> str:
    """The break-even with epochs; an inconclusive one with the reason, and the break-even if the
    saving is real. `doubt` is the doubt about the saving."""
    if found is None or found.verdict != "unsure":
        return _written(found, with_epochs=True)
    if found.steps_if_real is None:
        return f"inconclusive, a step saves nothing, which {doubt}"
    return f"inconclusive, the saving {doubt}; if it is real, {_steps(found.steps_if_real)} steps"


def break_even_reason(result: Result) -> str:
    """A remark in addition to `break_even_text`; empty if there is none."""
    found = result.break_even
    if result.speed_verdict == "same":
        return "The speed counts as the same, so compiling is never paid for."
    if found is None or found.verdict != "unsure":
        return " ".join(str(caution_words(doubt)) for doubt in result.break_even_doubts)
    reason = f"The speedup of {ratio_text(result.speedup)} {doubt_of_saving(result)}"
    if found.steps_if_real is None:
        return f"{reason}; as measured, a step saves nothing."
    return (
        f"{reason}. If it is real, compiling is paid for after {_steps(found.steps_if_real)} steps."
    )


def speed_reason(result: Result) -> str:
    """Why the speed of a run is inconclusive, and what would help; empty for other verdicts."""
    if result.speed_verdict != "unsure":
        return ""
    if result.speedup is None or result.speedup.low is None:
        return f"Fewer than {MIN_PAIRS} rounds were paired with the baseline."
    text = f"The speedup of {ratio_text(result.speedup)} {doubt_of_saving(result)}"
    if not result.more_rounds:
        return f"{text}."
    more = "one more round" if result.more_rounds == 1 else f"{result.more_rounds:,} more rounds"
    return f"{text}; about {more} would decide."


def doubt_of_saving(result: Result) -> str:
    """Why the saving of an inconclusive break-even is uncertain."""
    doubt = result.speedup and speed_doubt(result.speedup, result.p_holm)
    return "may be chance" if doubt != "margin" else "is too small to tell from noise"


def _written(found: BreakEven | None, *, with_epochs: bool) -> str:
    if found is None:
        return DASH
    if found.verdict != "reached":
        return format_verdict(found.verdict)
    spread = "" if found.low is None else f" ({_steps(found.low)} to {_steps(found.high)})"
    amounts = [METRICS["break_even_seconds"].format(found.seconds)]
    if with_epochs and found.epochs is not None:
        amounts.append(f"{METRICS['break_even_epochs'].format(found.epochs)} epochs")
    return f"{_steps(found.steps)} steps{spread}, about {' or '.join(amounts)}"
