"""Why the supervisor ended a measurement: a turn carries it to the run, whose journal keeps it."""

from dataclasses import dataclass
from typing import Literal

from breakeven.runner.specs.fields import Spec

Cause = Literal[
    "exact",
    "rounds",
    "seconds",
    "nothing_left",
    "loses",
    "equal",
    "wrong",
    "searched",
    "decided",
    "alike",
    "compiled",
]
COMPILES_TOO_LONG = "compiling took longer than the whole training"
"""Why a search stops a candidate: the reason of its end begins so."""
CAUSES: dict[Cause, str] = {
    "exact": "every interval is narrower than {target}",
    "rounds": "the budget of {budget:.0f} rounds is spent",
    "seconds": "the budget of {budget:.4g} s is spent",
    "nothing_left": "nothing is left to compare: the baseline, or all other runs, ended before",
    "loses": "for {budget:,.0f} steps it surely takes longer than {to}",
    "equal": "{budget:.0f} rounds show no gain over {to}",
    "wrong": "its losses leave the band of equal trainings",
    "searched": "no candidate is left that differs from the best in one setting",
    "decided": "for {budget:,.0f} steps {to} surely takes the least time",
    "alike": "for {budget:,.0f} steps what is left takes equally long, within {target}",
    "compiled": "it is known how long a later start compiles",
}


@dataclass(frozen=True, kw_only=True)
class Ending(Spec, path="ending."):
    """Why the supervisor ended the measurement; runs write it into their journals."""

    cause: Cause
    target_width: float
    """Requested width of intervals, as a share of their lower ends."""
    budget: float | None = None
    """The spent rounds or seconds of steps; for a run that loses, and for a decision, the steps of
    the planned training."""
    to: str | None = None
    """Label of the run to which one that ends is compared, or of the one that takes the least."""
    too_wide: dict[str, float | None] | None = None
    """Label and width of each speedup whose interval is wider; the width is None without an
    interval. None for an ending by another cause, or a single run."""

    is_profiled: bool = True
    """Whether the run profiles steps before it ends; in a search only the baseline and the best."""

    def check_rules(self) -> None:
        is_spent = self.cause in ("rounds", "seconds", "loses", "equal", "decided", "alike")
        rule = "must be given for what is spent, and only then"
        self.require("budget", (self.budget is not None) == is_spent, rule)

    @property
    def why(self) -> str:
        """The reason without the widths, which may have changed since."""
        target = percent(self.target_width)
        text = CAUSES[self.cause].format(budget=self.budget, target=target, to=self.to)
        if self.cause != "exact" and self.too_wide == {}:
            text += f", and {CAUSES['exact'].format(target=target)}"
        return text

    @property
    def reason(self) -> str:
        """The reason with the intervals that were too wide at that moment."""
        if not self.too_wide:
            return self.why
        listed = ", ".join(
            f"{label} {'unknown' if width is None else percent(width)}"
            for label, width in self.too_wide.items()
        )
        target = percent(self.target_width)
        return f"{self.why}; intervals are wider than the requested {target}: {listed}"


def percent(share: float) -> str:
    """A share in percent with two digits: 0.15 %, 2 %, 13 %, 130 %."""
    return f"{float(f'{100 * share:.2g}'):g} %"
