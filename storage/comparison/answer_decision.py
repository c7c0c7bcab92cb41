"""The answer of a plan: one judgement for pages, terminal, JSON, reports, lists and gates.

`storage.words.answer_sentence` puts it into one sentence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from breakeven.runner.protocol.endings import COMPILES_TOO_LONG
from breakeven.runner.protocol.states import RunState
from breakeven.runner.texts import duration
from breakeven.storage.comparison.compiler_warnings import CompilerGaveUp, CompilesThroughout
from breakeven.storage.comparison.results import Comparison, Result, Standings
from breakeven.storage.statistics.break_even import BreakEven
from breakeven.storage.statistics.speedups import SpeedDoubt, speed_doubt

AnswerKind = Literal["use", "do not compile", "not decided", "nothing compiled", "nothing worked"]
Reason = Literal[
    "slower",  # no backend is faster
    "length",  # compiling does not pay within the length
    "equal",  # the total is shown as equal to the baseline's
    "break-even",  # the length is inside the interval of the break-even
    "chance",
    "noise",
    "few rounds",
    "no speed",  # no round can be compared
    "learns sooner",  # its steps are not faster, but it reaches the same loss in less time
    "outcome",  # it makes another training, and whether it is as good is open
    "still running",
    "stopped",  # somebody stopped runs, or their process disappeared
    "no baseline",
]
Sameness = Literal[
    "same",
    "as good",
    "better",
    "not decided",
    "unknown",
    "not tested",
    "answers not tested",
    "nothing learned",
]


DOUBTS: dict[SpeedDoubt, Reason] = {"few": "few rounds", "chance": "chance", "margin": "noise"}


@dataclass(frozen=True, kw_only=True)
class GivenUp:
    """Where the compiler gave up in a run."""

    label: str
    place: str | None
    """`train.py:15`; None if unknown."""
    operator: str | None
    """`aten.bincount`; None if the compiler's reason names none."""
    function: str | None
    is_all: bool
    """Whether nothing else was compiled."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What to do for a length of training, or for any length."""

    kind: AnswerKind
    reason: Reason | None = None
    """Why not to compile, or why nothing is decided; None for other kinds."""
    backend: str | None = None
    """Label of the backend to use, or of the one that the reason is about; None if there is no such
    backend."""
    probable: str | None = None
    """If nothing is decided, the run that takes the least time as measured: the backend's label, or
    the baseline's for no compiler. None if nothing was measured, and for an open outcome."""
    more_rounds: int | None = None
    """Further rounds that would decide; None if unknown, or if no number below a tenfold would."""
    sameness: Sameness | None = None
    """Whether `backend` learns the same; None without a backend."""
    checked_steps: int | None = None
    """Steps of the training in which that was seen, if it was measured for a plan of more steps."""
    is_equal: bool = False
    """Whether its total is shown as equal to that without a compiler."""
    given_up: tuple[GivenUp, ...] = ()
    """Where the compiler gave up: in the backend, or in all if nothing was compiled."""
    failed: tuple[str, ...] = ()
    """If nothing worked, labels of the runs that ended early."""
    wrong: tuple[str, ...] = ()
    """If nothing worked, labels of the runs whose training is wrong."""


def sameness_of(comparison: Comparison, result: Result) -> Sameness:
    """Whether a backend that is not wrong learns the same, as far as known."""
    parity = result.parity
    if comparison.spec.is_inference:
        return "answers not tested"
    if parity is None:
        return "not tested"
    match parity.verdict:
        case "holds":
            return "same"
        case "as good" | "better" | "not decided" | "nothing learned":
            return parity.verdict
    return "unknown"


def shown_as_equal(seconds: float | None, other: float | None) -> bool:
    """Whether two totals, in seconds, read the same wherever they are shown."""
    return seconds is not None and other is not None and duration(seconds) == duration(other)


