"""Texts of parity: one message for each kind of finding.

The terminal prints the sentences; pages and reports link every number to its definition.
"""

import math

from breakeven.runner.loss_band import LEAD_STEPS
from breakeven.runner.texts import duration
from breakeven.storage.comparison.results import Result
from breakeven.storage.comparison.warnings import ending_words
from breakeven.storage.numbers.formats import DASH, format_verdict
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.numbers.sentences import (
    Facts,
    Figure,
    Prepare,
    Sentence,
    figure,
    fill,
    prepared,
)
from breakeven.storage.statistics.outcomes import UNTOLD_LIMIT, Quantity, Reading
from breakeven.storage.statistics.parity import (
    OF_ANSWERS,
    FindingKind,
    Parity,
    ParityFinding,
    learned_less,
)
from breakeven.storage.statistics.random_numbers import DropoutFault

READ: dict[Quantity, str] = {"loss": "loss", "evaluation loss": "eval_loss", "accuracy": "accuracy"}
"""Names of the quantities in METRICS."""
BREAKING: tuple[FindingKind, ...] = ("outside band", "not finite", "outside later", *OF_ANSWERS)
"""Findings that break parity by themselves."""
LINKS: dict[FindingKind, str] = {
    "outside later": ", but later ",
    "dropout": ", ",
    "other numbers": ", ",
    "rehearsal": "; ",
    "no rehearsal": "; ",
}
"""Text between a finding and the one before; `, but ` for all other kinds."""


def parity_text(parity: Parity | None) -> str:
    """The verdict for a table, with the step of the fault: `broken at step 12` by a single loss,
    `broken from step 150` by a window of losses, `broken after 200 steps` by an evaluation. If the
    band ended early, it has the last step of the band: `matches (checked to step 240)`. A larger
    batch is `another training`, or has `learned less`.
    """
    if parity is None:
        return DASH
    if learned_less(parity):
        return "learned less"
    if parity.verdict == "unknown" and any(
        finding.kind == "other batch" for finding in parity.findings
    ):
        return "another training"
    if parity.outside is not None and parity.outside.quantity != "loss":
        return f"broken after {parity.first_step_outside:,} steps"
    if parity.first_step_outside is not None:
        at = "at" if parity.found_in_band else "from"
        return f"broken {at} step {parity.first_step_outside:,}"
    if parity.verdict == "holds" and parity.band_ended:
        return f"matches (checked to step {parity.last_step_in_band:,})"
    return format_verdict(parity.verdict)


def parity_words(parity: Parity) -> Sentence:
    """The reasons of the verdict in one sentence."""
    so_far = Sentence()
    broken = False
    for finding in parity.findings:
        link = _link(finding, broken) if so_far.parts else ""
        words = prepared(MESSAGES[finding.kind], finding.figures, PREPARE.get(finding.kind))
        so_far = fill("{so_far}{link}{words}", so_far=so_far, link=link, words=words)
        broken = broken or _breaks(finding)
    return so_far


def wrong_words(result: Result) -> Sentence:
    """Why a result is wrong (`Result.is_wrong`)."""
    worse, parity = result.shortfall, result.parity
    if worse is not None:
        return fill(
            "its {title} is {value} instead of {expected}, and it is not known whether it "
            "learns the same",
            title=METRICS[worse.quantity].title.lower(),
            value=figure(worse.quantity, worse.value),
            expected=figure(worse.quantity, worse.expected),
        )
    if parity is not None and (parity.verdict == "broken" or learned_less(parity)):
        return outcome_of_batches(parity) or parity_words(parity)
    return Sentence(("its losses leave the band of equal trainings",))


def _breaks(finding: ParityFinding) -> bool:
    is_rehearsal = finding.kind == "rehearsal"
    return finding.figures["verdict"] == "broken" if is_rehearsal else finding.kind in BREAKING


def _link(finding: ParityFinding, broken: bool) -> str:
    if broken and finding.kind in OF_ANSWERS:
        return ", and "
    return LINKS.get(finding.kind, ", but ")


