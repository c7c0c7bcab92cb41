"""Why measuring ended where it ends by itself: its figures, and the words for them."""

from dataclasses import dataclass
from typing import Literal

from breakeven.runner.specs.fields import Spec, require

Cause = Literal["exact", "rounds", "seconds", "nothing_left"]
CAUSES: dict[Cause, str] = {
    "exact": "every interval is narrower than {target}",
    "rounds": "the budget of {budget:.0f} rounds is spent",
    "seconds": "the budget of {budget:.4g} s is spent",
    "nothing_left": "nothing is left to compare: the baseline, or all other runs, ended before",
}


@dataclass(frozen=True, kw_only=True)
class Ending(Spec, path="ending."):
    """What the supervisor decided by; runs write it into their journals."""

    cause: Cause
    target_width: float
    """How wide intervals may be, as a share of their lower ends."""
    budget: float | None = None
    """The rounds, or seconds of steps, that are spent."""
    too_wide: dict[str, float | None] | None = None
    """Labels and widths of the speedups whose intervals are wider, None for one without an
    interval; None altogether where that was not asked."""

    def check_rules(self) -> None:
        is_spent = self.cause in ("rounds", "seconds")
        rule = "must be given for what is spent, and only then"
        require((self.budget is not None) == is_spent, "ending.budget", self.budget, rule)

    @property
    def why(self) -> str:
        """What holds whatever became of the intervals since."""
        target = percent(self.target_width)
        said = CAUSES[self.cause].format(budget=self.budget, target=target)
        if self.cause != "exact" and self.too_wide == {}:
            said += f", and {CAUSES['exact'].format(target=target)}"
        return said

    @property
    def reason(self) -> str:
        """The same with the intervals that were too wide at that moment."""
        if not self.too_wide:
            return self.why
        listed = ", ".join(
            f"{label} {'unknown' if width is None else percent(width)}"
            for label, width in self.too_wide.items()
        )
        target = percent(self.target_width)
        return f"{self.why}; intervals are wider than the {target} asked for: {listed}"


def percent(share: float) -> str:
    """Two digits: 0.15 %, 2 %, 13 %, 130 %."""
    return f"{float(f'{100 * share:.2g}'):g} %"
