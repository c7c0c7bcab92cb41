"""Files that take a while to make: how many of them each person may have under way.

A report takes seconds of a processor for each experiment, a picture has the one browser to itself.
Who asks for the next before the last is there waits for himself alone: nobody's wishes may take
from all others what makes theirs.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.views.access import session, team
from breakeven.views.access.signin import PERSON

HERE = "this machine"
LOOPBACK = ("127.0.0.1", "::1")


class TooMany(RunnerError):
    """Somebody asks for another file before the last ones are there."""


class Places:
    """So many for each person, at work or waiting. Safe to use from several threads."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def one_of(self, who: str) -> Iterator[None]:
        """Within it, one of somebody's places is taken; raises `TooMany` where there is none."""
        with self._lock:
            if self._taken[who] >= self._each:
                raise TooMany(
                    f"{self._each} of the files that you asked for are still being made. Ask again "
                    "once one of them is there"
                )
            self._taken[who] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[who] -= 1
                self._taken += Counter()  # Who has nothing under way is forgotten.


FILES = Places(each=8)
"""Tables, pictures and pages of one chart: a second or so for each."""
LONG = Places(each=3)
"""Reports."""
DRAWN = Places(each=1)
"""What has the browser for long: a report that is printed, an archive of all pictures."""


def asker() -> str:
    """Whose wishes count together, for the page that is being drawn: a person's where people sign
    in, or else those from one address."""
    person = session.here() if team.is_asked() else None
    return person.subject if person else str(st.context.ip_address or HERE)


def asker_of(scope: Any) -> str:
    """The same for a request."""
    person = scope.get(PERSON)
    if person is not None:
        return str(person.subject)
    address = (scope.get("client") or (HERE,))[0]
    return HERE if address in LOOPBACK else str(address)