INSIDE_BAND = (
    "the loss stays within [{max_ratio_to_band:.2g} x the band](max_ratio_to_band) over the first "
    "[{band_steps:d}< of {num_steps:d}> steps](num_steps)"
)
AT = "[step {first_step_outside:d}](first_step_outside)"
OUTSIDE_BAND = (
    f"the loss leaves the band at {AT} and <{{is_finite:?}}is up to [{{max_ratio_to_band:.3g}} x "
    "the band](max_ratio_to_band) off><{is_finite:!}is not finite>"
)
CONTROLS = (
    "repeat it with more controls (--controls {more_controls:d})<, each of which trains for about "
    "{control_time}>"
)
SINCE = (
    "from <{was_alike:?}a step between [step {last_alike:d}](step) and >"
    "[step {first_step:d}](step) on"
)
READ_AS = (
    "<{is_window:?}the mean loss of [steps {first:d} to {last:d}](step)><{is_window:!}[after "
    "{last:d} steps](num_steps) the {quantity}> is {value}, that of equal trainings {expected}"
)
DATA_CULPRITS = (
    ". The script's data may depend on the model's answers, as in reinforcement learning: "
    "rounding changes answers, but would not change recorded data. Or<{generators:!}, as all "
    "random generators had equal states, a worker of a data loader seeds itself, or the script "
    "uses the clock, os.urandom, the order of files in a folder, or the order of a set of objects>"
    "< code draws more random numbers in one run than in another, or seeds itself by the clock: "
    "the states of {generators} differed>"
)


def _controls(facts: Facts) -> Facts:
    """Slots for the number of controls to repeat with, and the training time of one, if known."""
    seconds = facts.get("control_seconds")
    return {
        "more_controls": max(4, 2 * facts.get("num_controls", 1)),
        "control_time": duration(seconds) if seconds else "",
    }


SETTING_NAMES = {"lr": "learning rates", "momentum": "momenta", "weight_decay": "weight decays"}
"""Words for settings of optimizers."""
OUTCOME = "trained with as many samples, its {title} is {value} instead of {expected}"


def outcome_of_batches(parity: Parity | None) -> Sentence | None:
    """`trained with as many samples, its accuracy is 94.5 % instead of 94.0 %`, for a run with
    larger batches; None if it was not evaluated."""
    batches = (
        finding.figures
        for finding in (parity.findings if parity else ())
        if finding.kind == "other batch"
    )
    return next((_outcome(figures) for figures in batches if "metric" in figures), None)


def _outcome(facts: Facts) -> Sentence:
    name = facts["metric"]
    return fill(
        OUTCOME,
        title=METRICS[name].title.lower(),
        value=figure(name, facts["value"]),
        expected=figure(name, facts["expected"]),
    )


def _other_batch(facts: Facts) -> Facts:
    is_evaluated = "metric" in facts
    return {"is_evaluated": is_evaluated, "outcome": _outcome(facts) if is_evaluated else ""}


def _outside(facts: Facts) -> Facts:
    return {"is_finite": not math.isinf(facts["max_ratio_to_band"]), **_controls(facts)}


def _other_data(facts: Facts) -> Facts:
    """Slots for different data; after the first steps, runs check inputs only once per block."""
    alike = facts["last_alike"]
    return {
        "was_alike": alike is not None and alike != facts["first_step"] - 1,
        "generators": list(facts["generators"]),
    }


def _other_settings(facts: Facts) -> Facts:
    alike, names = facts["last_alike"], facts["settings"]
    return {
        "was_alike": alike is not None and alike != facts["first_step"] - 1,
        "names": [SETTING_NAMES.get(name, f"values of {name}") for name in names],
    }