def may_pay(result: Result, num_steps: int | None, step_seconds: float | None) -> bool:
    """Whether it is open if a backend that may be used takes less time than the baseline for so
    many steps, or for any number. `step_seconds`: the baseline's.

    An inconclusive speed is not open if even the best end of its interval, or steps of no duration
    without an interval, could not repay the compiling.
    """
    even = result.break_even
    if result.pays:
        if result.has_open_outcome:
            return num_steps is None or even is None or not _surely_behind(num_steps, even)
        return num_steps is not None and even is not None and not is_outside(num_steps, even)
    if result.speed_verdict != "unsure":
        return False
    best = result.speedup.high if result.speedup else None
    if best is not None and best <= 1:
        return False
    compiling = even.further_seconds if even else result.measured.compile_seconds
    if num_steps is None or step_seconds is None or compiling is None:
        return True
    return compiling < num_steps * step_seconds * (1 if best is None else 1 - 1 / best)


def _surely_behind(num_steps: int, break_even: BreakEven) -> bool:
    if break_even.low is None or break_even.high is None:
        return False
    is_lead = break_even.verdict == "until"
    return num_steps >= break_even.high if is_lead else num_steps <= break_even.low


def is_outside(num_steps: int, break_even: BreakEven) -> bool:
    """Whether a length is surely before or surely after a break-even, or the end of a lead."""
    if break_even.low is None or break_even.high is None:
        return break_even.verdict == "reached"
    return not break_even.low < num_steps < break_even.high


def answer(
    comparison: Comparison,
    standing: Standings,
    best: Result | None,
    sooner: Result | None,
    num_steps: int | None,
    totals: Mapping[str, float],
) -> Answer | None:
    """The answer for a length, or for any; None without a backend to judge. `best`: the backend
    that surely pays and takes the least time; `sooner`: the arm that learns as much in less time,
    though its steps are not faster; `totals`: seconds by label."""
    if not comparison.spec.kind.has_speedups:
        return None
    if not standing.num_backends:
        return _of_search_without_rival(comparison, standing)
    if standing.baseline is None or standing.compares_nothing:
        return _without_baseline(standing)
    base = totals.get(comparison.baseline)
    if best is not None:
        return _about_best(comparison, best, shown_as_equal(totals.get(best.label), base))
    if sooner is not None:
        decided = _undecided(comparison, sooner, num_steps, totals)
        return replace(decided, reason="learns sooner", probable=None, more_rounds=None)
    step = standing.baseline.measured.step_seconds
    undecided = [result for result in standing.counted if may_pay(result, num_steps, step)]
    if undecided:
        first = min(
            undecided,
            key=lambda result: totals.get(result.label, result.measured.step_seconds or 0),
        )
        return _undecided(comparison, first, num_steps, totals)
    throughout = _compiled_throughout(comparison)
    unmeasured = [result for result in standing.unmeasured if result.label not in throughout]
    if unmeasured:
        is_over = all(RunState(result.state).is_final for result in unmeasured)
        return Answer(
            kind="not decided",
            reason="no speed" if is_over else "still running",
            backend=unmeasured[0].label,
        )
    if standing.counted or throughout:
        return _not_to_compile(comparison, standing, totals)
    return _nothing(comparison, standing)


def _of_search_without_rival(comparison: Comparison, standing: Standings) -> Answer | None:
    """The answer of a finished search that timed no candidate: compiling each took too long, or the
    budget ended before. None without backends elsewhere."""
    is_over = all(RunState(result.state).is_final for result in comparison.results)
    has_baseline = standing.baseline is not None and not standing.baseline_ended_early
    if not (comparison.spec.kind.has_candidates and is_over and has_baseline):
        return None
    for result in comparison.results:
        if result.role == "backend" and not (result.reason or "").startswith(COMPILES_TOO_LONG):
            return Answer(kind="not decided", reason="no speed", backend=result.label)
    return Answer(kind="do not compile", reason="slower")


def _checked_steps(comparison: Comparison, result: Result) -> int | None:
    spec, steps = comparison.spec, result.measured.num_steps
    return steps if spec.is_until_decided and steps < (spec.plan.steps or 0) else None


def _about_best(comparison: Comparison, best: Result, is_equal: bool) -> Answer:
    return Answer(
        kind="do not compile" if is_equal else "use",
        reason="equal" if is_equal else None,
        backend=best.label,
        sameness=sameness_of(comparison, best),
        checked_steps=_checked_steps(comparison, best),
        is_equal=is_equal,
        given_up=_given_up_by(comparison, [best]),
    )


