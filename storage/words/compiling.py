"""Texts of the cost of each compiler stage, and of compiler differences between two runs."""

from collections.abc import Callable, Sequence
from functools import partial

from breakeven.storage.compiling.ladder import FAULTS, Fault, Ladder, RungResult
from breakeven.storage.compiling.two_runs import RESULT_KINDS
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.sentences import Sentence, fill
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
        rows.append(["no compiler", own.label, own.state, *cells, DASH, DASH, ""])
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
        sentences = [
            fill(
                "No stage fails<{is_timed:!} or computes wrong numbers><{is_timed:?}, "
                "computes wrong numbers or is slower>.",
                is_timed=ladder.is_timed,
            )
        ]
    unsure = [
        rung_result.result.label for rung_result in ladder.rungs if rung_result.verdict == "unsure"
    ]
    if unsure:
        sentences.append(
            fill(
                "Not distinguishable from the previous stage: {labels}. More rounds would help.",
                labels=unsure,
            )
        )
    if ladder.missing:
        sentences.append(
            fill(
                "Stages that this experiment leaves out: {stages}.",
                stages=[rung.stage for rung in ladder.missing],
            )
        )
    return sentences


def _fails(rung: RungResult) -> Sentence:
    reason = (rung.reason or "")[:LONGEST_REASON].rstrip(".")
    return fill(
        "First stage that fails: {label} ({stage})<: {reason}>.",
        label=rung.result.label,
        stage=rung.rung.stage,
        reason=reason,
    )


def _differs(rung: RungResult) -> Sentence:
    parity = rung.result.parity
    is_checked = parity is None or rung.failed_checks
    why = (
        (rung.reason or "")[:LONGEST_REASON]
        if parity is None or is_checked
        else parity_words(parity)
    )
    return fill(
        "First stage with wrong numbers: {label} ({stage}): {why}.",
        label=rung.result.label,
        stage=rung.rung.stage,
        why=why,
    )


def _loses(ladder: Ladder, title: str, rung: RungResult) -> Sentence:
    ratio, better = rung.over_below, ladder.made_up_by(rung)
    assert ratio is not None and ratio.low and ratio.high
    return fill(
        "{title}: {label} ({stage}). A step takes {seconds:step_seconds} more than with {below}, "
        "which is [{times:.2f}x ({low:.2f} to {high:.2f})](over_below) as fast.< {better} makes up "
        "for this.>",
        title=title,
        label=rung.result.label,
        stage=rung.rung.stage,
        below=rung.below,
        seconds=-(rung.seconds_gained or 0.0),
        better=better.result.label if better else "",
        times=1 / ratio.median,
        low=1 / ratio.high,
        high=1 / ratio.low,
    )


def _numbers(ladder: Ladder) -> tuple[str, ...]:
    return NUMBERS_SHOWN if ladder.is_timed else ()
