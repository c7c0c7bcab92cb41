"""Texts of break-evens, of inconclusive speeds, and of the advised backend for a planned length."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from breakeven.runner.settings import Prices
from breakeven.runner.texts import capital, duration
from breakeven.storage.comparison.latency import ColdWarm
from breakeven.storage.comparison.plan import Plan
from breakeven.storage.comparison.results import Choice, Result
from breakeven.storage.numbers.formats import DASH, digits, format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.statistics.speedups import BreakEven, ratio_text, speed_doubt
from breakeven.storage.terminal.caution_words import caution_words
from breakeven.storage.terminal.parity_words import outcome_of_batches

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
        return f"inconclusive, a step saved nothing, but this {doubt}"
    return f"inconclusive, the saving {doubt}; if it is real, {_steps(found.steps_if_real)} steps"


def break_even_reason(result: Result) -> str:
    """A remark in addition to `break_even_text`; empty if there is none."""
    found = result.break_even
    if result.speed_verdict == "same":
        return "The speed counts as the baseline's, so compiling never pays off."
    if found is None or found.verdict != "unsure":
        return " ".join(str(caution_words(doubt)) for doubt in result.break_even_doubts)
    reason = f"The speedup of {ratio_text(result.speedup)} {doubt_of_saving(result)}"
    if found.steps_if_real is None:
        return f"{reason}; as measured, a step saves nothing."
    return f"{reason}. If it is real, compiling pays off after {_steps(found.steps_if_real)} steps."


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


JOULES_PER_KWH = 3.6e6
LEAST_KWH = 0.1
"""Energy below which pages and terminal write watt-hours."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The advised backend for a planned length, as the parts of a sentence."""

    action: str
    """`Use inductor`."""
    seconds: tuple[float, ...]
    """Time with the advised backend; then, if it is a compiler, time without a compiler. Where
    caches are measured, both times with the backend come first."""
    texts: tuple[str, ...]
    """The texts before, between and after these times."""


def advice(planned: Plan, prices: Prices) -> Advice | None:
    """The advice of a plan; None without a measured baseline."""
    base = planned.baseline_seconds
    if base is None or len(planned.totals) == 1:
        return None
    parts = (*_another_training(planned), *_doubts(planned), *_costs(planned, prices))
    costs = "".join(f" {one}." for one in parts)
    others = other_lengths(planned)
    if planned.undecided is not None and planned.best is None:
        label = planned.undecided.label
        rest = ", compiling included. Too few rounds to be sure."
        return Advice(action="Not decided here", seconds=(planned.totals[label], base),
                      texts=(f"{label} may take ", " instead of ", rest))  # fmt: skip
    if planned.best is None:
        rest = f".{costs} {others or 'No backend is sure to take less.'}"
        return Advice(action="Do not compile", seconds=(base,), texts=("the steps take ", rest))
    label = planned.best.label
    rest = f", compiling included.{costs} {others}".rstrip()
    return Advice(action=f"Use {label}", seconds=(planned.totals[label], base),
                  texts=("", " instead of ", rest))  # fmt: skip


def starts_advice(found: Sequence[ColdWarm], num_steps: int | None) -> Iterator[Advice]:
    """For each backend its times at the first start and at later ones; nothing without a length."""
    for one in found:
        if num_steps is not None and (totals := one.totals(num_steps)):
            texts = ("", " at the first start, ", " at later ones with filled caches, ",
                     " without a compiler.")  # fmt: skip
            yield Advice(action=one.backend, seconds=totals, texts=texts)


def advice_words(found: Advice) -> str:
    """`use inductor: 12 min 10 s instead of 19 min 40 s, compiling included.`"""
    times = "".join(text + duration(one)
                    for text, one in zip(found.texts, found.seconds, strict=False))  # fmt: skip
    return f"{found.action[:1].lower()}{found.action[1:]}: {times}{found.texts[-1]}"


def _another_training(planned: Plan) -> Iterator[str]:
    best = planned.best
    if best is None or best.batch_times == 1:
        return
    times, outcome = best.batch_times, outcome_of_batches(best.parity)
    yield (f"This is another training, with batches {times} times as large and 1/{times} of the "
           f"steps; {outcome or 'what it learns was not compared'}")  # fmt: skip


def _doubts(planned: Plan) -> Iterator[str]:
    """Why another choice may take less: break-even, or the number of steps from which the next
    backend takes less, may be before or after the planned length."""
    for earlier, change in planned.unsure_changes:
        is_taken = planned.best is not None and planned.best.label == change.label
        if not is_taken:
            when = f"may take less from {_steps(change.low)} steps on"
        elif change.high == math.inf:
            when = f"may never take less than {earlier}"
        else:
            when = f"may take less than {earlier} only from {_steps(change.high)} steps on"
        yield f"This is not sure: {change.label} {when}"
    if planned.undecided is not None:
        least = duration(planned.totals[planned.undecided.label])
        yield f"This is not sure: {planned.undecided.label} may take only {least}"
    found = planned.leading.break_even if planned.leading else None
    if planned.surely_pays_or_not or planned.leading is None or found is None:
        return
    label = planned.leading.label
    if found.low is None or found.high is None:
        yield f"This is not sure: {label} may pay for its compiling"
    elif planned.best is None:
        yield f"This is not sure: {label} may pay after {_steps(found.low)} steps"
    elif found.high == math.inf:
        yield f"This is not sure: {label} may never pay for its compiling"
    else:
        yield f"This is not sure: {label} may pay only after {_steps(found.high)} steps"


