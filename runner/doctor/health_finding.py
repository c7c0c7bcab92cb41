"""A finding of the doctor: the health of a subject, the evidence, and the remedy."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from breakeven.runner.python310 import StrEnum


class Health(StrEnum):
    """The health of a subject."""

    OK = "ok"
    DOUBTFUL = "doubtful"
    """Runs can be measured, but problems may follow."""
    WRONG = "wrong"
    """A part does not work, or shows wrong results."""
    UNKNOWN = "unknown"
    """The check itself failed."""


Repair = Callable[[], str]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the doctor's report."""

    subject: str
    health: Health
    evidence: str
    """The observation, with its numbers."""
    remedy: str = ""
    """Instructions; a command is in backticks."""
    repair: Repair | None = field(default=None, compare=False)
    """Repairs the fault without loss and returns a report; None if only a user should do so."""

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
    """The worst health of all findings; `UNKNOWN` is less bad than `DOUBTFUL`."""
    order = (Health.WRONG, Health.DOUBTFUL, Health.UNKNOWN, Health.OK)
    healths = {finding.health for finding in findings}
    return next((health for health in order if health in healths), Health.OK)
