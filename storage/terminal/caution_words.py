"""Warnings and notes of a comparison in words: one sentence for each kind of caution.

The terminal prints them; pages show the same with every number leading to its definition.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from breakeven.storage.comparison.caution import Caution, Kind
from breakeven.storage.numbers.formats import format_share
from breakeven.storage.numbers.sentences import Figure, Sentence, Words, figure, joined, said
from breakeven.storage.statistics.intervals import MIN_PAIRS
from breakeven.storage.terminal.device_words import DEVICE, device_words
from breakeven.storage.terminal.ending_words import ending_words

MAX_NAMED = 3
"""Of functions that a compiler gave up on."""
MAX_VALUE = 60
"""Characters of a setting's value that are shown whole."""
Facts = Mapping[str, Any]


def caution_words(caution: Caution) -> Sentence:
    """All that is to be said of it, and what to do about it."""
    if caution.kind in DEVICE:
        return device_words(caution)
    return SENTENCES[caution.kind](caution)


def _plain(template: str) -> Callable[[Caution], Sentence]:
    """A sentence without a figure."""
    return lambda caution: said(template)


def _of_run(tell: Callable[[str, Facts], Sentence]) -> Callable[[Caution], Sentence]:
    """Of a kind that concerns one run: from its label and its figures."""

    def tell_of_run(caution: Caution) -> Sentence:
        ((label, facts),) = caution.runs.items()
        return tell(label, facts)

    return tell_of_run


def _steps_done(facts: Facts) -> Figure:
    of_all = f" of {facts['num_steps']}" if facts["num_steps"] else ""  # a script may not know
    return Figure("num_steps", f"{facts['steps_done']}{of_all} steps")


def _ended_early(label: str, facts: Facts) -> Sentence:
    why = said("")
    if facts["reason"]:
        why = said(": {reason}", reason=_recorded(facts["reason"].rstrip(".")))
    return said("{run} {ended}{why}.{measured}", run=label, ended=ending_words(facts), why=why,
                measured=_measured_before(facts))  # fmt: skip


def _measured_before(facts: Facts) -> Sentence:
    """What of speed is known nonetheless."""
    num_rounds = facts.get("num_rounds")
    if num_rounds is None or facts["role"] == "control" or not facts["steps_done"]:
        return said("")
    if facts["role"] == "baseline":
        if num_rounds:
            return said(" The others are compared with what it did before.")
        return said(" Nothing can be compared with it.")
    if not num_rounds:
        return said(" Too little was measured before to judge its speed.")
    whole = " whole" if 0 < facts["num_steps"] <= facts["steps_done"] else " before"
    return said(" Its speed was measured{whole}, in {rounds}.", whole=whole,
                rounds=Figure("round", f"{num_rounds} rounds"))  # fmt: skip


def _not_finite(label: str, facts: Facts) -> Sentence:
    at = Figure("step", f"step {facts['step']}")
    return said("{run} has a loss that is not finite, first at {at}.", run=label, at=at)


def _not_over(caution: Caution) -> Sentence:
    runs = (said("{run} ({state}, {done})", run=label, state=str(facts["state"]),
                 done=_steps_done(facts)) for label, facts in caution.runs.items())  # fmt: skip
    return said("The numbers of runs that are not over are preliminary: {runs}.",
                runs=joined(runs, ", "))  # fmt: skip


def _different_lengths(caution: Caution) -> Sentence:
    grouped = _grouped({label: facts["num_steps"] for label, facts in caution.runs.items()})
    lengths = (said("{length} ({runs})", length=Figure("num_steps", str(length)), runs=runs)
               for length, runs in grouped)  # fmt: skip
    return said("The runs trained for different numbers of steps: {lengths}. Their final losses "
                "and accuracies are those of shorter and longer trainings.",
                lengths=joined(lengths, ", "))  # fmt: skip


def _stopped(label: str, facts: Facts) -> Sentence:
    at = Figure("num_steps", f"step {facts['step']} of {facts['num_steps']}")
    return said("{run} stopped at {at}: {reason}.", run=label, at=at,
                reason=_recorded(facts["reason"].rstrip(".")))  # fmt: skip


