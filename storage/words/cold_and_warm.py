"""The gain from filled compile caches, as tables and sentences."""

from collections.abc import Iterator, Sequence

import pandas as pd

from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.texts import duration
from breakeven.storage.comparison.cold_and_warm import ColdWarm
from breakeven.storage.numbers.formats import count_of
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.sentences import Figure, Sentence, say
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.words.answer_sentence import break_even_in_full


def caches_table(pairs: Sequence[ColdWarm]) -> pd.DataFrame:
    """One row per backend as text, including regional and dynamic arms."""
    return pd.DataFrame([_caches_row(pair) for pair in pairs])


def _caches_row(pair: ColdWarm) -> dict[str, str]:
    arm, seconds = parse_backend(pair.backend), METRICS["compile_seconds"].format
    return {
        "backend": pair.backend,
        "compiled": arm.scope.replace("_", " and "),
        "shapes": {None: "automatic", True: "dynamic", False: "static"}[arm.dynamic],
        "repeats": count_of(len(pair.cold_seconds), "pair"),
        "cold_compile_seconds": seconds(pair.cold_median),
        "warm_compile_seconds": seconds(pair.warm_median),
        "compile_time_saved": METRICS["compile_time_saved"].format(pair.time_saved),
        "cold_over_warm": ratio_text(pair.ratio),
    }


def caches_break_evens(pairs: Sequence[ColdWarm]) -> pd.DataFrame:
    """One row per backend: break-even steps with cold and with warm caches."""
    rows = [
        {
            "backend": pair.backend,
            "cold_break_even_steps": break_even_in_full(pair.cold_break_even),
            "warm_break_even_steps": break_even_in_full(pair.warm_break_even),
        }
        for pair in pairs
    ]
    return pd.DataFrame(rows)


def starts_words(pairs: Sequence[ColdWarm], num_steps: int | None) -> Iterator[Sentence]:
    """For each backend its times at the first start and at later ones; nothing without a length."""
    for pair in pairs:
        if num_steps is not None and (totals := pair.totals(num_steps)):
            first, later, base = (Figure("planned_seconds", duration(total)) for total in totals)
            yield say(
                f"{pair.backend}: ",
                first,
                " at the first start, ",
                later,
                " at later ones with filled caches, ",
                base,
                " without a compiler.",
            )
