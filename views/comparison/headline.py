"""Headlines: the answer with the verdicts of speed behind it; texts next to the numbers of a
comparison.

Comparisons and suites take their sentences about several speeds from here, so that no sentence says
more than the verdicts. Each verdict has a sentence for one speed and for several speeds; mixed
verdicts have one sentence.
"""

from collections.abc import Mapping, Sequence
from typing import get_args

from breakeven.runner.protocol.states import EarlyEnd, RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.plan import COMPILERS, ChoiceWords, Plan, choice_words
from breakeven.storage.comparison.results import Comparison, Result, Standings, standings
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.sentences import Sentence
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.statistics.speedups import SpeedDoubt, SpeedVerdict, ratio_text, speed_doubt
from breakeven.storage.words.answer_sentence import answer_words, break_even_text, times_to_loss
from breakeven.storage.words.parity import parity_words, wrong_words
from breakeven.views.shared import words
from breakeven.views.shared.definition_links import linked, sentence
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.words import joined, listed

VERDICTS: tuple[SpeedVerdict, ...] = ("faster", "same", "unsure", "slower")
"""Verdicts in the order of the headline."""
DOUBTS: dict[SpeedDoubt, Markdown] = {
    "few": f"too few rounds to tell (at least {MIN_PAIRS} are needed)",
    "chance": "the difference may be chance",
    "margin": "the difference is too small to tell from noise",
}


def headline(comparison: Comparison, planned: Plan) -> Markdown:
    """The answer in one sentence."""
    standing = standings(comparison)
    if planned.answer is not None:
        return sentence(answer_words(planned))
    if standing.baseline is None:
        return "There is no baseline to compare with."
    return "There is only the baseline: add a backend to compare."


def is_bad(planned: Plan) -> bool:
    """Whether the answer is shown in red, because nothing can be recommended from it."""
    answer = planned.answer
    return answer is not None and answer.kind in ("nothing compiled", "nothing worked")


def evidence(comparison: Comparison, planned: Plan) -> Markdown:
    """The speed behind the answer, when compiling pays off, parity, and why other backends do not
    count; empty if the answer says it all."""
    standing = standings(comparison)
    if standing.baseline is None or not standing.num_backends:
        return ""
    has_failed = planned.answer is not None and planned.answer.kind == "nothing worked"
    if has_failed and len(standing.broken) <= 1:
        return ""  # The answer has the reason, and the errors stand below.
    until_then = ""
    if standing.baseline_ended_early:
        why = f"the baseline did not finish ({words.STATES[standing.baseline.state][0]})"
        if not standing.counted:
            return ""  # The answer has the reason.
        until_then = f"{why.capitalize()}; speeds come from the rounds before that."
    arm = inert(choice_words(planned).arm)
    others = _others(standing, arm, is_search=comparison.spec.kind.has_candidates)
    said = str(answer_words(planned))
    learning = [
        f"**{inert(label)}** {linked('time_to_loss', inert(text))}."
        for label, text in times_to_loss(comparison)
        if text not in said
    ]
    sentences = [until_then, _speeds(standing, planned, comparison.spec), *learning, *others]
    return " ".join(filter(None, sentences))


def _speeds(standing: Standings, planned: Plan, spec: ExperimentSpec) -> Markdown:
    """The sentence about the speeds that count; empty without one."""
    if planned.leading is not None:
        return _leading(planned.leading, planned, standing, spec)
    if not standing.counted:
        return ""
    has_few = planned.answer is not None and planned.answer.reason == "few rounds"
    if spec.kind.has_candidates and planned.subject is not None and has_few:
        result = planned.subject
        return f"{_name(result)} was the best candidate, at {_speed(result)} in only a few rounds."
    at: dict[SpeedVerdict, list[Markdown]] = {}
    for result in standing.counted:
        assert result.speed_verdict is not None
        at.setdefault(result.speed_verdict, []).append(f"{_name(result)} at {_speed(result)}")
    unsure = [
        speed_doubt(result.speedup, result.p_holm)
        for result in standing.counted
        if result.speedup and result.speed_verdict == "unsure"
    ]
    are_all = standing.num_backends == len(standing.counted)
    return none_faster(at, reasons(unsure, DOUBTS), are_all=are_all, choice=choice_words(planned))


