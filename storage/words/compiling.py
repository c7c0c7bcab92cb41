"""Texts of the cost of each compiler stage, and of compiler differences between two runs."""

from collections.abc import Callable, Sequence
from functools import partial

from breakeven.storage.compiling.ladder import FAULTS, Fault, Ladder, RungResult
from breakeven.storage.compiling.two_runs import RESULT_KINDS
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.sentences import Figure, Sentence, Words, figure, say
from breakeven.storage.side_by_side.sides import Differing
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.words.parity import parity_text, parity_words

NUMBERS_SHOWN = ("step_seconds", "peak_memory_bytes", "compile_seconds")
NO_LADDER = (
    "experiment {!r} has no ladder: fewer than two of its backends are stages of one. `breakeven "
    "compare --ladder` runs all stages"
)
FAULT_WORDS: dict[Fault, str] = {"fails": "fails", "differs": "wrong numbers", "loses": "slower"}
LONGEST_REASON = 300
NOTHING = "The compiler had the same input and did the same in both runs."
SAME_WORK = "The compiler did the same in both runs; its input differs."


def same_text(differences: Sequence[Differing]) -> str:
    """A sentence if nothing differs, or only the compiler's input; empty if its results differ."""
    if not differences:
        return NOTHING
    return "" if any(row.kind in RESULT_KINDS for row in differences) else SAME_WORK


def ladder_rows(ladder: Ladder) -> list[list[str]]:
    """Titles, and a row for each stage."""
    rows = [
        [
            "stage",
            "run",
            "state",
            *(METRICS[name].title for name in _numbers(ladder)),
            "over the previous stage",
            "parity",
            "",
        ]
    ]
    if ladder.baseline is not None:
        own = ladder.baseline
        cells = [METRICS[name].format(own.value(name)) for name in _numbers(ladder)]
        rows.append([own.backend or "no compiler", own.label, own.state, *cells, DASH, DASH, ""])
    for rung in ladder.rungs:
        cells = [METRICS[name].format(rung.result.value(name)) for name in _numbers(ladder)]
        rows.append(
            [
                rung.rung.stage,
                rung.result.label,
                rung.result.state,
                *cells,
                ratio_text(rung.over_below),
                parity_text(rung.result.parity),
                ", ".join(FAULT_WORDS[fault] for fault in rung.faults),
            ]
        )
    return rows


def findings(ladder: Ladder) -> list[Sentence]:
    """A sentence on the first stage with each fault, or that there is none."""
    words: dict[Fault, Callable[[RungResult], Sentence]] = {
        "fails": _fails,
        "differs": _differs,
        "loses": partial(_loses, ladder, "First stage that is slower"),
    }
    sentences = [
        words[fault](rung_result)
        for fault in FAULTS
        if (rung_result := ladder.first(fault)) is not None
    ]
    costliest = ladder.costliest
    if costliest is not None and costliest is not ladder.first("loses"):
        sentences.append(_loses(ladder, "Stage that costs most", costliest))
    if not sentences:
        others = ", computes wrong numbers or is slower"
        sentences.append(
            say(f"No stage fails{others if ladder.is_timed else ' or computes wrong numbers'}.")
        )
    unsure = [rung.result.label for rung in ladder.rungs if rung.verdict == "unsure"]
    if unsure:
        labels = ", ".join(unsure)
        sentences.append(
            say(f"Not distinguishable from the previous stage: {labels}. More rounds would help.")
        )
    if ladder.missing:
        stages = ", ".join(rung.stage for rung in ladder.missing)
        sentences.append(say(f"Stages that this experiment leaves out: {stages}."))
    return sentences


def _fails(rung: RungResult) -> Sentence:
    reason = (rung.reason or "")[:LONGEST_REASON].rstrip(".")
    why = f": {reason}" if reason else ""
    return say(f"First stage that fails: {rung.result.label} ({rung.rung.stage}){why}.")


def _differs(rung: RungResult) -> Sentence:
    parity = rung.result.parity
    why: Words = (rung.reason or "")[:LONGEST_REASON]
    if parity is not None and not rung.failed_checks:
        why = parity_words(parity)
    return say(
        f"First stage with wrong numbers: {rung.result.label} ({rung.rung.stage}): ", why, "."
    )


def _loses(ladder: Ladder, title: str, rung: RungResult) -> Sentence:
    ratio, better = rung.over_below, ladder.made_up_by(rung)
    assert ratio is not None and ratio.low and ratio.high
    times = f"{1 / ratio.median:.2f}x ({1 / ratio.high:.2f} to {1 / ratio.low:.2f})"
    return say(
        f"{title}: {rung.result.label} ({rung.rung.stage}). A step takes ",
        figure("step_seconds", -(rung.seconds_gained or 0.0)),
        f" more than with {rung.below}, which is ",
        Figure("over_below", times),
        f" as fast.{f' {better.result.label} makes up for this.' if better else ''}",
    )


def _numbers(ladder: Ladder) -> tuple[str, ...]:
    return NUMBERS_SHOWN if ladder.is_timed else ()