def _resumed(label: str, facts: Facts) -> Sentence:
    steps = joined([Figure("step", f"step {step}") for step in facts["steps"]], " and ")
    later = "its later part ran in a new process"
    if facts["has_compiled"]:
        later = (
            "its later part compiled again, and compile latency, graph breaks and "
            "recompiles count the first part only"
        )
    moved = said("")
    if facts["moves"]:
        listed = joined(map(_move, facts["moves"]), " and ")
        moved = said(" It went on {moves}: its step time, throughput and memory are of both.",
                     moves=listed)  # fmt: skip
    return said("{run} was resumed at {steps}: {later}; rounds that it did without the baseline "
                "are not paired.{moved}", run=label, steps=steps, later=later,
                moved=moved)  # fmt: skip


def _repeated_lines(caution: Caution) -> Sentence:
    return said("The journals hold lines that do not follow those before them, as where a journal "
                "was copied into itself: {lines}. They are left out, and every number is that of "
                "the other lines.", lines=_lines_of_runs(caution))  # fmt: skip


def _missing_lines(caution: Caution) -> Sentence:
    return said("The journals lack lines that the runs wrote, as where a disk or a copy lost a "
                "part: {lines}. Every number is that of the lines that are left.",
                lines=_lines_of_runs(caution))  # fmt: skip


def _lines_of_runs(caution: Caution) -> str:
    counts = {label: facts["num_lines"] for label, facts in caution.runs.items()}
    return ", ".join(f"{_lines(count)} of {label}" for label, count in counts.items())


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"


def _move(move: tuple[int, int, int]) -> Sentence:
    step, before, after = move
    devices = f"{before} devices" if before > 1 else "1 device"
    return said("at {step} on {after} instead of {before}", step=Figure("step", f"step {step}"),
                after=str(after), before=devices)  # fmt: skip


def _different_setting(caution: Caution) -> Sentence:
    grouped = _grouped({label: facts["value"] for label, facts in caution.runs.items()})
    values = (f"{'not set' if value is None else _short(value)} ({runs})"
              for value, runs in grouped)  # fmt: skip
    return said("The runs differ in {setting}: {values}.", setting=caution.figures["setting"],
                values=", ".join(values))  # fmt: skip


def _different_sizes(caution: Caution) -> Sentence:
    runs = (said("{run} in {rounds} ({size} {of} a step instead of {usual} in the first of them)",
                 run=label, rounds=Figure("round", f"{facts['num_rounds']} rounds"),
                 of=facts["of"], size=_amount(facts["size"]),
                 usual=_amount(facts["baseline_size"]))
            for label, facts in caution.runs.items())  # fmt: skip
    return said("The script gave runs other amounts of work than the baseline: {runs}. These "
                "rounds are not compared. Have every run take the same samples.",
                runs=joined(runs, ", "))  # fmt: skip


def _amount(size: float) -> Figure:
    return Figure("samples_per_second", f"{size:.6g}")


def _grouped(values: Mapping[str, Any]) -> Iterable[tuple[Any, str]]:
    """Each value with the runs that have it, as text."""
    groups: dict[Any, list[str]] = {}
    for label, value in values.items():
        groups.setdefault(value, []).append(label)
    return ((value, ", ".join(labels)) for value, labels in groups.items())


def _short(text: str) -> str:
    """Whole if it fits; of a hash or a path the ends, which tell them apart."""
    return text if len(text) <= MAX_VALUE else f"{text[:20]}...{text[-20:]}"


def _fallback(caution: Caution) -> Sentence:
    return said("This repeats experiment {earlier} one run at a time, because the device could not "
                "hold all runs at once.", earlier=caution.figures["experiment_id"])  # fmt: skip


def _spread(caution: Caution) -> Sentence:
    count, difference = str(caution.figures["num_devices"]), caution.figures["device_difference"]
    begin = said("The runs were spread over {count} devices, each with a baseline and a control of "
                 "its own, and are compared within each", count=count)  # fmt: skip
    if difference == 1:
        return said("{begin}; repeats went from device to device, so that intervals have in them "
                    "what the devices differ by.", begin=begin)  # fmt: skip
    return said("{begin}. The baseline takes {difference} as long on the slowest as on the "
                "fastest: by so much intervals were widened to both sides, since none was measured "
                "on all.", begin=begin,
                difference=figure("device_difference", difference))  # fmt: skip