def _costs(planned: Plan, prices: Prices) -> Iterator[str]:
    """Energy, CO2 and money of the choice, and of no compiler if that is another choice."""
    labels = list(dict.fromkeys([planned.best.label if planned.best else planned.baseline,
                                 planned.baseline]))  # fmt: skip
    compiling = planned.compile_joules
    kwh = [(planned.joules[one] + compiling.get(one, 0.0)) / JOULES_PER_KWH
           for one in labels if one in planned.joules]  # fmt: skip
    is_known = len(kwh) == len(labels)
    if is_known:
        few = max(kwh) < LEAST_KWH
        energy = [1000 * one for one in kwh] if few else kwh
        user = "Compiling and steps" if labels[0] in compiling else "The steps"
        yield f"{user} use {_instead(energy)} {'Wh' if few else 'kWh'}"
        if planned.best is not None:
            yield from _energy_repaid(planned.best)
        if emitted := _co2(kwh, prices):
            yield f"They emit {emitted}"
    hours = [planned.totals[one] * planned.num_devices / 3600 for one in labels]
    if costs := _money(hours, kwh if is_known else None, prices):
        yield f"The training costs {costs}"


def _co2(kwh: Sequence[float], prices: Prices) -> str:
    """`0.3 instead of 0.2 kg of CO2`; empty if the amount per kWh is not set."""
    kilograms = [one * prices.co2_grams_per_kwh / 1000 for one in kwh]
    return f"{_instead(kilograms)} kg of CO2" if any(kilograms) else ""


def _money(hours: Sequence[float], kwh: Sequence[float] | None, prices: Prices) -> str:
    """The price of device hours and of energy, if this is known; empty without prices."""
    energy = [0.0] * len(hours) if kwh is None else kwh
    money = [prices.device_hour * time + prices.kwh * used
             for time, used in zip(hours, energy, strict=True)]  # fmt: skip
    if not any(money):
        return ""
    text = f"{_instead(money)} {prices.currency}".rstrip()
    return f"{text} without energy" if kwh is None and prices.kwh else text


def _energy_repaid(best: Result) -> Iterator[str]:
    """After how many steps a backend has saved the energy of its compiling."""
    found = best.energy.break_even if best.energy else None
    if found is None:
        return
    if found.verdict == "never":
        yield f"{best.label} saves no energy"
    elif found.verdict == "reached" and found.low is not None:
        spread = f"{_steps(found.low)} to {_steps(found.high)}"
        yield f"In energy, compiling pays off after {_steps(found.steps)} steps ({spread})"


def _instead(amounts: Sequence[float]) -> str:
    """`3.48 instead of 4.43`; one amount alone, or two equal ones once."""
    texts = [f"{one:,.0f}" if one >= 999.5 else digits(one, 3) for one in amounts]
    return " instead of ".join(dict.fromkeys(texts))


def any_length(planned: Plan, prices: Prices) -> str:
    """Without a planned length: the best choice by length, and what an hour makes and costs with
    the leading backend instead of without a compiler."""
    return " ".join(filter(None, [other_lengths(planned), _hour(planned, prices)]))


def _hour(planned: Plan, prices: Prices) -> str:
    """`Per hour with inductor: 72,000 instead of 36,000 steps, 0.600 instead of 0.400 kWh.`; empty
    without energy and prices."""
    labels = list(dict.fromkeys([planned.leading.label if planned.leading else planned.baseline,
                                 planned.baseline]))  # fmt: skip
    if not planned.step_seconds.keys() >= set(labels):
        return ""
    steps = [3600 / planned.step_seconds[one] for one in labels]
    joules = [planned.step_joules.get(one, math.nan) for one in labels]
    kwh = [count * energy / JOULES_PER_KWH for count, energy in zip(steps, joules, strict=True)]
    amounts = [f"{_instead(steps)} steps"]
    if is_known := not any(map(math.isnan, kwh)):
        amounts += [f"{_instead(kwh)} kWh", _co2(kwh, prices)]
    hours = [planned.num_devices] * len(labels)
    amounts.append(_money(hours, kwh if is_known else None, prices))
    known = [one for one in amounts if one]
    what = f"with {labels[0]}" if planned.leading else "without a compiler"
    return f"Per hour {what}: {', '.join(known)}." if len(known) > 1 else ""


def other_lengths(planned: Plan) -> str:
    """The best choices for other lengths of training, or for all of them without a planned one;
    empty if the planned one's choice is the best for all."""
    chosen_from = -1.0 if planned.chosen is None else planned.chosen.from_steps
    parts = []
    for choice, following in zip_longest(planned.choices, planned.choices[1:]):
        action = "do not compile" if choice.label is None else f"use {choice.label}"
        if choice == planned.chosen:
            continue
        if choice.from_steps > max(0, chosen_from):
            parts.append(f"from {_length(choice)} on, {action}")
        else:
            until = f"below {_length(following)}, " if following else ""
            parts.append(f"{until}{action}")
    text = "; ".join(parts)
    return f"{capital(text)}." if text else ""


def _length(choice: Choice) -> str:
    """`2,654 steps (2,631 to 2,671)`; `about 2,654 steps` without an interval."""
    text = f"{_steps(choice.from_steps)} steps"
    if choice.low is None or choice.high is None:
        return f"about {text}"
    return f"{text} ({_steps(choice.low)} to {_steps(choice.high)})"
