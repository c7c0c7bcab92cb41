"""The trials of an investigation in the journal. A later attempt takes outcomes from there."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any

from breakeven.runner.folders.events import each_event
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.masking import mask
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.investigation.outcomes import Outcome

KIND = "investigation_trial"


class Trials:
    """Makes trials and records them; those of earlier attempts are not made again.

    The search asks for trials in the same order as before, as long as their outcomes are the same.
    """

    def __init__(self, run: RunDir, log: EventLog) -> None:
        events = each_event(run.events_file) if run.events_file.exists() else ()
        earlier = [one for one in events if one["kind"] == KIND]
        self._log, self._earlier, self._number = log, deque(earlier), len(earlier)
        if earlier and earlier[-1]["outcome"] == "crashes":
            self._earlier.pop()  # It may have died with the attempt.

    def made(
        self, stage: str, what: str, make: Callable[[], Outcome], detail: str | None = None
    ) -> Outcome:
        """The outcome of the next trial; its texts have no secrets."""
        known = self._known(stage, what)
        if known is not None:
            return known
        self.forget()
        began = time.monotonic()
        found = make()
        found = replace(found, error=_masked(found.error), traceback=_masked(found.traceback))
        self._number += 1
        self._log.append(
            KIND, number=self._number, stage=stage, what=what, outcome=found.kind,
            detail=_masked(detail or found.detail), trial_seconds=time.monotonic() - began,
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


def _outcome(event: dict[str, Any]) -> Outcome:
    known = {one.name: event[one.name] for one in fields(Outcome) if one.name != "kind"}
    for name in ("max_error", "allowed_error"):  # The journal has texts for NaN and infinity.
        known[name] = None if known[name] is None else float(known[name])
    return Outcome(kind=event["outcome"], **known)


def _masked(text: str | None) -> str | None:
    return mask(text) if text else None
