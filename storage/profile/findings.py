"""What the rules find in the profiles of an experiment's runs, the most costly first."""

from collections.abc import Sequence
from dataclasses import replace

from breakeven.storage.profile.case import Case, Finding, Kind
from breakeven.storage.profile.finding_rules import RULES


def findings(cases: Sequence[Case]) -> list[Finding]:
    """One of each kind, that of the run which it costs most, with the others that have it. The most
    costly first; those without a cost last."""
    found = [one for case in cases if case.profile.is_known for rule in RULES for one in rule(case)]
    by_kind: dict[Kind, list[Finding]] = {}
    for one in sorted(found, key=lambda one: -(one.share or 0.0)):
        by_kind.setdefault(one.kind, []).append(one)
    return [
        replace(first, also=tuple((other.label, other.seconds) for other in others))
        for first, *others in by_kind.values()
    ]
