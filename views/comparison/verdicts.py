"""What to say beside a number of a comparison; `views/comparison/answers.py` has the headline."""

from collections.abc import Sequence

import pandas as pd

from storage.comparison.results import Comparison, Result
from storage.numbers.metrics import DASH, METRICS
from storage.numbers.sentences import Sentence
from storage.statistics.speedups import BreakEven, ratio_text
from storage.terminal.parity_words import parity_words
from storage.terminal.report import doubt_of_saving
from views.shared import words
from views.shared.inert import Markdown, inert
from views.shared.links import linked, sentence

VERDICT_CLASSES = {
    "faster": "good",
    "slower": "bad",
    "same": "plain",
    "unsure": "doubtful",
    "holds": "good",
    "broken": "bad",
    "nothing learned": "doubtful",
    "unknown": "doubtful",
}
"""Class in views/shared/style.css, which knows the theme."""


def break_even_text(result: Result) -> Markdown:
    """`210 steps (180 to 260, 84 s)`, `never`, `unsure`, or a dash."""
    if result.break_even_verdict == "reached" and result.break_even is not None:
        return _steps_text(result.break_even)
    return inert(result.break_even_verdict or DASH)


def break_even_doubt(result: Result) -> Markdown:
    """What is known of a break-even that is unsure; else nothing."""
    if result.break_even_verdict != "unsure" or result.break_even is None:
        return ""
    doubted = f"The speedup of {inert(ratio_text(result.speedup))} {inert(doubt_of_saving(result))}"
    if result.break_even.never:
        return f"{doubted}; as it is, compiling is never paid for."
    return (
        f"{doubted}. If it is real, compiling is paid for after {_steps_text(result.break_even)}."
    )


def _steps_text(found: BreakEven) -> Markdown:
    count = METRICS["break_even_steps"].format
    spread = "" if found.low is None else f"{count(found.low)} to {count(found.high)}, "
    return f"{count(found.steps)} steps ({spread}{METRICS['step_seconds'].format(found.seconds)})"


def doubts(results: Sequence[Result]) -> list[Markdown]:
    """Reasons behind parity verdicts other than `holds`, each said once, after its runs."""
    labels: dict[Sentence, list[str]] = {}
    for result in results:
        if result.parity is not None and result.parity.verdict != "holds":
            labels.setdefault(parity_words(result.parity), []).append(result.label)
    parity = linked("parity", "parity")
    return [f"**{inert(', '.join(runs))}**, {parity}: {sentence(reason)}"
            for reason, runs in labels.items()]  # fmt: skip


def noise_text(comparison: Comparison) -> Markdown:
    """What this machine's own noise allows to tell apart."""
    if comparison.noise_floor is None:
        return (
            f"No {linked('noise_floor', 'noise floor')}: it takes a control and at least 6 rounds. "
            "Until then a small difference may be chance."
        )
    share = METRICS["noise_floor"].format(comparison.noise_floor)
    return (
        f"{linked('noise_floor', f'Noise floor {share}')}: two runs of the same thing, baseline "
        "and control, differed by up to that much here."
    )


def provenance(experiment: pd.Series) -> Markdown:
    """Where and when: `recorded example, NVIDIA H100, 20 Nov 2026`, then what was trained."""
    parts = ["recorded example"] if experiment["origin"] == "example" else []
    parts += [inert(experiment["device_name"] or experiment["device"])]
    parts += [words.day(experiment["submitted"])]
    what = [words.workload(experiment["model"], experiment["data"])]
    if experiment["torch_version"]:
        what.append(f"torch {inert(experiment['torch_version'])}")
    return " · ".join([", ".join(parts), *what])