def _reading(facts: Facts) -> Facts:
    """Slots for a window of losses or an evaluation."""
    reading: Reading = facts["reading"]
    value, expected, allowed = (
        figure(READ[reading.quantity], size)
        for size in (reading.value, reading.expected, reading.allowed)
    )
    return {
        "is_window": reading.quantity == "loss",
        "first": reading.first_step,
        "last": reading.last_step,
        "quantity": reading.quantity,
        "value": value,
        "expected": expected,
        "allowed": allowed,
        "is_finite": math.isfinite(reading.value),
        "is_bounded": math.isfinite(reading.interval),
        **_controls(facts),
    }


def _rehearsal(facts: Facts) -> Facts:
    if facts["verdict"] == "holds":
        return {"words": fill(INSIDE_BAND, **facts)}
    doubt = (
        ": too much to be called the same, and too little to call it a fault; repeat it without "
        "dropout and with more controls (model.dropout = off, --controls 4)"
    )
    template = OUTSIDE_BAND if facts["verdict"] == "broken" else f"{OUTSIDE_BAND}{doubt}"
    return {"words": fill(template, **facts, **_outside(facts))}


def _dropout_wrong(facts: Facts) -> Facts:
    fault: DropoutFault = facts["fault"]
    return {
        "number": fault.number + 1,
        "num_dropouts": fault.num_dropouts,
        "p": fault.p,
        "is_attention": fault.operation == "attention",
        "wrong": fill(DROPOUT_FAULTS[fault.what], value=fault.value, expected=fault.expected),
        "others": facts["count"] - 1,
    }


DROPOUT_FAULTS = {
    "share": "drops {value:.1%} instead of {expected:.1%}",
    "scale": "turns ones into a mean of {value:.3f} instead of {expected:.3f}",
    "backward": "drops other numbers in backward than in forward",
}


def _answers_wrong(facts: Facts) -> Facts:
    """Slots for wrong answers: with another class, or, if there are none, with other numbers."""
    samples, flipped, off = (
        list(map(str, facts["samples"])),
        facts["wrong_classes"],
        facts["difference"],
    )
    return {
        "wrong": int(flipped or facts["wrong"]),
        "compared": int(facts["compared"]),
        "step": int(facts["step"]),
        "samples": f"sample{'s' if len(samples) > 1 else ''} {', '.join(samples)}",
        "is_flipped": bool(flipped),
        "off": Figure("answers", f"{off:.3g} off" if math.isfinite(off) else "not finite"),
    }


