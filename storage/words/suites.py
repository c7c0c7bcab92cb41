"""Sentences and names about a suite run; pages and the terminal show the same."""

from collections.abc import Sequence

import pandas as pd

from breakeven.storage.numbers.formats import DASH, count_of, format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.sentences import Figure, Sentence, Words, figure, joined, say
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.suite_runs.groups import HIDDEN_SLOWDOWN, MIN_MODELS, Group, MeanSpeedup

UNCLEAR = f"its speeds are too imprecise to rule out {HIDDEN_SLOWDOWN * 100:.0f} % more time"


MAX_NAMED = 3


def other_conditions(runs: pd.DataFrame, suite_run: str, earlier: str) -> str:
    """Differences in device and torch between two suite runs, which may cause every change; empty
    if there are none. `runs`: the result of `storage.queries.list_suite_runs`."""
    known = runs.set_index("suite_run")[["device_name", "torch_version"]].astype(object)
    now, then = known.loc[suite_run], known.loc[earlier]
    parts = [
        f"{name} {then[column]} before, {now[column]} now"
        for column, name in (("device_name", "device"), ("torch_version", "torch"))
        if pd.notna(then[column]) and pd.notna(now[column]) and then[column] != now[column]
    ]
    return "; ".join(parts)


def rests_on(mean: MeanSpeedup | None) -> Sentence:
    """Part of a sentence on the models that decide a mean's verdict or affect it most; empty with
    fewer than two models. `faster, but inconclusive without T5Small (1.04x)`."""
    if mean is None or not mean.left_out:
        return Sentence()
    most, verdict = mean.left_out[0], format_verdict(mean.verdict)
    if mean.deciding and mean.ratio.low is not None and most.verdict is not None:
        return say(f"{verdict}, but ", _deciding(mean))
    begin = f"{verdict}, whichever model is left out"
    if mean.ratio.low is None:
        begin = f"no interval, which takes {MIN_MODELS} models"
    elif most.verdict is None:
        begin = f"{verdict}; {mean.ratio.n} models are too few to leave one out"
    return say(
        f"{begin}; {most.model} moves the mean most, which is ",
        figure("geomean_speedup", most.mean),
        " without it",
    )


def _deciding(mean: MeanSpeedup) -> Sentence:
    """The verdicts without single models: `inconclusive without T5Small (1.04x)`."""
    without: dict[str, list[Sentence]] = {}
    for decision in mean.deciding:
        named = say(f"{decision.model} (", figure("geomean_speedup", decision.mean), ")")
        without.setdefault(format_verdict(decision.verdict), []).append(named)
    words = (say(f"{verdict} without ", either(models)) for verdict, models in without.items())
    return joined(words, " and ")


def either(names: Sequence[Words]) -> Sentence:
    """`A`, `A or B`, `A, B, C or any of 4 more`."""
    if len(names) > MAX_NAMED:
        more = f"any of {len(names) - MAX_NAMED} more"
        return joined([joined(names[:MAX_NAMED], ", "), more], " or ")
    first = [joined(names[:-1], ", ")] if len(names) > 1 else []
    return joined([*first, names[-1]], " or ")


def change_text(mean: MeanSpeedup) -> Sentence:
    """`speedups are 0.93x (0.90 to 0.96) the earlier ones over 12 models: slower`, and the deciding
    models."""
    rest = rests_on(mean)
    ratio = Figure("suite_change", ratio_text(mean.ratio))
    return say(
        "speedups are ",
        ratio,
        f" the earlier ones over {count_of(mean.ratio.n, 'model')}: ",
        rest if rest.parts else format_verdict(mean.verdict),
    )


def compile_text(group: Group) -> str:
    """Mean and longest compile latency, `12 s (longest 41 s)`, as measured, without interval."""
    text = METRICS["mean_compile_seconds"].format
    if len(group.compile_seconds) < 2:
        return text(group.mean_compile_seconds)
    return f"{text(group.mean_compile_seconds)} (longest {text(max(group.compile_seconds))})"


def share_text(group: Group) -> str:
    """`95 % (19 of 20)`; a dash without a check."""
    rate = METRICS["pass_rate"].format(group.pass_rate)
    return f"{rate} ({group.num_passed} of {group.num_checked})" if group.num_checked else DASH
