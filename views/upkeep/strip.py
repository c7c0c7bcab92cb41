"""Quiet lines above pages: problems that the doctor finds in machine and data folder, checked while
pages are open, and run folders that cannot be read."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import streamlit as st

from breakeven.runner.doctor.examination import look
from breakeven.runner.doctor.findings import Finding, Health
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.texts import printable
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.views.access import permissions
from breakeven.views.parts import wall
from breakeven.views.shared import words
from breakeven.views.shared.inert import inert
from breakeven.views.shared.resources import data_dir

EVERY_SECONDS = 30.0
FIRST_SECONDS = 5.0
"""Delay before the first look, which reads every run: the first page has priority."""
LASTING_SECONDS = 20.0
"""Shorter problems are ignored, because they end by themselves: a supervisor that starts, a run
that is being closed."""


class Watching:
    """The last findings of each data folder; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="doctor")
        self._looks: dict[Path, tuple[float, Future[list[Finding]] | None]] = {}
        self._since: dict[tuple[Path, str], float] = {}

    def wrong(self, data_dir: DataDir) -> list[Finding]:
        """Returns at once the problems that have lasted a while, as of the last look; begins the
        next look if it is due."""
        now, folder = time.monotonic(), data_dir.path
        with self._lock:
            earlier = now - EVERY_SECONDS + FIRST_SECONDS
            begun, answer = self._looks.setdefault(folder, (earlier, None))
            found = self._noted(folder, begun, answer)
            if now - begun >= EVERY_SECONDS and (answer is None or answer.done()):
                self._looks[folder] = (now, self._workers.submit(look, data_dir))
        return found

    def _noted(
        self, folder: Path, begun: float, answer: "Future[list[Finding]] | None"
    ) -> list[Finding]:
        if answer is None or not answer.done():
            return []
        wrong = [one for one in answer.result() if one.health is Health.WRONG]
        subjects = {(folder, one.subject) for one in wrong}
        for gone in [key for key in self._since if key[0] == folder and key not in subjects]:
            del self._since[gone]
        for key in subjects:
            self._since.setdefault(key, begun)
        return [one for one in wrong
                if begun - self._since[folder, one.subject] >= LASTING_SECONDS]  # fmt: skip


watching = Watching()


def show_wrong() -> None:
    """One expandable line; nothing without problems, or on a wall."""
    found = [] if wall.is_asked() else watching.wrong(data_dir())
    if not found:
        return
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    with st.expander(
        f"{inert(found[0].subject)}: something is wrong{more}", icon=":material/healing:"
    ):
        show_findings(found)


def show_findings(findings: list[Finding]) -> None:
    """Evidence and remedy of each problem, then a short list of good results. Viewers see only the
    subjects of the problems."""
    for one in findings:
        if one.health is Health.OK:
            continue
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{inert(one.subject)}**", width=170)
            st.markdown(f":gray[{inert(one.health)}]", width=90)
            if permissions.may_act():
                text = f"{one.evidence}\n{one.remedy}".strip()
                lines = [printable(line, 1000) for line in text.splitlines()]
                st.code("\n".join(lines), language=None, wrap_lines=True)
            else:
                st.markdown("The administrator of this dashboard sees the details here.")
    well = [f"{one.subject}: {printable(one.evidence, 1000)}" for one in findings
            if one.health is Health.OK and permissions.may_act()]  # fmt: skip
    if well:
        st.code("\n".join(well), language=None, wrap_lines=True)


MAX_DAMAGED = 100
"""Most folders in the list."""


def show_damaged(store: Store) -> None:
    """Shows one expandable line; nothing if every folder could be read."""
    damaged = queries.unreadable(store)
    if damaged.empty:
        return
    title = f"{words.plural(len(damaged), 'run folder')} could not be read"
    listed = [
        f"{Path(one.folder).name}: {one.message.removeprefix(one.folder).lstrip('/ ')}"
        for one in damaged.head(MAX_DAMAGED).itertuples()
    ]
    if len(damaged) > MAX_DAMAGED:
        listed.append(f"and {len(damaged) - MAX_DAMAGED:,} more, which `list --runs --all` names")
    with st.expander(title, icon=":material/folder_off:"):
        st.code("\n".join(listed), language=None, wrap_lines=True)