def _no_control(caution: Caution) -> Sentence:
    state = caution.figures["state"]
    if state is None and caution.figures["was_asked_for"]:
        why = "The control's run folder is missing or unreadable"
    elif state is None:
        why = "There is no control"
    elif state.is_final:
        why = f"The control recorded no step ({state.replace('_', ' ')})"
    else:
        why = f"The control has recorded no step yet ({state})"
    what = "neither this machine's noise nor parity can"
    if caution.figures["is_inference"]:
        what = "this machine's noise cannot"
    return said("{why}: {what} be judged.", why=why, what=what)


def _noisy(caution: Caution) -> Sentence:
    floor = figure("noise_floor", caution.figures["noise_floor"])
    return said("This machine is noisy: two equal runs differ by up to {floor}, and speedups below "
                "that are not called faster or slower.", floor=floor)  # fmt: skip


def _nothing_compiled(caution: Caution) -> Sentence:
    if caution.figures["is_script"]:
        why = "what the script handed over was never called, or the compiler left it alone"
    else:
        why = "the compiler found nothing in the model that it could capture"
    be = "this run is a baseline" if len(caution.runs) == 1 else "these runs are baselines"
    return said("Nothing was compiled in {runs}: {why}, so {be} by another name.",
                runs=", ".join(caution.runs), why=why, be=be)  # fmt: skip


def _given_up(label: str, facts: Facts) -> Sentence:
    named = [_function(one) for one in facts["functions"]]
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    return said(
        "{run} runs {named}{more} without a compiler, which gave up there{all_of_it}: {reason}.",
        run=label, named=", ".join(named[:MAX_NAMED]), more=more,
        all_of_it=" and compiled nothing else" if facts["is_all"] else "",
        reason=facts["reason"].rstrip("."),
    )  # fmt: skip


def _function(facts: Facts) -> str:
    """`forward (train.py:6)`, `some calls of a function`."""
    part = "some calls of " if facts["is_part"] else ""
    place = f" ({facts['place']})" if facts["place"] else ""
    return f"{part}{facts['name'] or 'a function'}{place}"


def _compiles_throughout(label: str, facts: Facts) -> Sentence:
    what = "compiled code anew" if facts["is_code"] else "captured CUDA graphs anew"
    usual = facts["baseline_step_seconds"]
    beside = (
        ""
        if usual is None
        else said(", the baseline's {usual}", usual=figure("step_seconds", usual))
    )
    return said(
        "{run} {what} to its end, in {count} of {steps} steps, so no block of it is steady. "
        "With that, a step took {seconds}{beside}. More steps would hardly help.",
        run=label, what=what, count=facts["num_compiled_steps"], steps=facts["steps_done"],
        seconds=figure("step_seconds", facts["compiled_step_seconds"]), beside=beside,
    )  # fmt: skip


def _operations_unknown(caution: Caution) -> Sentence:
    names = caution.figures["names"]
    return said(
        "Floating-point operations are not known: nobody counts those of {names}{more}.",
        names=", ".join(names[:3]), more=" and others" if len(names) > 3 else "",
    )  # fmt: skip


def _answers_not_compared(caution: Caution) -> Sentence:
    errors = [facts["error"] for facts in caution.runs.values() if facts["error"]]
    return said(
        "Answers of the compiled model were not compared with those of the same weights without a "
        "compiler: {runs}{why}. Parity says nothing of inference there.",
        runs=", ".join(caution.runs),
        why=said(" ({error})", error=_recorded(errors[0])) if errors else "",
    )  # fmt: skip


def _few_rounds(caution: Caution) -> Sentence:
    counts = (said("{run} ({count})", run=label, count=figure("round", facts["num_rounds"]))
              for label, facts in caution.runs.items())  # fmt: skip
    return said(f"Fewer than {MIN_PAIRS} rounds can be paired with the baseline, so no interval is "
                "claimed: {counts}. Train for more steps.",
                counts=joined(counts, ", "))  # fmt: skip


