"""The trials of an investigation in the journal. A later attempt takes outcomes from there."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields, replace
from typing import Any

from breakeven.runner.folders.events import each_event
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.masking import mask
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.investigation.outcomes import Outcome

KIND = "investigation_trial"
ANOTHER = "another fault"
"""Recorded in place of the outcome of a trial that fails, but not as the investigated run."""
NEUTRAL = ("passes", "times out")
SAME = ("python", "versions", "device_name", "variables")
"""Recorded facts of a process on which outcomes depend."""


class Trials:
    """Makes trials and records them; those of earlier attempts are not made again.

    The search asks for trials in the same order as before, as long as their outcomes are the same.
    """

    def __init__(self, run: RunDir, log: EventLog) -> None:
        log.flush()
        events = each_event(run.events_file) if run.events_file.exists() else ()
        earlier, self._number = _earlier(events)
        self._log, self._earlier, self._place = log, deque(earlier), 0

    def made(
        self, stage: str, what: str, make: Callable[[], Outcome], detail: str | None = None,
        has_fault: Callable[[Outcome], bool] = lambda found: True,
    ) -> Outcome:  # fmt: skip
        """The outcome of the next trial; its texts have no secrets. `has_fault`: whether a trial
        that fails does so as the investigated run."""
        self._place += 1
        known = self._known(stage, what)
        if known is not None:
            return known
        self.forget()
        began = time.monotonic()
        found = make()
        found = replace(found, error=_masked(found.error), traceback=_masked(found.traceback))
        self._number += 1
        self._log.append(
            KIND, number=self._number, place=self._place, stage=stage, what=what,
            outcome=found.kind if found.kind in NEUTRAL or has_fault(found) else ANOTHER,
            detail=_masked(detail or found.detail), trial_seconds=time.monotonic() - began,
            ended=found.kind,
            **{name: value for name, value in asdict(found).items() if name != "kind"},
        )  # fmt: skip
        self._log.flush()
        return found

    def forget(self) -> None:
        """Makes all further trials, because what is tried has changed since the earlier attempt."""
        self._earlier.clear()

    def _known(self, stage: str, what: str) -> Outcome | None:
        """The outcome that an earlier attempt recorded; None if it made another trial here."""
        if not self._earlier:
            return None
        event = self._earlier.popleft()
        try:
            if (event["stage"], event["what"]) != (stage, what):
                return None
            return _outcome(event)
        except (KeyError, TypeError, ValueError):  # An older version recorded less.
            return None


def _earlier(events: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Trials of earlier attempts in the order of the search, and the number of all. None, if code,
    packages, device or variables were others than those of the newest process."""
    facts: dict[str, Any] = {}
    known: list[tuple[dict[str, Any], dict[str, Any]]] = []
    number = 0
    for event in events:
        if event["kind"] == "environment":
            if known and known[-1][1].get("ended") == "crashes":
                known.pop()  # It may have died with the attempt.
            facts = {name: event.get(name) for name in SAME}
        elif event["kind"] == "source":
            facts[f"source {event.get('source')}"] = event.get("sha256")
        elif event["kind"] == KIND:
            number += 1
            # A trial that was made again replaces the earlier one and all that followed.
            del known[max(0, int(event.get("place", number)) - 1) :]
            known.append((facts, event))
    is_same = all(one == facts for one, _ in known)
    return [event for _, event in known] if is_same else [], number


def _outcome(event: dict[str, Any]) -> Outcome:
    known = {one.name: event[one.name] for one in fields(Outcome) if one.name != "kind"}
    for name in ("max_error", "allowed_error"):  # The journal has texts for NaN and infinity.
        known[name] = None if known[name] is None else float(known[name])
    return Outcome(kind=event["ended"], **known)


def _masked(text: str | None) -> str | None:
    return mask(text) if text else None