def _others(standing: Standings, arm: Markdown, *, is_search: bool) -> list[Markdown]:
    """A sentence for each reason why a speed does not count. A search tries many candidates, so
    once any counts, its headline leaves out those that failed; a note has them. `arm`: the word for
    what is compared."""
    if standing.broken and len(standing.broken) == standing.num_backends:
        first = standing.broken[0]
        return [f"No {arm} can be trusted: {_name(first)}: {_breach(first)}."]
    by_breach: dict[Markdown, list[Markdown]] = {}
    for result in standing.broken:
        by_breach.setdefault(_breach(result), []).append(_name(result))
    sentences = [
        f"{listed(names)} {'does' if len(names) == 1 else 'do'} not count: {why}."
        for why, names in by_breach.items()
    ]
    if is_search and standing.counted:
        return sentences
    ended = [
        f"{_name(result)} ({words.STATES[result.state][0]}"
        + (f", {_speed(result)} until then)" if result.speedup else ")")
        for result in standing.unfinished
    ]
    sentences += [f"{listed(ended)} did not finish."] if ended else []
    idle = [_name(result) for result in standing.uncompiled]
    if idle and len(idle) < standing.num_backends:
        sentences.append(f"Nothing was compiled in {listed(idle)}.")
    missing = [_name(result) for result in standing.unmeasured]
    if not missing:
        return sentences
    yet = "" if all(RunState(result.state).is_final for result in standing.unmeasured) else " yet"
    if len(missing) == standing.num_backends:
        return [f"No {arm} has a speed to compare{yet}."]
    return [*sentences, f"{listed(missing)}: no speed to compare{yet}."]


def none_faster(
    at: Mapping[SpeedVerdict, Sequence[Markdown]],
    why: Markdown,
    *,
    are_all: bool,
    choice: ChoiceWords = COMPILERS,
) -> Markdown:
    """The sentence if no speed is faster. `at`: every speed, as `**a** at 0.80x`, by its verdict;
    `why`: the reasons of inconclusive speeds; `are_all`: whether no backend is left out."""
    arm, base = inert(choice.arm), inert(choice.without)
    if choice is not COMPILERS:
        base = "the baseline"
    if len(at) > 1:
        return f"No {arm} is shown to be faster than {base}: {_by_verdict(at)}."
    ((verdict, backends),) = at.items()
    verb = "is" if len(backends) == 1 else "are"
    if verdict == "unsure":
        text = f"{listed(backends)} {verb} not shown to be faster or slower than {base}"
        return f"{text}: {why}."
    word = "as fast as" if verdict == "same" else "slower than"
    if len(backends) == 1:
        return f"{listed(backends)} is {word} {base}."
    every = f"Every {arm}" if are_all else f"Every {arm} that counts"
    return f"{every} is {word} {base}: {listed(backends)}."


def _by_verdict(at: Mapping[SpeedVerdict, Sequence[Markdown]]) -> Markdown:
    """`**a** at 1.00x is as fast, **b** at 0.68x is slower and **c** at 1.02x is inconclusive`."""
    parts: list[Markdown] = []
    for verdict in VERDICTS:
        word = "as fast" if verdict == "same" else inert(format_verdict(verdict))
        if backends := at.get(verdict, ()):
            parts.append(f"{listed(backends)} {'is' if len(backends) == 1 else 'are'} {word}")
    return joined(parts)


def reasons(doubts: Sequence[SpeedDoubt], texts: Mapping[SpeedDoubt, Markdown]) -> Markdown:
    """The reasons of inconclusive speeds, each once."""
    return joined([texts[doubt] for doubt in dict.fromkeys(doubts)] or [""])


def _leading(best: Result, planned: Plan, standing: Standings, spec: ExperimentSpec) -> Markdown:
    """The sentence about the leading backend. If others are faster too, it speaks of the step only,
    because the fastest step need not mean the shortest training."""
    faster = [result for result in standing.counted if result.speed_verdict == "faster"]
    does = "answers at" if spec.is_inference else "trains at"
    if len(faster) > 1 and not planned.totals:
        does = "has the fastest step at"
    base = "without a compiler" if planned.has_only_compilers else "of the baseline"
    speed = f"{_name(best)} {does} {_speed(best)} the speed {base}"
    text = f"{speed}{_pays(best, planned, spec)}."
    if spec.is_inference:
        return f"{text} The scenario `accuracy` checks whether it gives the same answers."
    answer = planned.answer
    is_answer = answer is not None and answer.backend == best.label and answer.kind == "use"
    parity = best.parity
    if is_answer and not (parity and (parity.band_ended or parity.by_outcome)):
        return text  # The answer says it.
    is_detailed = planned.num_steps is not None and best in (planned.best, planned.subject)
    if is_detailed and parity is not None and parity.by_outcome:
        return text  # `plan_details` says it.
    return f"{text} {_parity_of(best)}"


