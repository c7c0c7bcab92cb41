"""What a check of the doctor finds: the state, the evidence for it, and the remedy."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Health(StrEnum):
    """How a thing stands."""

    OK = "ok"
    DOUBTFUL = "doubtful"
    """Runs can be measured, and something may come of it."""
    WRONG = "wrong"
    """Something does not work, or what is shown is not true."""
    UNKNOWN = "unknown"
    """It could not be found out."""


Repair = Callable[[], str]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the doctor's report."""

    subject: str
    health: Health
    evidence: str
    """What was seen, with its numbers."""
    remedy: str = ""
    """What to do; a command is set in backticks."""
    repair: Repair | None = field(default=None, compare=False)
    """Mends it without any loss and says what it did; None where only a person should."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "health": str(self.health),
            "evidence": self.evidence,
            "remedy": self.remedy,
            "can_repair": self.repair is not None,
        }


def ok(subject: str, evidence: str) -> Finding:
    return Finding(subject=subject, health=Health.OK, evidence=evidence)


def doubtful(subject: str, evidence: str, remedy: str) -> Finding:
    return Finding(subject=subject, health=Health.DOUBTFUL, evidence=evidence, remedy=remedy)


def wrong(subject: str, evidence: str, remedy: str, repair: Repair | None = None) -> Finding:
    return Finding(
        subject=subject, health=Health.WRONG, evidence=evidence, remedy=remedy, repair=repair
    )


def worst(findings: Iterable[Finding]) -> Health:
    """The health of all together: what could not be found out weighs less than what is doubtful."""
    order = (Health.WRONG, Health.DOUBTFUL, Health.UNKNOWN, Health.OK)
    found = {finding.health for finding in findings}
    return next((health for health in order if health in found), Health.OK)