def _measuring_ended(caution: Caution) -> Sentence:
    facts = caution.figures
    *first, last = map(str, facts["num_rounds"])
    rounds = f"{', '.join(first)} and {last} rounds" if first else f"{last} rounds"
    repeats = ""
    if facts["repeats"] > 1:
        repeats = f" in {len(facts['num_rounds'])} of {facts['repeats']} repeats"
    return said("Measuring ended after {rounds}{repeats}: {reason}.",
                rounds=Figure("round", rounds), repeats=repeats,
                reason=_recorded(facts["reason"]))  # fmt: skip


def _wide_intervals(caution: Caution) -> Sentence:
    widths = (said("{run} {width}", run=label, width=_width(facts["width"]))
              for label, facts in caution.runs.items())  # fmt: skip
    remedy = "allow for more rounds or seconds, or a calmer machine"
    if caution.figures["repeats"] > 1:
        remedy = "processes of the same run differ, and only more repeats tell by how much"
    return said("Intervals are wider than the {asked} asked for: {widths}; {remedy}.",
                asked=_width(caution.figures["target_width"]), widths=joined(widths, ", "),
                remedy=remedy)  # fmt: skip


def _width(share: float) -> Figure:
    """Of a speedup's interval."""
    return Figure("speedup", format_share(share))


def _single_repeats(caution: Caution) -> Sentence:
    return said("Of {runs} one process of {repeats} was measured long enough: the interval does "
                "not tell how much processes differ.", runs=", ".join(caution.runs),
                repeats=str(caution.figures["repeats"]))  # fmt: skip


def _latency_measured_once(caution: Caution) -> Sentence:
    return said("Compile latency of {runs} was measured once: the interval of {what} tells how "
                "unsure the saving is, and not how much compile latencies vary.",
                runs=", ".join(caution.runs), what=Figure("break_even_low", "break-even")
                )  # fmt: skip


def _note(caution: Caution) -> Sentence:
    return joined([_recorded(caution.figures["text"])])


def _recorded(text: str) -> Words:
    """What a run wrote down: nobody knows the numbers in it one by one."""
    return Figure("cautions", text) if any(map(str.isdigit, text)) else text


def _warmed_up(caution: Caution) -> Sentence:
    begin, end = caution.figures["begin"], caution.figures["end"]
    degrees = Figure("temperature_celsius", f"{begin:.0f} to {end:.0f} \N{DEGREE SIGN}C")
    return said("The device warmed up from {degrees} while steady blocks ran: step times of later "
                "blocks are those of a warmer device. Runs that take turns share this; a longer "
                "warm-up avoids it.", degrees=degrees)  # fmt: skip


SENTENCES: dict[Kind, Callable[[Caution], Sentence]] = {
    "no baseline": _plain(
        "The baseline's run folder is missing or unreadable, so nothing can be compared."
    ),
    "ended early": _of_run(_ended_early),
    "loss not finite": _of_run(_not_finite),
    "not over": _not_over,
    "different lengths": _different_lengths,
    "stopped": _of_run(_stopped),
    "resumed": _of_run(_resumed),
    "repeated lines": _repeated_lines,
    "missing lines": _missing_lines,
    "different setting": _different_setting,
    "different sizes": _different_sizes,
    "fallback": _fallback,
    "sequential": _plain(
        "The runs took place one after another, so that drift of clocks, heat and neighbours is "
        "part of the speedups."
    ),
    "compiled together": _plain(
        "Several runs compiled at the same time: compile latencies, and break-evens with them, are "
        "those of a machine under load. Speedups are not touched: all had compiled before the "
        "rounds that are timed."
    ),
    "spread": _spread,
    "no control": _no_control,
    "noisy": _noisy,
    "few rounds": _few_rounds,
    "nothing compiled": _nothing_compiled,
    "given up": _of_run(_given_up),
    "compiles throughout": _of_run(_compiles_throughout),
    "operations unknown": _operations_unknown,
    "answers not compared": _answers_not_compared,
    "measuring ended": _measuring_ended,
    "wide intervals": _wide_intervals,
    "single repeats": _single_repeats,
    "latency measured once": _latency_measured_once,
    "note": _note,
    "strangers unknown": _plain(
        "Whether other processes were on the device is not known: the driver does not list the "
        "runs' own under their numbers, as in many containers."
    ),
    "warmed up": _warmed_up,
}
