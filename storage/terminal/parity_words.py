"""Parity in words: what a verdict rests on, one sentence for each kind of finding.

The terminal prints them; pages show the same with every number leading to its definition.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from breakeven.runner.texts import duration
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.numbers.sentences import Figure, Sentence, Words, figure, said
from breakeven.storage.statistics.outcomes import UNTOLD_LIMIT, Quantity, Reading
from breakeven.storage.statistics.parity import LEAD_STEPS, FindingKind, Parity, ParityFinding
from breakeven.storage.statistics.random_numbers import DropoutFault
from breakeven.storage.terminal.ending_words import ending_words

READ: dict[Quantity, str] = {
    "loss": "loss",
    "evaluation loss": "eval_loss",
    "accuracy": "accuracy",
}
"""Names of the quantities in METRICS."""
AGREEING: tuple[FindingKind, ...] = (
    "dropout wrong", "redraws differ", "draws in inference", "inference wrong",
    "answers wrong",
)  # fmt: skip
"""Findings that break parity by themselves and agree with what broke it before."""
BREAKING: tuple[FindingKind, ...] = ("outside band", "not finite", "outside later", *AGREEING)
"""Findings that break parity by themselves."""
LINKS: dict[FindingKind, str] = {
    "outside later": ", but later ",
    "dropout": ", ",
    "other numbers": ", ",
    "rehearsal": "; ",
    "no rehearsal": "; ",
}
"""What stands before a finding that is not the first."""


def parity_text(parity: Parity | None) -> str:
    """The verdict as a table has room for it, with where it broke and how far single losses could
    tell: `broken at step 12` by a loss, `broken from step 150` by a window of them, `broken after
    200 steps` by an evaluation; `holds (losses to step 240)` where the band ended there.
    """
    if parity is None:
        return DASH
    if parity.outside is not None and parity.outside.quantity != "loss":
        return f"broken after {parity.first_step_outside:,} steps"
    if parity.first_step_outside is not None:
        return (
            f"broken {'at' if parity.found_in_band else 'from'} step {parity.first_step_outside:,}"
        )
    if parity.verdict == "holds" and parity.band_ended:
        return f"holds (losses to step {parity.last_step_in_band:,})"
    return parity.verdict


def parity_words(parity: Parity) -> Sentence:
    """What the verdict rests on, in one sentence."""
    so_far = Sentence()
    broken = False
    for finding in parity.findings:
        words = WORDS[finding.kind](finding.figures)
        link = _link(finding, broken) if so_far.parts else ""
        so_far = said("{so_far}{link}{words}", so_far=so_far, link=link, words=words)
        broken = broken or _breaks(finding)
    return so_far


def _breaks(finding: ParityFinding) -> bool:
    is_rehearsal = finding.kind == "rehearsal"
    return finding.figures["verdict"] == "broken" if is_rehearsal else finding.kind in BREAKING


def _link(finding: ParityFinding, broken: bool) -> str:
    if broken and finding.kind in AGREEING:
        return ", and "
    return LINKS.get(finding.kind, ", but ")


def _plain(text: str) -> Callable[[Mapping[str, Any]], Words]:
    return lambda _figures: text


def _inside_band(figures: Mapping[str, Any]) -> Sentence:
    of_all = f" of {figures['num_steps']}" if figures["num_steps"] else ""  # a script may not know
    return said(
        "the loss stays within {times} over the first {steps}",
        times=Figure("max_ratio_to_band", f"{figures['max_ratio_to_band']:.2g} x the band"),
        steps=Figure("num_steps", f"{figures['band_steps']}{of_all} steps"),
    )


def _ended_early(figures: Mapping[str, Any]) -> Sentence:
    who = "it" if figures["role"] == "backend" else f"the {figures['role']}"
    return said("{who} {ended}", who=who, ended=ending_words(figures))


def _outside_band(figures: Mapping[str, Any]) -> Sentence:
    highest = figures["max_ratio_to_band"]
    times = Figure("max_ratio_to_band", f"{highest:.3g} x the band")
    extreme = "is not finite" if math.isinf(highest) else said("is up to {x} off", x=times)
    return said("the loss leaves the band at {at} and {extreme}", at=_at(figures), extreme=extreme)


def _hardly_outside(figures: Mapping[str, Any]) -> Sentence:
    return said(
        "{outside}: too much to be called the same, and too little to call it a fault, since how "
        "far a control strays is chance, too; {remedy}",
        outside=_outside_band(figures),
        remedy=_more_controls(figures),
    )


def _more_controls(figures: Mapping[str, Any]) -> str:
    """What would tell, and what it takes as far as that is known."""
    number, seconds = figures.get("num_controls", 1), figures.get("control_seconds")
    cost = f", each of which trains for about {duration(seconds)}" if seconds else ""
    return f"repeat it with more controls (--controls {max(4, 2 * number)}){cost}"


def _other_inputs(figures: Mapping[str, Any]) -> Sentence:
    return said(
        "the runs saw other data {since}{why}", since=_since(figures), why=_culprits(figures)
    )


def _not_repeatable(figures: Mapping[str, Any]) -> Sentence:
    return said(
        "without a compiler, too, two runs of the script saw other data {since}{why}",
        since=_since(figures), why=_culprits(figures),
    )  # fmt: skip


def _since(figures: Mapping[str, Any]) -> Sentence:
    """Inputs are looked at in each step at first, and later at the beginning of each block."""
    first = Figure("step", f"step {figures['first_step']}")
    if figures["last_alike"] is None or figures["last_alike"] == figures["first_step"] - 1:
        return said("from {first} on", first=first)
    alike = Figure("step", f"step {figures['last_alike']}")
    return said("from {first} on or earlier, but not before {alike}", first=first, alike=alike)


def _culprits(figures: Mapping[str, Any]) -> str:
    """The usual ones, the likeliest first; of generators the one that stood elsewhere says who drew
    otherwise."""
    first = (
        ". The script's data may depend on what the model answers, as in reinforcement learning: "
        "rounding changes answers, and recorded data would not change with them. "
    )
    if generators := figures["generators"]:
        return (
            f"{first}Or code draws more random numbers in one run than in another, or seeds itself "
            f"by the clock: those of {', '.join(generators)} had been drawn otherwise"
        )
    return (
        f"{first}Or, as all generators stood alike, a worker of a data loader seeds itself, or the "
        "script takes the clock, os.urandom, files in the order of a folder, or a set of objects"
    )


def _not_finite(figures: Mapping[str, Any]) -> Sentence:
    return said("the loss is not finite at {at}, where the baseline's is", at=_at(figures))


def _at(figures: Mapping[str, Any]) -> Figure:
    return Figure("first_step_outside", f"step {figures['first_step_outside']}")


def _outside_later(figures: Mapping[str, Any]) -> Sentence:
    reading: Reading = figures["reading"]
    if not math.isfinite(reading.value):
        return _reading(reading)
    if math.isinf(reading.interval):
        return said(
            f"{{found}}, which is higher by more than {UNTOLD_LIMIT:g} times all that was learned "
            "({allowed})",
            found=_reading(reading),
            allowed=_size(reading, reading.allowed),
        )
    return said(
        "{found}, and rounding and chance explain a difference of {allowed} at most",
        found=_reading(reading),
        allowed=_size(reading, reading.allowed),
    )


def _too_far_apart(figures: Mapping[str, Any]) -> Sentence:
    reading: Reading = figures["reading"]
    if math.isinf(reading.interval):
        return said(
            "{found}: too much to be called the same, while nobody knows how far other random "
            "numbers alone drive equal trainings apart; repeat it without dropout "
            "(model.dropout = off)",
            found=_reading(reading),
        )
    return said(
        "{found}: too much to be called the same, while the controls are too few, or stray too "
        "far, to call it a fault (up to {allowed}); {remedy}",
        found=_reading(reading),
        allowed=_size(reading, reading.allowed),
        remedy=_more_controls(figures),
    )


def _reading(reading: Reading) -> Sentence:
    where = Figure("num_steps", f"after {reading.last_step} steps")
    found = said("{where} the {quantity}", where=where, quantity=reading.quantity)
    if reading.quantity == "loss":
        steps = Figure("step", f"steps {reading.first_step} to {reading.last_step}")
        found = said("the mean loss of {steps}", steps=steps)
    return said("{found} is {value}, that of equal trainings {expected}", found=found,
                value=_size(reading, reading.value),
                expected=_size(reading, reading.expected))  # fmt: skip


def _size(reading: Reading, value: float) -> Figure:
    return figure(READ[reading.quantity], value)


def _rehearsal(figures: Mapping[str, Any]) -> Sentence:
    if figures["verdict"] == "holds":
        return said("without dropout {words}", words=_inside_band(figures))
    outside = said("without dropout {words}", words=_outside_band(figures))
    if figures["verdict"] == "broken":
        return outside
    return said(
        "{outside}: too much to be called the same, and too little to call it a fault; repeat it "
        "without dropout and with more controls (model.dropout = off, --controls 4)",
        outside=outside,
    )


def _dropout_wrong(figures: Mapping[str, Any]) -> str:
    fault: DropoutFault = figures["fault"]
    others = figures["count"] - 1
    more = f", and {others} more of them are wrong" if others else ""
    where = ", in attention" if fault.operation == "attention" else ""
    which = f"dropout {fault.number + 1} of {fault.num_dropouts} (p = {fault.p:g}{where})"
    match fault.what:
        case "share":
            wrong = f"drops {100 * fault.value:.1f} % instead of {100 * fault.expected:.1f} %"
        case "scale":
            wrong = f"makes a mean of {fault.value:.3f} of ones instead of {fault.expected:.3f}"
        case "backward":
            wrong = "drops other numbers in backward than in forward"
    return f"{which} {wrong}{more}"


def _redraws_differ(figures: Mapping[str, Any]) -> str:
    tensor, size = figures["tensor"], figures["size"]
    of = "the weights" if tensor is None else tensor
    differ = (
        f"change {of} in another direction" if figures["what"] == "direction"
        else f"stray {size:.2g} times as far in what they change of {of}"
    )  # fmt: skip
    return (
        f"from the state at the end its steps {differ} than steps without a compiler, more clearly "
        f"than in any other of {figures['num_divisions']:,} ways to divide them"
    )


def _inference_wrong(figures: Mapping[str, Any]) -> Sentence:
    both = f"{figures['value_compiled']:.6g} vs {figures['value']:.6g}"
    return said(
        "its compiled model answers differently from the same weights without a compiler "
        "({name} {both} at {step}, {split} split): inference is wrong",
        name=figures["name"],
        both=Figure("inference_gap", both),
        step=Figure("step", f"step {figures['step']}"),
        split=figures["split"],
    )


def _answers_wrong(figures: Mapping[str, Any]) -> Sentence:
    """Of classes, how many are others, if any are; else how far the numbers are apart."""
    split, flipped = figures["split"], int(figures["wrong_classes"])
    several = f"samples {', '.join(map(str, figures['samples']))}"
    named = several if len(figures["samples"]) > 1 else several.replace("samples", "sample")
    off = figures["difference"]
    return said(
        "its compiled model answers {count} otherwise than the same weights without a compiler "
        "{at} ({named} of the {split} split; {what} {off}, where rounding explains {tolerance}): "
        "inference is wrong",
        count=Figure("answers", f"{flipped or int(figures['wrong']):,} of "
                     f"{int(figures['compared']):,} targets"),
        at=Figure("step", f"at step {int(figures['step'])}"),
        named=Figure("answers", named),
        split=split,
        what="another class, with logits up to" if flipped else "the same class, but numbers up to",
        off=Figure("answers", f"{off:.3g} off" if math.isfinite(off) else "not finite"),
        tolerance=Figure("answers", f"{figures['tolerance']:.2g}"),
    )  # fmt: skip


WORDS: dict[FindingKind, Callable[[Mapping[str, Any]], Words]] = {
    "no baseline": _plain("there is no baseline to compare with"),
    "not begun": _plain("it has not begun to train"),
    "other weights": _plain("its weights are not those that the baseline began with"),
    "other samples": _plain("its samples are not those that the baseline began with"),
    "other inputs": _other_inputs,
    "not repeatable": _not_repeatable,
    "no control": _plain(
        "without a control nobody knows how far rounding alone drives losses apart"
    ),
    "no common step": _plain("no step was done by baseline, control and backend alike"),
    "control too short": _plain(
        f"losses can be judged once the control has done {LEAD_STEPS} steps more"
    ),
    "no band": _plain("rounding alone moves the loss far from the first step on"),
    "inside band": _inside_band,
    "outside band": _outside_band,
    "hardly outside": _hardly_outside,
    "not finite": _not_finite,
    "outside later": _outside_later,
    "too far apart": _too_far_apart,
    "nothing learned": _plain(
        "the baseline learned nothing that a broken backend could have missed; train longer"
    ),
    "dropout": _plain(
        "as it does where a compiler draws other random numbers for dropout than are drawn without "
        "one; whether this one does is found out after a training, and is not recorded here"
    ),
    "other numbers": _plain(
        "as it does where compiled code draws other random numbers than the script does without a "
        "compiler, for dropout say: start the script without dropout to tell that from a fault"
    ),
    "own numbers": _plain("it draws other random numbers than are drawn without a compiler"),
    "rehearsal": _rehearsal,
    "no rehearsal": _plain("no step without them could be compared"),
    "dropout wrong": _dropout_wrong,
    "redraws differ": _redraws_differ,
    "draws in inference": _plain(
        "its compiled model draws random numbers in inference: the same samples are answered "
        "differently each time"
    ),
    "inference wrong": _inference_wrong,
    "answers wrong": _answers_wrong,
    "ended early": _ended_early,
}