def _undecided(
    comparison: Comparison, result: Result, num_steps: int | None, totals: Mapping[str, float]
) -> Answer:
    own_total, base = totals.get(result.label), totals.get(comparison.baseline)
    reason = _open_question(result)
    is_faster = None
    if own_total is not None and base is not None:
        is_faster = own_total < base
    elif num_steps is None and result.speedup is not None:
        is_faster = result.speedup.median > 1
    # Times do not say which of two trainings is better.
    is_probable = is_faster is not None and reason != "outcome"
    return Answer(
        kind="not decided",
        reason=reason,
        backend=result.label,
        probable=(result.label if is_faster else comparison.baseline) if is_probable else None,
        more_rounds=result.more_rounds,
        sameness=sameness_of(comparison, result),
        is_equal=shown_as_equal(own_total, base),
        given_up=_given_up_by(comparison, [result]),
    )


def _open_question(result: Result) -> Reason:
    """Why a backend may or may not be used."""
    if result.pays and result.has_open_outcome:
        return "outcome"
    if result.speed_verdict != "unsure":
        return "break-even"
    return DOUBTS[speed_doubt(result.speedup, result.p_holm) if result.speedup else "few"]


def _not_to_compile(
    comparison: Comparison, standing: Standings, totals: Mapping[str, float]
) -> Answer:
    base = totals.get(comparison.baseline)

    def total(result: Result) -> float:
        return totals.get(result.label, 0.0)

    nearest = min(standing.counted, key=total, default=None)
    if nearest is None:
        return Answer(kind="do not compile", reason="slower")
    faster = [result for result in standing.counted if result.speed_verdict == "faster"]
    is_equal = shown_as_equal(totals.get(nearest.label), base)
    may_pay_later = faster or [
        result
        for result in standing.counted
        if result.speed_verdict == "unsure" or result.break_even_verdict == "until"
    ]
    reason: Reason = "equal" if is_equal else "length" if may_pay_later else "slower"
    subject = nearest if reason == "equal" or not may_pay_later else min(may_pay_later, key=total)
    return Answer(
        kind="do not compile",
        reason=reason,
        is_equal=is_equal,
        backend=subject.label,
        sameness=sameness_of(comparison, subject),
        given_up=_given_up_by(comparison, [subject]),
    )


def _without_baseline(standing: Standings) -> Answer:
    baseline = standing.baseline
    has_failed = baseline is not None and RunState(baseline.state).is_failed
    others = standing.others
    if has_failed and others and all(RunState(result.state).is_failed for result in others):
        failed = (baseline, *others) if baseline else others
        return Answer(kind="nothing worked", failed=tuple(result.label for result in failed))
    return Answer(kind="not decided", reason="no baseline")


def _nothing(comparison: Comparison, standing: Standings) -> Answer:
    """The answer if no backend has a speed that counts, and none will have one."""
    stopped = [
        result
        for result in standing.unfinished
        if RunState(result.state) in (RunState.CANCELLED, RunState.LOST)
    ]
    if standing.uncompiled:
        return Answer(
            kind="nothing compiled",
            backend=standing.uncompiled[0].label,
            given_up=_given_up_by(comparison, standing.uncompiled),
        )
    if stopped:
        return Answer(kind="not decided", reason="stopped", backend=stopped[0].label)
    first = (*standing.broken, *standing.unfinished)[0]
    return Answer(
        kind="nothing worked",
        backend=first.label,
        failed=tuple(result.label for result in standing.unfinished),
        wrong=tuple(result.label for result in standing.broken),
    )


def _given_up_by(comparison: Comparison, results: Sequence[Result]) -> tuple[GivenUp, ...]:
    """Where the compiler first gave up in each run, as the warnings record it."""
    labels = {result.label for result in results}
    return tuple(
        GivenUp(
            label=warning.run,
            place=function.place,
            operator=function.operator,
            function=function.name,
            is_all=warning.is_all,
        )
        for warning in comparison.warnings
        if isinstance(warning, CompilerGaveUp) and warning.run in labels
        for function in warning.functions[:1]
    )


def _compiled_throughout(comparison: Comparison) -> set[str]:
    """Labels of runs that compiled until their end, and took longer than the baseline so."""
    return {
        warning.run
        for warning in comparison.warnings
        if isinstance(warning, CompilesThroughout) and warning.is_slow
    }
