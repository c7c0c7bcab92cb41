"""Texts of break-evens, of inconclusive speeds, and of the answer for a planned length."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from breakeven.runner.settings import Prices
from breakeven.runner.texts import capital, duration, listed
from breakeven.storage.comparison.answer_decision import Answer, AnswerKind
from breakeven.storage.comparison.compiler_warnings import LatencyMeasuredOnce
from breakeven.storage.comparison.plan import (
    COMPILERS,
    Plan,
    TimeToLoss,
    choice_words,
    time_to_loss,
)
from breakeven.storage.comparison.results import AT_ONCE, Choice, Comparison, Result
from breakeven.storage.numbers.formats import DASH, count_of, digits, format_share, format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.sentences import Figure, Sentence, Words, joined, say
from breakeven.storage.statistics.break_even import BreakEven
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.statistics.speedups import ratio_text, speed_doubt
from breakeven.storage.words.parity import parity_words, wrong_words

_steps = METRICS["break_even_steps"].format


def break_even_text(break_even: BreakEven | None) -> str:
    """`210 steps (180 to 260), about 84.0 s`, `at once`, `until 600 steps (550 to 640)`, `never`,
    `inconclusive`, or a dash for None."""
    return _written(break_even, with_epochs=False)


def break_even_in_full(break_even: BreakEven | None, doubt: str = "may be chance") -> str:
    """The break-even with epochs; an inconclusive one with the reason, and the break-even if the
    saving is real. `doubt` is the doubt about the saving."""
    if break_even is None or break_even.verdict != "unsure":
        return _written(break_even, with_epochs=True)
    if break_even.steps_if_real is None:
        return f"inconclusive, a step saved nothing, but this {doubt}"
    return (
        f"inconclusive, the saving {doubt}; if it is real, {_steps(break_even.steps_if_real)} steps"
    )


def break_even_reason(result: Result) -> str:
    """A remark in addition to `break_even_text`; empty if there is none."""
    break_even = result.break_even
    if result.speed_verdict == "same":
        longer = "" if break_even is None or break_even.verdict == "never" else "at once"
        pays = f"its shorter compiling pays off {longer}" if longer else "compiling never pays off"
        return f"The speed counts as the baseline's, so {pays}."
    if break_even is None or break_even.verdict != "unsure":
        once = LatencyMeasuredOnce.find_in([result.label] if result.has_single_latency else [])
        return " ".join(str(warning.words()) for warning in once)
    reason = f"The speedup of {ratio_text(result.speedup)} {doubt_of_saving(result)}"
    if break_even.steps_if_real is None:
        return f"{reason}; as measured, a step saves nothing."
    steps = _steps(break_even.steps_if_real)
    return f"{reason}. If it is real, compiling pays off after {steps} steps."


def speed_reason(result: Result) -> str:
    """Why the speed of a run is inconclusive, and what would help; empty for other verdicts."""
    if result.speed_verdict != "unsure":
        return ""
    if result.speedup is None or result.speedup.low is None:
        return f"Fewer than {MIN_PAIRS} rounds were paired with the baseline."
    return f"The speedup of {_unsure_speedup(result)}."


def _unsure_speedup(result: Result) -> str:
    """`1.02x (0.98 to 1.04) may be chance; no difference above 4 % is visible`."""
    text = f"{ratio_text(result.speedup)} {doubt_of_saving(result)}"
    if result.more_rounds:
        count = result.more_rounds
        more = "one more round" if count == 1 else f"{count:,} more rounds"
        return f"{text}; about {more} would decide"
    largest = result.speedup and result.speedup.largest_difference
    if largest is None:
        return text
    return f"{text}; no difference above {format_share(largest)} is visible"


def doubt_of_saving(result: Result) -> str:
    """Why the saving of an inconclusive break-even is uncertain."""
    doubt = result.speedup and speed_doubt(result.speedup, result.p_holm)
    return "may be chance" if doubt != "margin" else "is too small to tell from noise"


def _written(break_even: BreakEven | None, *, with_epochs: bool) -> str:
    if break_even is None:
        return DASH
    if break_even.steps is None or break_even.verdict == "never":
        return format_verdict(break_even.verdict)
    if break_even.verdict == "until" and break_even.steps == math.inf:
        return f"{AT_ONCE}, at least until {_steps(break_even.low)} steps"
    spread = (
        ""
        if break_even.low is None
        else f" ({_steps(break_even.low)} to {_steps(break_even.high)})"
    )
    if break_even.steps == 0:
        return f"{AT_ONCE}{spread if break_even.high else ''}"
    amounts = [METRICS["break_even_seconds"].format(break_even.seconds)]
    if with_epochs and break_even.epochs is not None:
        amounts.append(f"{METRICS['break_even_epochs'].format(break_even.epochs)} epochs")
    until = "until " if break_even.verdict == "until" else ""
    return f"{until}{_steps(break_even.steps)} steps{spread}, about {' or '.join(amounts)}"


JOULES_PER_KWH = 3.6e6
LEAST_KWH = 0.1
"""Energy below which pages and terminal write watt-hours."""


def answer_words(planned: Plan) -> Sentence:
    """The answer in one sentence, the same wherever it is shown; empty without an answer."""
    answer = planned.answer
    if answer is None:
        return Sentence()
    if answer.kind == "nothing compiled":
        why = _part_given_up(answer) or "the compiler captured nothing of the training"
        return say(f"Nothing was compiled: {why}.")
    if answer.kind == "nothing worked":
        has_baseline = planned.baseline not in answer.failed
        refused = choice_words(planned).refused if has_baseline else COMPILERS.refused
        return say(capital(refused), ": ", _failures(planned, answer), ".")
    part = _part_given_up(answer)
    return say(*ANSWERS[answer.kind](planned, answer), f"; {part}" if part else "", ".")


def _use(planned: Plan, answer: Answer) -> tuple[Words, ...]:
    sameness = _sameness(planned, answer)
    if planned.num_steps is None:
        lengths = other_lengths(planned).rstrip(".") or f"Use {answer.backend}"
        return (lengths, f"; {sameness}")
    own, base = _times(planned, answer)
    length = _planned_length(planned)
    included = f"{_including(planned, answer)}; {sameness}"
    return (f"Use {answer.backend}", length, ": ", own, " instead of ", base, included)


def _do_not_compile(planned: Plan, answer: Answer) -> tuple[Words, ...]:
    own, base = _times(planned, answer)
    words = choice_words(planned)
    begin = (capital(words.decline), _planned_length(planned), ": ")
    if answer.is_equal:
        return (*begin, *_as_long(answer, own))
    if own and base:
        return (*begin, base, f" {words.without}, ", own, f" with {answer.backend}")
    return (*begin, f"no {words.arm} is faster")


def _not_decided(planned: Plan, answer: Answer) -> tuple[Words, ...]:
    is_said = answer.sameness == "same" or answer.reason == "outcome"
    sameness = "" if is_said else _sameness(planned, answer)
    return (
        "Not decided",
        _planned_length(planned),
        ": ",
        *_likely(planned, answer),
        _undecided(planned, answer),
        f"; {sameness}" if sameness else "",
    )


def _likely(planned: Plan, answer: Answer) -> tuple[Words, ...]:
    """What is probably the answer, if times are known."""
    own, base = _times(planned, answer)
    if not own or not base:
        return ()
    if answer.is_equal:
        return (*_as_long(answer, own), ", but ")
    if answer.reason in ("outcome", "learns sooner"):
        return (f"{answer.backend} takes ", own, " instead of ", base, ", but ")
    if answer.probable == answer.backend:
        use = f"probably use {answer.backend}, "
        return (use, own, " instead of ", base, f"{_including(planned, answer)}, but ")
    with_backend = f" with {answer.backend}, but "
    decline = f"probably {choice_words(planned).decline}, "
    return (decline, base, " instead of ", own, with_backend)


def _including(planned: Plan, answer: Answer) -> str:
    """That times have the compiling of the arm, or of the baseline."""
    result = planned.subject
    compiles = planned.has_only_compilers or planned.compiles_baseline
    compiles = compiles or result is None or result.backend is not None
    return ", compiling included" if compiles else ""


def _as_long(answer: Answer, time: Words) -> tuple[Words, ...]:
    return (f"{answer.backend} takes practically as long, ", time, " with and without it")


ANSWERS: dict[AnswerKind, Callable[[Plan, Answer], tuple[Words, ...]]] = {
    "use": _use,
    "do not compile": _do_not_compile,
    "not decided": _not_decided,
}


def _planned_length(planned: Plan) -> Sentence:
    """` for 100 steps in 10 starts`; empty without a planned length."""
    if planned.num_steps is None:
        return Sentence()
    starts = f" in {planned.starts:,} starts" if planned.starts > 1 else ""
    return say(" for ", Figure("num_steps", count_of(planned.num_steps, "step")), starts)


def _times(planned: Plan, answer: Answer) -> tuple[Words, Words]:
    """The planned time with the backend and without a compiler; both empty unless both are
    known."""
    own, base = planned.totals.get(answer.backend or ""), planned.baseline_seconds
    if own is None or base is None:
        return "", ""
    name = "planned_seconds"
    return Figure(name, duration(own)), Figure(name, duration(base))


def _sameness(planned: Plan, answer: Answer) -> str:
    """Whether the backend learns the same; empty if nothing is to be said of it."""
    names_backend = planned.num_steps is None and answer.backend
    subject = answer.backend if names_backend else "it"
    match answer.sameness:
        case "same":
            steps = answer.checked_steps
            over = f" over the first {count_of(steps, 'step')}" if steps else ""
            return f"{subject} learns the same thing{over}"
        case "unknown":
            return f"whether {subject} learns the same is not known"
        case "not tested":
            return f"whether {subject} learns the same was not tested"
        case "answers not tested":
            return f"whether {subject} gives the same answers was not tested"
        case "nothing learned":
            return f"whether {subject} learns the same cannot be tested, as nothing was learned"
        case "as good":
            return f"{subject} makes another training, which is as good"
        case "better":
            return f"{subject} makes another training, which is better"
        case "not decided":
            return f"{subject} makes another training, and whether it is as good is not decided"
    return ""


def _undecided(planned: Plan, answer: Answer) -> str:
    """Why nothing is decided, and what would decide it."""
    result = planned.subject
    match answer.reason:
        case "chance" | "noise" if result is not None:
            text = f"the speedup of {_unsure_speedup(result)}"
            return f"{text}; a quieter machine would decide" if answer.reason == "noise" else text
        case "break-even" if result is not None and result.break_even is not None:
            return _open_break_even(result.break_even)
        case "few rounds":
            return f"fewer than {MIN_PAIRS} rounds were timed; {planned.longer} would decide"
        case "no speed":
            return f"no round of {answer.backend} can be compared; {planned.longer} would decide"
        case "still running":
            return f"{answer.backend} is not over yet"
        case "outcome":
            unknown = "it may make another training, and whether that is as good is not known"
            return _sameness(planned, answer) if answer.sameness == "not decided" else unknown
        case "learns sooner" if planned.time_to_loss is not None:
            subject = "it" if planned.num_steps is not None else str(answer.backend)
            return f"{subject} {to_loss_words(planned.time_to_loss)}"
        case "stopped":
            return f"{answer.backend} was stopped; run it again, to its end"
        case "no baseline":
            return "the baseline did not finish, so there is nothing to compare with"
    return ""


def to_loss_words(time: TimeToLoss) -> str:
    """`reaches a training loss of 2.04 after 20.1 s (18.0 to 22.3) instead of 28.0 s`."""
    seconds, low, high, expected = (
        METRICS["time_to_loss"].format(value)
        for value in (time.seconds, time.low, time.high, time.expected)
    )
    return (
        f"reaches a training loss of {digits(time.loss, 3)} after {seconds} ({low} to {high}) "
        f"instead of {expected}"
    )


def times_to_loss(
    comparison: Comparison, *, also_like_the_baseline: bool = False
) -> Iterator[tuple[str, str]]:
    """The label of each arm that needs another time than the baseline to its loss, and what it is;
    by `also_like_the_baseline` of each arm whose time is known."""
    for result in comparison.results:
        time = time_to_loss(result, comparison.baseline_of(result.label))
        if time is not None and (time.differs or also_like_the_baseline):
            yield result.label, to_loss_words(time)


def _open_break_even(break_even: BreakEven) -> str:
    if break_even.low is None or break_even.high is None:
        return "it is open whether its compiling ever pays off"
    low, high = _steps(break_even.low), _steps(break_even.high)
    if break_even.verdict == "until":
        return f"it is ahead until somewhere between {low} and {high} steps"
    when = f"it pays off somewhere between {low} and {high} steps"
    if break_even.high == math.inf:
        when = f"it may pay off after {low} steps or never"
    return f"{when}; a longer measurement would decide"


def _part_given_up(answer: Answer) -> str:
    """`Dynamo gave up at train.py:15 (aten.bincount)`; empty if it gave up nowhere."""
    if not answer.given_up:
        return ""
    first = answer.given_up[0]
    on = "" if first.is_all else f" on {first.function or 'a part of it'}"
    at = f" at {first.place}" if first.place else ""
    operator = f" ({first.operator})" if first.operator else ""
    return f"Dynamo gave up{on}{at}{operator}"


def _failures(planned: Plan, answer: Answer) -> Sentence:
    """The backends that failed or train wrong; the reason where it is only one."""
    parts: list[Words] = []
    if answer.failed:
        parts.append(f"{listed(answer.failed)} did not finish")
    if answer.wrong:
        parts.append(f"{listed(answer.wrong)} cannot be trusted")
    words = joined(parts, ", and ")
    if len(answer.wrong) == 1 and planned.subject is not None:
        why = wrong_words(planned.subject)
        words = say(words, ": ", why) if why.parts else words
    return words


def plan_details(planned: Plan, prices: Prices) -> str:
    """What the answer leaves out: doubts, energy and costs, other lengths; without a planned length
    what an hour makes and costs."""
    return f"{plan_doubts(planned)} {plan_costs(planned, prices)}".strip()


def plan_doubts(planned: Plan) -> str:
    """What starts compile, what another training shows, and why another backend may take less;
    empty if none of these."""
    if planned.num_steps is None or _has_nothing_to_plan(planned):
        return ""
    parts = (*_starts(planned), *_another_training(planned), *_unsure(planned))
    return " ".join(f"{part}." for part in parts)


def plan_costs(planned: Plan, prices: Prices) -> str:
    """Energy and costs, other lengths; without a planned length what an hour makes and costs."""
    if planned.num_steps is None:
        return _hour(planned, prices)
    if _has_nothing_to_plan(planned):
        return ""
    is_decided = planned.answer is not None and planned.answer.kind != "not decided"
    is_decided = is_decided and planned.baseline_seconds is not None
    costs = _costs(planned, prices) if is_decided else ()
    return " ".join([*(f"{part}." for part in costs), other_lengths(planned)]).strip()


def _has_nothing_to_plan(planned: Plan) -> bool:
    return planned.answer is None or planned.answer.kind in ("nothing compiled", "nothing worked")


def total_words(planned: Plan) -> Sentence:
    """`In all inductor takes 51.3 s (51.2 s to 51.5 s).`, of the backend of the answer; empty
    without an interval."""
    label = (planned.answer and planned.answer.backend) or ""
    interval = planned.total_intervals.get(label)
    if interval is None or label not in planned.totals:
        return Sentence()
    written, low, high = map(METRICS["time_to_loss"].format, (planned.totals[label], *interval))
    return say(
        f"In all {label} takes ", Figure("planned_seconds", f"{written} ({low} to {high})"), "."
    )


def _starts(planned: Plan) -> Iterator[str]:
    """What compiling takes at the first start and at later ones, of the run that the answer is
    about."""
    result = planned.best or planned.subject
    compiling = result and planned.compiling.get(result.label)
    if planned.starts == 1 or result is None or not compiling:
        return
    first, later = (
        None if seconds is None else METRICS["compile_seconds"].format(seconds)
        for seconds in (compiling.first, compiling.later)
    )
    if later is None:
        yield f"Each start of {result.label} counts as the first one, which compiled for {first}"
        yield "A later one with its compile caches was not timed"
    else:
        again = f"{later} at each later one, which needs the compile caches of the first"
        yield f"{result.label} compiles for {first} at the first start, and for {again}"


def _another_training(planned: Plan) -> Iterator[str]:
    """What another training shows, and the fewer steps of larger batches."""
    result = planned.best or planned.subject
    if result is None or result.parity is None:
        return
    if not (result.parity.by_outcome or result.has_open_outcome):
        return
    yield capital(str(parity_words(result.parity)))
    times = result.batch_times
    if times > 1:
        yield f"It has 1/{times} of the steps"


def _unsure(planned: Plan) -> Iterator[str]:
    """Why another backend may take less: the number of steps from which the next one takes less may
    be before or after the planned length, or its speed is inconclusive."""
    for earlier, change in planned.unsure_changes:
        is_taken = planned.best is not None and planned.best.label == change.label
        if not is_taken:
            when = f"may take less from {_steps(change.low)} steps on"
        elif change.high == math.inf:
            when = f"may never take less than {earlier}"
        else:
            when = f"may take less than {earlier} only from {_steps(change.high)} steps on"
        yield f"This is not sure: {change.label} {when}"
    if planned.rival is not None:
        rival = planned.rival
        least = duration(planned.totals[rival.label])
        takes = f"{rival.label} may take only {least}"
        if rival.has_open_outcome:
            takes = f"{rival.label} takes {least}, but whether its training is as good is open"
        yield f"This is not sure: {takes}"


def _costs(planned: Plan, prices: Prices) -> Iterator[str]:
    """Energy, CO2 and money of the choice, and of no compiler if that is another choice."""
    labels = list(
        dict.fromkeys([planned.best.label if planned.best else planned.baseline, planned.baseline])
    )
    compiling = planned.compile_joules
    kwh = [
        (planned.joules[label] + compiling.get(label, 0.0)) / JOULES_PER_KWH
        for label in labels
        if label in planned.joules
    ]
    is_known = len(kwh) == len(labels)
    if is_known:
        few = max(kwh) < LEAST_KWH
        energy = [1000 * energy for energy in kwh] if few else kwh
        user = "Compiling and steps" if labels[0] in compiling else "The steps"
        yield f"{user} use {_instead(energy)} {'Wh' if few else 'kWh'}"
        if planned.best is not None:
            yield from _energy_repaid(planned.best)
        if emitted := _co2(kwh, prices):
            yield f"They emit {emitted}"
    hours = [planned.totals[label] * planned.num_devices / 3600 for label in labels]
    if costs := _money(hours, kwh if is_known else None, prices):
        yield f"The training costs {costs}"


def _co2(kwh: Sequence[float], prices: Prices) -> str:
    """`0.3 instead of 0.2 kg of CO2`; empty if the amount per kWh is not set."""
    kilograms = [energy * prices.co2_grams_per_kwh / 1000 for energy in kwh]
    return f"{_instead(kilograms)} kg of CO2" if any(kilograms) else ""


def _money(hours: Sequence[float], kwh: Sequence[float] | None, prices: Prices) -> str:
    """The price of device hours and of energy, if this is known; empty without prices."""
    energy = [0.0] * len(hours) if kwh is None else kwh
    money = [
        prices.device_hour * time + prices.kwh * used
        for time, used in zip(hours, energy, strict=True)
    ]
    if not any(money):
        return ""
    text = f"{_instead(money)} {prices.currency}".rstrip()
    return f"{text} without energy" if kwh is None and prices.kwh else text


def _energy_repaid(best: Result) -> Iterator[str]:
    """After how many steps a backend has saved the energy of its compiling."""
    break_even = best.energy.break_even if best.energy else None
    if break_even is None:
        return
    if break_even.verdict == "never":
        yield f"{best.label} saves no energy"
    elif break_even.verdict == "reached" and break_even.low is not None:
        spread = f"{_steps(break_even.low)} to {_steps(break_even.high)}"
        yield f"In energy, compiling pays off after {_steps(break_even.steps)} steps ({spread})"


def _instead(amounts: Sequence[float]) -> str:
    """`3.48 instead of 4.43`; one amount alone, or two equal ones once."""
    texts = [f"{amount:,.0f}" if amount >= 999.5 else digits(amount, 3) for amount in amounts]
    return " instead of ".join(dict.fromkeys(texts))


def _hour(planned: Plan, prices: Prices) -> str:
    """`Per hour with inductor: 72,000 instead of 36,000 steps, 0.600 instead of 0.400 kWh.`; empty
    without energy and prices."""
    labels = list(
        dict.fromkeys(
            [planned.leading.label if planned.leading else planned.baseline, planned.baseline]
        )
    )
    if not planned.step_seconds.keys() >= set(labels):
        return ""
    steps = [3600 / planned.step_seconds[label] for label in labels]
    joules = [planned.step_joules.get(label, math.nan) for label in labels]
    kwh = [count * energy / JOULES_PER_KWH for count, energy in zip(steps, joules, strict=True)]
    amounts = [f"{_instead(steps)} steps"]
    if is_known := not any(map(math.isnan, kwh)):
        amounts += [f"{_instead(kwh)} kWh", _co2(kwh, prices)]
    hours = [planned.num_devices] * len(labels)
    amounts.append(_money(hours, kwh if is_known else None, prices))
    known = [amount for amount in amounts if amount]
    what = f"with {labels[0]}" if planned.leading else choice_words(planned).without
    return f"Per hour {what}: {', '.join(known)}." if len(known) > 1 else ""


def other_lengths(planned: Plan) -> str:
    """The best choices for other lengths of training, or for all of them without a planned one;
    empty if the planned one's choice is the best for all."""
    chosen_from = -1.0 if planned.chosen is None else planned.chosen.from_steps
    parts = []
    for choice, following in zip_longest(planned.choices, planned.choices[1:]):
        decline = choice_words(planned).decline
        action = decline if choice.label is None else f"use {choice.label}"
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
