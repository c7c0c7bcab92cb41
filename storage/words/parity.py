"""Texts of parity: one sentence for each kind of finding.

The terminal prints the sentences; pages and reports link every number to its definition.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from breakeven.runner.judged_outcome import UNTOLD_LIMIT, Outcome, Quantity
from breakeven.runner.loss_band import LEAD_STEPS
from breakeven.runner.specs.experiment_fields import CONTROLS_FOR_WORSE
from breakeven.runner.texts import duration
from breakeven.storage.comparison.results import Result
from breakeven.storage.comparison.warnings import ending_words
from breakeven.storage.numbers.formats import DASH, format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.sentences import Figure, Sentence, Words, figure, say
from breakeven.storage.statistics.outcomes import Reading
from breakeven.storage.statistics.parity import (
    FAULTS_BESIDE_LOSSES,
    FindingKind,
    Parity,
    ParityFinding,
)
from breakeven.storage.statistics.random_numbers import DropoutFault

READ: dict[Quantity, str] = {"loss": "loss", "evaluation loss": "eval_loss", "accuracy": "accuracy"}
"""Names of the quantities in METRICS."""
BREAKING: tuple[FindingKind, ...] = (
    "outside band",
    "not finite",
    "outside later",
    *FAULTS_BESIDE_LOSSES,
)
"""Findings that break parity by themselves."""
LINKS: dict[FindingKind, str] = {
    "outside later": ", but later ",
    "dropout": ", ",
    "other numbers": ", ",
    "rehearsal": "; ",
    "no rehearsal": "; ",
    "outcome": "; ",
    "also worse": ", and ",
    "not over": "; ",
}
"""Text between a finding and the one before; `, but ` for all other kinds."""
SETTING_NAMES = {"lr": "learning rates", "momentum": "momenta", "weight_decay": "weight decays"}
"""Words for settings of optimizers."""
Facts = Mapping[str, Any]
"""The figures of a finding."""


def parity_text(parity: Parity | None) -> str:
    """The verdict for a table, with the step of the fault: `broken at step 12` by a single loss,
    `broken from step 150` by a window of losses, `broken after 200 steps` by an evaluation. If the
    band ended early, it has the last step of the band: `matches (checked to step 240)`. Another
    training is `as good`, `better`, `worse` or `not decided`.
    """
    if parity is None:
        return DASH
    if parity.by_outcome and parity.verdict != "broken":
        return format_verdict(parity.verdict)
    if parity.outside is not None and parity.outside.quantity != "loss":
        return f"broken after {parity.first_step_outside:,} steps"
    if parity.first_step_outside is not None:
        at = "at" if parity.found_in_band else "from"
        rank = parity.first_rank_outside
        on = "" if rank is None else f" on rank {rank}"
        return f"broken {at} step {parity.first_step_outside:,}{on}"
    if parity.verdict == "holds" and parity.band_ended:
        return f"matches (checked to step {parity.last_step_in_band:,})"
    return format_verdict(parity.verdict)


def parity_words(parity: Parity) -> Sentence:
    """The reasons of the verdict in one sentence."""
    so_far = Sentence()
    broken = False
    for finding in parity.findings:
        link = _link(finding, broken) if so_far.parts else ""
        so_far = say(so_far, link, _reason(finding))
        broken = broken or _breaks(finding)
    return so_far


def learning_words(result: Result) -> Sentence:
    """How near a run's losses are to those of equal trainings, or why that is not known or broken;
    empty for a run that is not judged."""
    parity = result.parity
    if parity is None:
        return Sentence()
    ratio, last = parity.max_ratio_to_band, parity.last_step_in_band
    if parity.verdict != "holds" or ratio is None or last is None:
        why = parity_words(parity)
        return say(f"{format_verdict(parity.verdict)}: ", why, ".")
    near = Figure("parity", f"{ratio:.2f} of what rounding does")
    steps = Figure("num_steps", f"{last + 1:,} of {result.measured.num_steps:,} steps")
    return say("learned the same: within ", near, " to ", steps, ".")


def wrong_words(result: Result) -> Sentence:
    """Why a result is wrong (`Result.is_wrong`)."""
    worse, parity = result.shortfall, result.parity
    if worse is not None:
        return say(
            _instead(worse.quantity, worse.value, worse.expected),
            ", and it is not known whether it learns the same",
        )
    if parity is not None and (parity.is_wrong or parity.seems_worse):
        return parity_words(parity)
    return say("its losses leave the band of equal trainings")


def _instead(name: str, value: float, expected: float) -> Sentence:
    """`its accuracy is 94.5 % instead of 94.0 %`."""
    title = METRICS[name].title.lower()
    return say(f"its {title} is ", figure(name, value), " instead of ", figure(name, expected))


def _breaks(finding: ParityFinding) -> bool:
    is_rehearsal = finding.kind == "rehearsal"
    return finding.figures["verdict"] == "broken" if is_rehearsal else finding.kind in BREAKING


def _link(finding: ParityFinding, broken: bool) -> str:
    if broken and finding.kind in FAULTS_BESIDE_LOSSES:
        return ", and "
    return LINKS.get(finding.kind, ", but ")


def _reason(finding: ParityFinding) -> Sentence:
    kind = finding.kind
    return say(FIXED[kind]) if kind in FIXED else REASONS[kind](finding.figures)


FIXED: dict[FindingKind, str] = {
    "no baseline": "there is no baseline to compare with",
    "not begun": "it has not begun to train",
    "other weights": "its initial weights are not the baseline's",
    "no losses": "no loss was recorded: pass it to breakeven.step(loss), or nothing can be "
    "compared",
    "no control": "without a control it is not known how far rounding alone drives losses apart",
    "not over": "it is another training, judged by its outcome at the end",
    "no common step": "baseline, control and backend have no step in common",
    "control too short": f"losses can be judged once the control has done {LEAD_STEPS} steps more",
    "no band": "from the first step on, rounding alone moves the loss too far",
    "dropout": "as it does if a compiler draws other random numbers for dropout than eager code; "
    "Breakeven tests this after a training, but not after this run",
    "other numbers": "as it does if compiled code draws other random numbers than uncompiled "
    "code, for example for dropout: start the script without dropout to distinguish this from a "
    "fault",
    "own numbers": "it draws other random numbers than without a compiler",
    "no rehearsal": "no step without random numbers could be compared",
    "draws in inference": "its compiled model draws random numbers in inference: it answers the "
    "same samples differently each time",
}
"""Reasons without a figure."""


def _step(step: float) -> Figure:
    return Figure("step", f"step {step:.0f}")


def _since(facts: Facts) -> Sentence:
    """After the first steps, runs check inputs only once per block."""
    first, alike = facts["first_step"], facts["last_alike"]
    if alike is None or alike == first - 1:
        return say("from ", _step(first), " on")
    return say("from a step between ", _step(alike), " and ", _step(first), " on")


def _other_batch(facts: Facts) -> Sentence:
    size = facts["baseline_size"]
    instead = "" if size is None else f", {facts['times'] * size} samples instead of {size}"
    return say(f"its steps have {facts['times']} times as many samples{instead}")


def _another_model(facts: Facts) -> Sentence:
    sizes = f"{facts['size']:,} parameters instead of {facts['baseline_size']:,}"
    return say(f"it trains another model, with {sizes}")


def _another_loss(facts: Facts) -> Sentence:
    value, expected = (Figure("loss", f"{facts[name]:.4g}") for name in ("value", "expected"))
    return say(
        "its first loss is ",
        value,
        " instead of ",
        expected,
        ": from the same weights this is "
        "another measure of loss, so losses cannot be compared; evaluate the accuracy",
    )


def _begins_ahead(facts: Facts) -> Sentence:
    return say(
        *_losses(facts, "its first loss is "),
        " before any update: it was trained before, or measures another loss",
    )


def _another_function(facts: Facts) -> Sentence:
    return say(
        *_losses(facts, "from the same weights and samples its first loss is "),
        ": its model computes something else, and may be better only because it sees what it is "
        "to predict",
    )


def _other_evaluation(facts: Facts) -> Sentence:
    return say("its last evaluation had other samples than the baseline's")


def _losses_are_worse(facts: Facts) -> Sentence:
    return say(
        *_losses(facts, "its training loss at the end is "),
        ", which contradicts its evaluations",
    )


def _losses(facts: Facts, begin: str) -> tuple[Words, ...]:
    value, expected = (Figure("loss", f"{facts[name]:.6g}") for name in ("value", "expected"))
    return begin, value, " instead of ", expected


def _other_samples(facts: Facts) -> Sentence:
    return say(f"its first samples{_on_ranks(facts)} are not the baseline's")


def _on_ranks(facts: Facts) -> str:
    """` on rank 1`; empty if no single ranks are known."""
    names = " and ".join(str(rank) for rank in facts.get("ranks") or ())
    return f" on rank {names}" if names else ""


def _outcome(facts: Facts) -> Sentence:
    outcome: Outcome = facts["outcome"]
    margin = _of_quantity(outcome, outcome.margin)
    words: tuple[Words, ...] = (
        "after as many samples as ",
        Figure("num_steps", f"{outcome.step:,} steps of the baseline"),
        ", ",
        _instead(READ[outcome.quantity], outcome.value, outcome.expected),
    )
    if not math.isfinite(outcome.value):
        return say(*words)
    sign, side = (-1, "better") if outcome.high < 0 else (1, "worse")
    low, high = (
        _of_quantity(outcome, size) for size in sorted((sign * outcome.low, sign * outcome.high))
    )
    apart = Figure("outcome", f"{side} by {low} to {high}")
    shared = "" if outcome.num_judged == 1 else f" for all {outcome.num_judged} such arms"
    words = (*words, ": ", apart, f" (95 % interval{shared}; the margin is {margin})")
    if outcome.is_too_low:
        why = "a lower training loss alone does not show that it learns better; evaluate it"
        words = (*words, f"; {why}")
    elif outcome.verdict == "not decided" and outcome.seems_worse:
        words = (*words, f"; only {CONTROLS_FOR_WORSE} controls (--controls {CONTROLS_FOR_WORSE})")
        words = (*words, " show that no equal training ends so")
    elif outcome.verdict == "not decided":
        count = max(CONTROLS_FOR_WORSE, 2 * outcome.num_controls)
        words = (*words, f"; more controls (--controls {count}) or a wider margin (--margin) may ")
        words = (*words, "decide")
    return say(*words)


def _of_quantity(outcome: Outcome, size: float) -> str:
    """A difference in the unit of the quantity: `0.5 %` of accuracy, `0.012` of a loss."""
    if not math.isfinite(size):
        return "an unknown amount"
    return f"{100 * size:.2g} %" if outcome.quantity == "accuracy" else f"{size:.2g}"


def _also_worse(facts: Facts) -> Sentence:
    return _instead(facts["quantity"], facts["value"], facts["expected"])


def _other_inputs(facts: Facts) -> Sentence:
    what = f"the runs saw different data{_on_ranks(facts)} "
    return say(what, _since(facts), _data_culprits(facts))


def _not_repeatable(facts: Facts) -> Sentence:
    even = f"even two equal runs saw different data{_on_ranks(facts)} "
    return say(even, _since(facts), _data_culprits(facts))


def _data_culprits(facts: Facts) -> str:
    if "changes" in facts:
        return f": the arm changes the command ({facts['changes']})"
    generators = facts["generators"]
    culprit = (
        ", as all random generators had equal states, a worker of a data loader seeds itself, or "
        "the script uses the clock, os.urandom, the order of files in a folder, or the order of a "
        "set of objects"
    )
    if generators:
        culprit = (
            " code draws more random numbers in one run than in another, or seeds itself by the "
            f"clock: the states of {', '.join(generators)} differed"
        )
    return (
        ". The script's data may depend on the model's answers, as in reinforcement learning: "
        "rounding changes answers, but would not change recorded data. Or" + culprit
    )


def _other_settings(facts: Facts) -> Sentence:
    if facts["settings"] == ["gradient scale"]:
        return _other_steps_skipped(facts)
    names = ", ".join(SETTING_NAMES.get(name, f"values of {name}") for name in facts["settings"])
    if "changes" in facts:
        changed = f": the arm changes the command ({facts['changes']})"
        return say(f"the {names} differ ", _since(facts), changed)
    follow = ": they may follow the clock (datetime), the loss or chance"
    if facts["clock_reads"]:
        follow = (
            f": the script reads the clock ({', '.join(facts['clock_reads'])}), so they may follow "
            "the speed of each run"
        )
    even = "even in equal runs, " if facts["is_control"] else ""
    advice = ". Let schedules follow the step instead"
    return say(f"{even}the {names} differ ", _since(facts), follow, advice)


def _other_steps_skipped(facts: Facts) -> Sentence:
    even = "even in equal runs, " if facts["is_control"] else ""
    return say(
        f"{even}GradScaler left out other steps, as the scales of gradients differ ",
        _since(facts),
        ": rounding decides whether gradients near the limit of float16 are infinite. Begin with a "
        "smaller init_scale, with which it leaves out none",
    )


def _inside_band(facts: Facts) -> Sentence:
    total = f" of {facts['num_steps']}" if facts["num_steps"] else ""
    return say(
        "the loss stays within ",
        _times_band(facts, ".2g"),
        " over the first ",
        Figure("num_steps", f"{facts['band_steps']}{total} steps"),
    )


def _outside_band(facts: Facts) -> Sentence:
    off: tuple[Words, ...] = ("is not finite",)
    if not math.isinf(facts["max_ratio_to_band"]):
        off = ("is up to ", _times_band(facts, ".3g"), " off")
    on = f" of rank {facts['rank']}" if "rank" in facts else ""
    return say(f"the loss{on} leaves the band at ", _first_outside(facts), " and ", *off)


def _times_band(facts: Facts, digits: str) -> Figure:
    ratio = facts["max_ratio_to_band"]
    ratio = f"{ratio:,.0f}" if 999.5 <= ratio < math.inf else format(ratio, digits)
    return Figure("max_ratio_to_band", f"{ratio} x the band")


def _first_outside(facts: Facts) -> Figure:
    return Figure("first_step_outside", f"step {facts['first_step_outside']}")


def _hardly_outside(facts: Facts) -> Sentence:
    return say(
        _outside_band(facts),
        ": too much to be called the same, and too little to call it a fault, since the distance "
        f"of a control varies by chance, too; {_more_controls(facts)}",
    )


def _more_controls(facts: Facts) -> str:
    """Advice with the training time of a control, if it is known."""
    count, seconds = max(4, 2 * facts.get("num_controls", 1)), facts.get("control_seconds")
    each_takes = f", each of which trains for about {duration(seconds)}" if seconds else ""
    return f"repeat it with more controls (--controls {count}){each_takes}"


def _not_finite(facts: Facts) -> Sentence:
    return say("the loss is not finite at ", _first_outside(facts), ", where the baseline's is")


def _read_as(reading: Reading) -> Sentence:
    """A window of losses or an evaluation, beside that of equal trainings."""
    first, last = reading.first_step, reading.last_step
    words: tuple[Words, ...] = (
        Figure("num_steps", f"after {last} steps"),
        f" the {reading.quantity}",
    )
    if reading.quantity == "loss":
        words = ("the mean loss of ", Figure("step", f"steps {first} to {last}"))
    value, expected = (_value(reading, size) for size in (reading.value, reading.expected))
    return say(*words, " is ", value, ", that of equal trainings ", expected)


def _value(reading: Reading, size: float) -> Figure:
    return figure(READ[reading.quantity], size)


def _outside_later(facts: Facts) -> Sentence:
    reading: Reading = facts["reading"]
    allowed = _value(reading, reading.allowed)
    why: tuple[Words, ...] = ()
    if math.isfinite(reading.value) and math.isfinite(reading.interval):
        why = (", and rounding and chance explain a difference of ", allowed, " at most")
    elif math.isfinite(reading.value):
        times = f"{UNTOLD_LIMIT:g} times all that was learned"
        why = (f", which is higher by more than {times} (", allowed, ")")
    return say(_read_as(reading), *why)


def _too_far_apart(facts: Facts) -> Sentence:
    reading: Reading = facts["reading"]
    why: tuple[Words, ...] = (
        "it is not known how far other random numbers alone drive equal trainings apart; repeat it "
        "without dropout (model.dropout = off)",
    )
    if math.isfinite(reading.interval):
        allowed = _value(reading, reading.allowed)
        few = "with so few or such different controls it may be chance (up to "
        why = (few, allowed, f"); {_more_controls(facts)}")
    return say(_read_as(reading), ": too much to be called the same, but ", *why)


def _nothing_learned(facts: Facts) -> Sentence:
    fell: tuple[Words, ...] = ("did not fall",)
    if facts.get("end", 0) < facts.get("start", 0):
        start, end, needed = (
            Figure("loss", text)
            for text in (
                f"{facts['start']:.4g}",
                f"{facts['end']:.4g}",
                f"{facts['needed']:.2g}",
            )
        )
        rest = " would show learning"
        fell = ("fell from ", start, " to ", end, ", and only a fall by more than ", needed, rest)
    return say(
        "the loss of the baseline ",
        *fell,
        ", so a broken backend might look the same; train longer",
    )


def _rehearsal(facts: Facts) -> Sentence:
    if facts["verdict"] == "holds":
        return say("without dropout ", _inside_band(facts))
    unclear = (
        ": too much to be called the same, and too little to call it a fault; repeat it without "
        "dropout and with more controls (model.dropout = off, --controls 4)"
    )
    is_broken = facts["verdict"] == "broken"
    return say("without dropout ", _outside_band(facts), "" if is_broken else unclear)


def _dropout_wrong(facts: Facts) -> Sentence:
    fault: DropoutFault = facts["fault"]
    where = ", in attention" if fault.operation == "attention" else ""
    others = facts["count"] - 1
    more = f", and {others} more of them are wrong" if others else ""
    return say(
        f"dropout {fault.number + 1} of {fault.num_dropouts} (p = {fault.p:g}{where}) "
        f"{_dropout_fault(fault)}{more}"
    )


def _dropout_fault(fault: DropoutFault) -> str:
    if fault.what == "share":
        dropped, expected = f"{fault.value * 100:.1f} %", f"{fault.expected * 100:.1f} %"
        return f"drops {dropped} instead of {expected}"
    if fault.what == "scale":
        return f"turns ones into a mean of {fault.value:.3f} instead of {fault.expected:.3f}"
    return "drops other numbers in backward than in forward"


def _redraws_differ(facts: Facts) -> Sentence:
    tensor = facts["tensor"] or "the weights"
    how = f"vary {facts['size']:.2g} times as much in their change of {tensor} as"
    if facts["what"] == "direction":
        how = f"change {tensor} in another direction than"
    return say(
        f"from the final state, its steps {how} steps without a compiler: of "
        f"{facts['num_divisions']:,} divisions of the steps into two groups, this one differs most"
    )


def _inference_wrong(facts: Facts) -> Sentence:
    gap = f"{facts['value_compiled']:.6g} vs {facts['value']:.6g}"
    return say(
        "its compiled model answers differently from the same weights without a compiler "
        f"({facts['name']} ",
        Figure("inference_gap", gap),
        " at ",
        _step(facts["step"]),
        f", {facts['split']} split): inference is wrong",
    )


def _answers_wrong(facts: Facts) -> Sentence:
    """Answers with another class, or, if there are none, with other numbers."""
    samples, flipped, off = facts["samples"], facts["wrong_classes"], facts["difference"]
    how = "another class, with logits up to" if flipped else "the same class, but numbers up to"
    names = f"sample{'s' if len(samples) > 1 else ''} {', '.join(map(str, samples))}"
    wrong = f"{int(flipped or facts['wrong']):,} of {int(facts['compared']):,} targets"
    return say(
        "its compiled model answers ",
        Figure("answers", wrong),
        " differently from the same weights without a compiler ",
        Figure("step", f"at step {int(facts['step'])}"),
        " (",
        Figure("answers", names),
        f" of the {facts['split']} split; {how} ",
        Figure("answers", f"{off:.3g} off" if math.isfinite(off) else "not finite"),
        ", where rounding explains ",
        Figure("answers", f"{facts['tolerance']:.2g}"),
        "): inference is wrong",
    )


def _far_shorter(facts: Facts) -> Sentence:
    steps = f"{facts['steps_done']} of the baseline's {facts['num_steps']} steps"
    return say("it ended after ", Figure("num_steps", steps))


def _not_repeated(facts: Facts) -> Sentence:
    return say(
        f"the fault did not come back in {facts['num_trials']} trials of an investigation, which "
        "made the same steps again: repeat the experiment, and if the fault comes back, look for "
        "what changes between runs"
    )


def _ended_early(facts: Facts) -> Sentence:
    subject = "it " if facts["role"] == "backend" else f"the {facts['role']} "
    ending = ending_words(facts["state"], facts["steps_done"], facts["num_steps"])
    return say(subject, ending)


REASONS: dict[FindingKind, Callable[[Facts], Sentence]] = {
    "another model": _another_model,
    "other batch": _other_batch,
    "other samples": _other_samples,
    "another loss": _another_loss,
    "begins ahead": _begins_ahead,
    "another function": _another_function,
    "other evaluation": _other_evaluation,
    "losses are worse": _losses_are_worse,
    "outcome": _outcome,
    "also worse": _also_worse,
    "other inputs": _other_inputs,
    "not repeatable": _not_repeatable,
    "other settings": _other_settings,
    "inside band": _inside_band,
    "outside band": _outside_band,
    "hardly outside": _hardly_outside,
    "not finite": _not_finite,
    "outside later": _outside_later,
    "too far apart": _too_far_apart,
    "nothing learned": _nothing_learned,
    "rehearsal": _rehearsal,
    "dropout wrong": _dropout_wrong,
    "redraws differ": _redraws_differ,
    "inference wrong": _inference_wrong,
    "answers wrong": _answers_wrong,
    "far shorter": _far_shorter,
    "not repeated": _not_repeated,
    "ended early": _ended_early,
}