def _pays(best: Result, planned: Plan, spec: ExperimentSpec) -> Markdown:
    """When compiling pays off; `has paid` only if the run passed the interval's upper end, too."""
    break_even, verdict = best.break_even, best.break_even_verdict
    if break_even is None or verdict is None:
        return ""
    if verdict != "reached" or break_even.steps is None:
        return ", but it is open whether compiling ever pays off"
    after = linked("break_even_steps", inert(break_even_text(best.break_even)))
    latest = break_even.steps if break_even.high is None else max(break_even.steps, break_even.high)
    if latest == float("inf"):
        return f" and may pay for its compiling after {after}"
    if planned.totals and planned.best is None:
        return f" and pays for its compiling only after {after}"
    paid = spec.kind.trains_fully and latest <= best.measured.num_steps * best.batch_times
    return f" and {'has paid' if paid else 'pays'} for its compiling after {after}"


def _parity_of(best: Result) -> Markdown:
    """The sentence about the backend's parity; the warnings have the reasons (`parity_reasons`)."""
    parity = best.parity
    if parity is None:
        return "Whether it learns the same thing was not tested."
    if parity.verdict == "holds" and parity.band_ended:
        last = linked("parity", f"step {parity.last_step_in_band:,}")
        return f"It learns the same thing; single losses were checked up to {last}."
    if parity.verdict == "holds":
        return "It learns the same thing."
    if parity.by_outcome:
        why = inert(str(parity_words(parity)))
        return f"{why[:1].upper()}{why[1:]}."
    if parity.verdict == "nothing learned":
        return "Whether it learns the same thing cannot be tested, as nothing was learned."
    return "Whether it learns the same thing is not known."


def _breach(result: Result) -> Markdown:
    """A short reason why parity is broken; the warnings give the whole reason."""
    parity = result.parity
    by_outcome = parity is not None and parity.by_outcome and parity.verdict != "broken"
    if result.shortfall is not None or by_outcome:
        return sentence(wrong_words(result))
    if parity is None or parity.first_step_outside is None:
        if result.ended_as_wrong:
            return "its losses leave the band of equal trainings"
        return "its answers differ by more than rounding or chance explains"
    step = parity.first_step_outside
    if parity.found_in_band:
        at = linked("first_step_outside", f"at step {step:,}")
        rank = parity.first_rank_outside
        on: Markdown = "" if rank is None else inert(f" on rank {rank}")
        return f"{at} its loss{on} differs by more than rounding explains"
    what = inert("loss" if parity.outside is None else parity.outside.quantity)
    at = linked("first_step_outside", f"step {step:,}")
    return f"from {at} on its {what} differs by more than rounding and chance explain"


def _name(result: Result) -> Markdown:
    return f"**{inert(result.label)}**"


def _speed(result: Result) -> Markdown:
    return linked("speedup", inert(ratio_text(result.speedup)))


VERDICT_CLASSES = {
    "faster": "good",
    "slower": "bad",
    "same": "plain",
    "unsure": "doubtful",
    "holds": "good",
    "as good": "good",
    "better": "good",
    "broken": "bad",
    "worse": "bad",
    "not decided": "doubtful",
    "nothing learned": "doubtful",
    "unknown": "doubtful",
    "failed": "bad",
    "cancelled": "plain",
}
"""CSS class in views/shared/style.css, which has the colours of the theme."""


NEEDS_NO_REASON = ("holds", *get_args(EarlyEnd))


def parity_reasons(results: Sequence[Result], planned: Plan) -> list[Markdown]:
    """Reasons behind parity verdicts, each once, after its runs; none for runs that match or ended
    early, and none that the answer says."""
    answer = str(answer_words(planned))
    labels: dict[Sentence, list[str]] = {}
    for result in results:
        if result.parity is not None and result.parity.verdict not in NEEDS_NO_REASON:
            labels.setdefault(parity_words(result.parity), []).append(result.label)
    parity = linked("parity", "parity")
    return [
        f"**{inert(', '.join(runs))}**, {parity}: {sentence(reason)}."
        for reason, runs in labels.items()
        if str(reason) not in answer
    ]


def noise_text(comparison: Comparison) -> Markdown:
    """The noise floor of this machine, or why there is none."""
    if comparison.noise_floor is None:
        return (
            f"No {linked('noise_floor', 'noise floor')} without a control and at least {MIN_PAIRS} "
            "rounds. Until then a small difference may be chance."
        )
    share = METRICS["noise_floor"].format(comparison.noise_floor)
    return (
        f"{linked('noise_floor', f'Noise floor {share}')}: baseline and control run the same "
        "program, and their speeds differed by up to this much."
    )
