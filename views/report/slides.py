"""An experiment for a room full of people: one idea a screen, from the question to what to do."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from breakeven.runner.specs.scenarios import Compared
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.comparison.standing import standings
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.statistics.speedups import ratio_text
from breakeven.storage.terminal.break_even_words import break_even_text
from breakeven.storage.terminal.caution_words import caution_words
from breakeven.storage.terminal.parity_words import parity_text
from breakeven.views.comparison import leaderboard
from breakeven.views.comparison.verdicts import noise_text
from breakeven.views.parts.cards import Card
from breakeven.views.report.content import Content
from breakeven.views.shared import words
from breakeven.views.shared.inert import Html, Markdown, inert
from breakeven.views.shared.links import sentence

COLUMNS = ("speed_verdict", "speedup", "step_seconds", "compile_seconds", "parity",
           "break_even_steps")  # fmt: skip
"""Of the table of all runs, what people at the back of a room can read."""
QUESTIONS: dict[Compared, Markdown] = {
    "runs": "Which `torch.compile` backend pays off?",
    "tensors": "Does every backend compute what the model says?",
    "caches": "What do compile caches save?",
}
"""What an experiment asks, by what it compares."""
LEAST_TO_TELL = 0.01
"""Share of a step's time below which two runs are not told apart in words."""


@dataclass(frozen=True, kw_only=True)
class Slide:
    """One screen: a title, a few sentences, and one thing to look at."""

    title: Markdown
    sentences: Sequence[Markdown] = ()
    chart: str = ""
    """Name of a card of the content."""
    figure: str = ""
    """Which of the card's figures."""
    shows: str = ""
    """Instead of a chart: `leaderboard`, `playback` or `command`."""


def slides(content: Content) -> list[Slide]:
    """Those for which the experiment has something to show."""
    told = content.told
    if not content.spec.kind.compares_runs:
        shown = [Slide(title=card.title, chart=card.name, figure=_first(card))
                 for card in told.cards]  # fmt: skip
        return [_question(content), Slide(title="The answer", sentences=[told.headline]), *shown,
                _again(content)]  # fmt: skip
    cards = {card.name: card for card in told.cards}
    made = [_question(content)]
    if cards:
        made.append(Slide(title="Side by side", shows="playback", sentences=[_order(content)]))
    made.append(Slide(title="The answer", sentences=[told.headline], shows="leaderboard"))
    made += [*_why(content, cards), *_pays(content, cards), *_same(content, cards)]
    return [*made, *_doubts(content), _again(content)]


def _order(content: Content) -> Markdown:
    if content.spec.takes_turns:
        return (
            "All runs take turns on the device, so whatever disturbs the machine disturbs all "
            "of them."
        )
    return "The runs came one after another, as they are played here."


def on_a_slide(comparison: Comparison) -> Html:
    """The table of all runs, with the columns that matter most."""
    return leaderboard.html(comparison.results, comparison.spec.kind, COLUMNS)


def _question(content: Content) -> Slide:
    spec = content.spec
    what = words.workload(spec.model.source, spec.data.source)
    backends = inert(", ".join(one.label for one in spec.variants if one.role == "backend"))
    work = "answers" if spec.is_inference else "trainings"
    how = (
        ""
        if spec.is_script
        else (f", {inert(spec.training.precision)}, batches of {spec.training.batch_size:,}")
    )
    return Slide(
        title=QUESTIONS[spec.kind.compares],
        sentences=[f"**{inert(content.name)}**", content.provenance,
              f"Measured: {what}{how}. Compared with {work} without a compiler: "
              f"**{backends or 'nothing yet'}**."],
    )  # fmt: skip


def _why(content: Content, cards: dict[str, Card]) -> Iterator[Slide]:
    if "why" in cards:
        # The sentences that say it all fill a screen each, and stand in the report itself.
        said = [
            "A step by kind of work; at the end of each bar what is spent waiting or in Python."
        ]
        yield Slide(title="Why", sentences=said, chart="why", figure=_first(cards["why"]))
    card = cards.get("step-times")
    if card is None:
        return
    said = [*_steps_said(content.comparison), noise_text(content.comparison)]
    yield Slide(title="What a step takes", sentences=said, chart="step-times", figure=_first(card))


