"""What to train with for a planned length, in a sentence for the terminal and the first screen."""

from collections.abc import Callable
from itertools import zip_longest

from breakeven.runner.texts import duration
from breakeven.storage.numbers.metrics import METRICS
from breakeven.storage.plan import Plan, chosen_for

_steps = METRICS["break_even_steps"].format


def advice(
    planned: Plan, name: Callable[[str], str] = str, total: Callable[[float], str] = duration
) -> tuple[str, str] | None:
    """What to do, and what that takes: `("Take inductor", "12 min instead of 19 min, ...")`. None
    without a measured baseline. `name` writes a label, `total` writes seconds."""
    base = planned.baseline_seconds
    if base is None or len(planned.totals) == 1:
        return None
    others = other_lengths(planned, name)
    if planned.best is None:
        return "Do not compile", (
            f"training takes {total(base)}. {others or 'No backend surely takes less.'}"
        )
    label = planned.best.label
    return f"Take {name(label)}", (
        f"{total(planned.totals[label])} instead of {total(base)}, compiling included. {others}"
    ).strip()


def other_lengths(planned: Plan, name: Callable[[str], str] = str) -> str:
    """What other lengths of training call for; empty where one choice is best for all lengths."""
    now = chosen_for(planned.num_steps, planned.choices)
    parts = []
    for choice, following in zip_longest(planned.choices, planned.choices[1:]):
        takes = "do not compile" if choice.label is None else f"take {name(choice.label)}"
        if choice.from_steps >= planned.num_steps:
            parts.append(f"from {_steps(choice.from_steps)} steps on {takes}")
        elif choice != now:
            parts.append(f"below {_steps(following.from_steps)} steps {takes}")
    text = ", ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