MESSAGES: dict[FindingKind, str] = {
    "no baseline": "there is no baseline to compare with",
    "not begun": "it has not begun to train",
    "other weights": "its initial weights are not the baseline's",
    "other samples": "its first samples are not the baseline's",
    "other batch": "its batches have {size:d} samples instead of {baseline_size:d}: this is "
    "another training"
    "<{is_evaluated:!}, and what it learns was not compared>"
    "<{is_evaluated:?}; {outcome}>",
    "other inputs": f"the runs saw different data {SINCE}{DATA_CULPRITS}",
    "not repeatable": "even without a compiler, two runs saw different data "
    f"{SINCE}{DATA_CULPRITS}",
    "other settings": f"<{{is_control:?}}even without a compiler, >the {{names}} "
    f"differ {SINCE}"
    "<{clock_reads:?}: the script reads the clock ({clock_reads}), so they may follow the "
    "speed of each run. Let schedules follow the step instead>",
    "no losses": "no loss was recorded: pass it to breakeven.step(loss), or nothing can be "
    "compared",
    "no control": "without a control it is not known how far rounding alone drives losses apart",
    "no common step": "baseline, control and backend have no step in common",
    "control too short": f"losses can be judged once the control has done {LEAD_STEPS} steps more",
    "no band": "from the first step on, rounding alone moves the loss too far",
    "inside band": INSIDE_BAND,
    "outside band": OUTSIDE_BAND,
    "hardly outside": f"{OUTSIDE_BAND}: too much to be called the same, and too little to call "
    f"it a fault, since the distance of a control varies by chance, too; {CONTROLS}",
    "not finite": f"the loss is not finite at {AT}, where the baseline's is",
    "outside later": f"{READ_AS}<{{is_finite:?}}<{{is_bounded:?}}, and rounding and chance explain "
    f"a difference of {{allowed}} at most><{{is_bounded:!}}, which is higher by more than "
    f"{UNTOLD_LIMIT:g} "
    "times all that was learned ({allowed})>>",
    "too far apart": f"{READ_AS}: too much to be called the same, but <{{is_bounded:?}}with so few "
    f"or such different controls it may be chance (up to {{allowed}}); {CONTROLS}>"
    "<{is_bounded:!}it is not known how far other random numbers alone drive equal trainings "
    "apart; repeat it without dropout (model.dropout = off)>",
    "nothing learned": "the loss of the baseline <{has_fallen:!}did not "
    "fall><{has_fallen:?}fell from "
    "[{start:.4g}](loss) to [{end:.4g}](loss), and only a fall by more than "
    "[{needed:.2g}](loss) would show learning>, so a broken backend might look the same; train "
    "longer",
    "dropout": "as it does if a compiler draws other random numbers for dropout than eager code; "
    "Breakeven tests this after a training, but not after this run",
    "other numbers": "as it does if compiled code draws other random numbers than uncompiled "
    "code, for example "
    "for dropout: start the script without dropout to distinguish this from a fault",
    "own numbers": "it draws other random numbers than without a compiler",
    "rehearsal": "without dropout {words}",
    "no rehearsal": "no step without random numbers could be compared",
    "dropout wrong": "dropout {number:d} of {num_dropouts:d} (p = {p:g}<{is_attention:?}, in "
    "attention>) "
    "{wrong}<, and {others:d} more of them are wrong>",
    "redraws differ": "from the final state, its steps <{is_direction:?}change {of} in another "
    "direction than>"
    "<{is_direction:!}vary {size:.2g} times as much in their change of {of} as> steps without "
    "a compiler: of {num_divisions:,} divisions of the steps into two groups, this one differs "
    "most",
    "draws in inference": "its compiled model draws random numbers in inference: it answers the "
    "same samples "
    "differently each time",
    "inference wrong": "its compiled model answers differently from the same weights without a "
    "compiler "
    "({name} [{value_compiled:.6g} vs {value:.6g}](inference_gap) at [step {step:.0f}](step), "
    "{split} split): inference is wrong",
    "answers wrong": "its compiled model answers [{wrong:,} of {compared:,} targets](answers) "
    "differently from "
    "the same weights without a compiler [at step {step:d}](step) ([{samples}](answers) of the "
    "{split} split; <{is_flipped:?}another class, with logits up to><{is_flipped:!}the same "
    "class, but numbers up to> {off}, where rounding explains [{tolerance:.2g}](answers)): "
    "inference is wrong",
    "far shorter": "it ended after [{steps_done:d} of the baseline's {num_steps:d} "
    "steps](num_steps)",
    "not repeated": "the fault did not come back in {num_trials:d} trials of an investigation, "
    "which made the "
    "same steps again: repeat the experiment, and if the fault comes back, look for what "
    "changes between runs",
    "ended early": "<{is_own:?}it><{is_own:!}the {role}> {ending}",
}
"""A template for each kind of finding. Slots are its figures and the values that `PREPARE` adds."""
PREPARE: dict[FindingKind, Prepare] = {
    "other settings": _other_settings,
    "other batch": _other_batch,
    "other inputs": _other_data,
    "not repeatable": _other_data,
    "outside band": _outside,
    "hardly outside": _outside,
    "outside later": _reading,
    "too far apart": _reading,
    "rehearsal": _rehearsal,
    "nothing learned": lambda facts: {"has_fallen": facts.get("end", 0) < facts.get("start", 0)},
    "dropout wrong": _dropout_wrong,
    "redraws differ": lambda facts: {
        "is_direction": facts["what"] == "direction",
        "of": facts["tensor"] or "the weights",
    },
    "answers wrong": _answers_wrong,
    "ended early": lambda facts: {
        "is_own": facts["role"] == "backend",
        "ending": ending_words(facts["state"], facts["steps_done"], facts["num_steps"]),
    },
}