def _steps_said(comparison: Comparison) -> Iterator[Markdown]:
    """How the fastest that counts compares with the baseline, step by step."""
    found = standings(comparison)
    if found.baseline is None or not found.counted:
        return
    best, written = found.counted[0], METRICS["step_seconds"].format
    mine, theirs = best.measured.step_seconds, found.baseline.measured.step_seconds
    if mine is None or theirs is None or abs(mine / theirs - 1) < LEAST_TO_TELL:
        return
    yield (
        f"A step takes **{inert(written(mine))}** under **{inert(best.label)}** and "
        f"**{inert(written(theirs))}** without a compiler: "
        f"{inert(ratio_text(best.speedup))}, {inert(best.speed_verdict)}."
    )


def _pays(content: Content, cards: dict[str, Card]) -> Iterator[Slide]:
    if "break-even" not in cards:
        return
    backends = [one for one in content.comparison.results if one.role == "backend"]
    said = [f"**{inert(one.label)}**: {inert(break_even_text(one.break_even))}" for one in backends]
    said += [sentence(caution_words(doubt)) for doubt in content.comparison.notes
             if doubt.kind == "latency measured once"]  # fmt: skip
    yield Slide(title="When compiling has paid for itself", sentences=said, chart="break-even",
                figure=_first(cards["break-even"]))  # fmt: skip


def _same(content: Content, cards: dict[str, Card]) -> Iterator[Slide]:
    if "loss" not in cards:
        return
    labels: dict[str, list[str]] = {}
    for one in content.comparison.results:
        if one.parity is not None:
            labels.setdefault(parity_text(one.parity), []).append(one.label)
    said = [f"**{inert(', '.join(runs))}**: {inert(verdict)}" for verdict, runs in labels.items()]
    yield Slide(
        title="Does it learn the same thing?", sentences=said, chart="loss", figure="By step"
    )


def _doubts(content: Content) -> Iterator[Slide]:
    if content.told.doubts:
        yield Slide(title="What to keep in mind", sentences=content.told.doubts)


def _again(content: Content) -> Slide:
    return Slide(title="What to do", sentences=[*_advice(content)], shows="command")


def _advice(content: Content) -> Iterator[Markdown]:
    """What follows for somebody who trains this."""
    if content.spec.kind.compares_runs:
        found = standings(content.comparison)
        faster = [one for one in found.counted if one.speed_verdict == "faster"]
        paying = [one for one in faster if one.break_even_verdict == "reached"]
        if paying:
            yield from which_pays(paying)
        elif faster:
            yield (f"**{inert(faster[0].label)}** is faster; whether that pays for its compiling "
                   "is open, so measure for longer.")  # fmt: skip
        elif found.counted:
            yield "Run this workload without a compiler: none is shown to make it faster."
        else:
            yield "Nothing can be advised from these runs: no speed of a backend counts."
    yield "See for yourself:"


def which_pays(paying: Sequence[Result]) -> Iterator[Markdown]:
    """From how many steps on which of the backends is worth its compiling; `paying`: whose
    break-evens are reached, the fastest first."""
    first = min(paying, key=_steps)
    yield (
        f"For more than {inert(break_even_text(first.break_even))} of this workload, compile with "
        f"**{inert(first.label)}**; for less, do not compile."
    )
    best = paying[0]
    if best is not first and (ahead := _steps_until_ahead(best, first)) is not None:
        yield (
            f"**{inert(best.label)}** compiles for longer and is ahead of it from about "
            f"{ahead:,.0f} steps on."
        )


def _steps(result: Result) -> float:
    """Until break-even, which may be 0."""
    steps = result.value("break_even_steps")
    return math.inf if steps is None else float(steps)


def _steps_until_ahead(best: Result, first: Result) -> float | None:
    """Two digits of it, as much as medians tell; None where it is never so."""
    mine, its = best.break_even, first.break_even
    if mine is None or its is None:
        return None
    compiling, gained = mine.compile_seconds - its.compile_seconds, mine.gain - its.gain
    return float(f"{compiling / gained:.2g}") if compiling > 0 < gained else None


def _first(card: Card) -> str:
    return next(iter(card.figures))
