"""An experiment down the ladder as text; sentences that the page shows, too."""

from collections.abc import Callable
from functools import partial

from breakeven.runner.texts import printable
from breakeven.storage.compiling.ladder import FAULTS, Fault, Ladder, RungResult
from breakeven.storage.numbers.formats import DASH, aligned_table, format_seconds
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.sentences import Figure, Sentence, said
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.terminal.parity_words import parity_text, parity_words

NUMBERS_SHOWN = ("step_seconds", "peak_memory_bytes", "compile_seconds")
NO_LADDER = (
    "experiment {!r} has no ladder: fewer than two of its backends are rungs of one. `python -m "
    "runner compare --ladder` runs all rungs"
)
SAID: dict[Fault, str] = {"fails": "fails", "differs": "wrong numbers", "loses": "loses time"}
LONGEST_REASON = 300


def ladder_report(ladder: Ladder) -> str:
    """What goes wrong first, then a row for each rung."""
    rows = [["rung", "run", "state", *(METRICS[name].title for name in _numbers(ladder)),
             "over the rung below", "parity", ""]]  # fmt: skip
    if ladder.baseline is not None:
        own = ladder.baseline
        cells = [METRICS[name].format(own.value(name)) for name in _numbers(ladder)]
        rows.append(["no compiler", own.label, own.state, *cells, DASH, DASH, ""])
    for one in ladder.rungs:
        cells = [METRICS[name].format(one.result.value(name)) for name in _numbers(ladder)]
        rows.append([one.rung.stage, one.result.label, one.result.state, *cells,
                     ratio_text(one.over_below), parity_text(one.result.parity),
                     ", ".join(SAID[fault] for fault in one.faults)])  # fmt: skip
    told = [printable(str(sentence)) for sentence in findings(ladder)]
    return "\n".join([*told, "", *aligned_table(rows, 3)])


def findings(ladder: Ladder) -> list[Sentence]:
    """The first rung of each fault, in a sentence; or that there is none."""
    words: dict[Fault, Callable[[RungResult], Sentence]] = {
        "fails": _fails,
        "differs": _differs,
        "loses": partial(_loses, ladder),
    }
    found = [words[fault](one) for fault in FAULTS if (one := ladder.first(fault)) is not None]
    costliest = ladder.costliest
    if costliest is not None and costliest is not ladder.first("loses"):
        found.append(_loses(ladder, costliest, "rung that loses most"))
    if not found:
        what = "fails, computes wrongly or surely loses time" if ladder.compares_runs else (
            "fails or computes wrongly")  # fmt: skip
        found = [said(f"No rung {what}.")]
    unsure = [one.result.label for one in ladder.rungs if one.verdict == "unsure"]
    if unsure:
        template = "Too uncertain to tell from the rung below: {labels}. More rounds would tell."
        found.append(said(template, labels=", ".join(unsure)))
    if ladder.missing:
        left_out = ", ".join(rung.stage for rung in ladder.missing)
        found.append(said(f"Rungs that this experiment leaves out: {left_out}."))
    return found


def _fails(one: RungResult) -> Sentence:
    why = "" if one.reason is None else f": {one.reason[:LONGEST_REASON]}"
    return said("The first rung that fails is {label} ({stage}){why}", label=one.result.label,
                stage=one.rung.stage, why=f"{why.rstrip('.')}.")  # fmt: skip


def _differs(one: RungResult) -> Sentence:
    parity = one.result.parity
    if parity is None or one.failed_checks:
        why: Sentence = said("{reason}", reason=(one.reason or "")[:LONGEST_REASON])
    else:
        why = parity_words(parity)
    return said(
        "The first rung whose numbers are wrong is {label} ({stage}): {why}.",
        label=one.result.label, stage=one.rung.stage, why=why,
    )  # fmt: skip


def _loses(
    ladder: Ladder, one: RungResult, which: str = "first rung that surely loses time"
) -> Sentence:
    lost = -(one.seconds_gained or 0.0)
    better = ladder.made_up_by(one)
    after = f" {better.result.label} makes up for it." if better else ""
    return said(
        "The {which} is {label} ({stage}): its step takes {seconds} more than that of {below}, "
        "which is {ratio} as fast.{after}",
        which=which, label=one.result.label, stage=one.rung.stage, below=one.below, after=after,
        seconds=Figure("step_seconds", format_seconds(lost)),
        ratio=Figure("over_below", _inverse(one)),
    )  # fmt: skip


def _inverse(one: RungResult) -> str:
    """How many times as fast the rung below is, with the interval."""
    ratio = one.over_below
    assert ratio is not None and ratio.low and ratio.high
    return f"{1 / ratio.median:.2f}x ({1 / ratio.high:.2f} to {1 / ratio.low:.2f})"


def _numbers(ladder: Ladder) -> tuple[str, ...]:
    return NUMBERS_SHOWN if ladder.compares_runs else ()
