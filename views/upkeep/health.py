"""The health of machine, installation and data folder: a quiet line above every page, checked while
pages are open; and tabs with findings, logs and environments."""

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import streamlit as st

from breakeven.runner.doctor.examination import quick_findings
from breakeven.runner.doctor.health_finding import Finding, Health
from breakeven.runner.experiments.freeing_space import size_of
from breakeven.runner.logs import read_log
from breakeven.runner.machine.uv_environments import UvEnvironment, remove, uv_environments
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.texts import printable
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.formats import format_bytes
from breakeven.views.access import permissions
from breakeven.views.parts.actions import errors_shown
from breakeven.views.shared import words
from breakeven.views.shared.address import bound
from breakeven.views.shared.definition_links import linked
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
            problems = self._lasting(folder, begun, answer)
            if now - begun >= EVERY_SECONDS and (answer is None or answer.done()):
                self._looks[folder] = (now, self._workers.submit(quick_findings, data_dir))
        return problems

    def _lasting(
        self, folder: Path, begun: float, answer: "Future[list[Finding]] | None"
    ) -> list[Finding]:
        if answer is None or not answer.done():
            return []
        wrong = [finding for finding in answer.result() if finding.health is Health.WRONG]
        subjects = {(folder, finding.subject) for finding in wrong}
        for gone in [key for key in self._since if key[0] == folder and key not in subjects]:
            del self._since[gone]
        for key in subjects:
            self._since.setdefault(key, begun)
        return [
            finding
            for finding in wrong
            if begun - self._since[folder, finding.subject] >= LASTING_SECONDS
        ]


watching = Watching()


def show_wrong() -> None:
    """One expandable line; nothing without problems."""
    problems = watching.wrong(data_dir())
    if not problems:
        return
    more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
    with st.expander(
        f"{inert(problems[0].subject)}: something is wrong{more}", icon=":material/healing:"
    ):
        show_findings(problems)


def show_findings(findings: list[Finding]) -> None:
    """Evidence and remedy of each problem, then a short list of good results. Viewers see only the
    subjects of the problems."""
    for finding in findings:
        if finding.health is Health.OK:
            continue
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{inert(finding.subject)}**", width=170)
            st.markdown(f":gray[{inert(finding.health)}]", width=90)
            if permissions.may_act():
                text = f"{finding.evidence}\n{finding.remedy}".strip()
                lines = [printable(line, 1000) for line in text.splitlines()]
                st.code("\n".join(lines), language=None, wrap_lines=True)
            else:
                st.markdown("The administrator of this dashboard sees the details here.")
    well = [
        f"{finding.subject}: {printable(finding.evidence, 1000)}"
        for finding in findings
        if finding.health is Health.OK and permissions.may_act()
    ]
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
        f"{Path(run.folder).name}: {run.message.removeprefix(run.folder).lstrip('/ ')}"
        for run in damaged.head(MAX_DAMAGED).itertuples()
    ]
    if len(damaged) > MAX_DAMAGED:
        listed.append(f"and {len(damaged) - MAX_DAMAGED:,} more, which `list --runs --all` names")
    with st.expander(title, icon=":material/folder_off:"):
        st.code("\n".join(listed), language=None, wrap_lines=True)


LEVELS = ("info", "warning", "error")
MAX_LINES, FEW_LINES = 500, 15
LOG_HEIGHT = 480
"""Pixels of a log with many lines; it scrolls."""
LIMIT_SECONDS = 300.0
KEY = "system.findings"


def show_health(store: Store) -> None:
    """Shows the doctor's findings and the target of notifications."""
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Examine everything", icon=":material/stethoscope:", key="examine"):
            with st.spinner("Starts torch and compiles a function on each device"):
                st.session_state[KEY] = examine()
        st.caption(
            "In the terminal: `breakeven doctor`; `--repair` repairs what is "
            "safe, `--bundle FILE.zip` writes a file for an issue."
        )
    show_findings(st.session_state.get(KEY) or quick_findings(data_dir()))


def examine() -> list[Finding]:
    """Runs the whole examination in a separate process, because it imports torch."""
    permissions.require_acting()
    command = [
        sys.executable,
        "-m",
        "breakeven",
        "doctor",
        "--json",
        f"--data-folder={data_dir().path}",
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
            cwd=PROJECT_ROOT,
        )
        findings = json.loads(done.stdout)["findings"]
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        why = f"the examination failed: {printable(error)}"
        return [Finding(subject="Doctor", health=Health.UNKNOWN, evidence=why)]
    return [
        Finding(
            subject=finding["subject"],
            health=Health(finding["health"]),
            evidence=finding["evidence"],
            remedy=finding["remedy"],
        )
        for finding in findings
    ]


def show_logs(store: Store) -> None:
    """The last lines of dashboard and supervisor, the latest first."""
    with st.container(horizontal=True, vertical_alignment="top"):
        given = bound("level", LEVELS[0], LEVELS)
        least = st.segmented_control(
            "At least", LEVELS, default=LEVELS[given.pop("index")], required=True, **given
        )
        word = st.text_input("Containing", width=300, **bound("word", ""))
    shown = [
        line_of(entry)
        for entry in read_log(data_dir().logs, MAX_LINES)
        if _is_shown(entry, str(least))
    ]
    shown = [line for line in shown if word.lower() in line.lower()]
    if not shown:
        st.caption("No matching lines." if word else "The log is empty.")
        return
    st.caption(
        f"{words.plural(len(shown), 'line')}, the latest first; the full log is in "
        "`logs/` of the data folder"
    )
    height: int | Literal["content"] = LOG_HEIGHT if len(shown) > FEW_LINES else "content"
    st.code("\n".join(shown), language=None, wrap_lines=True, height=height)


def line_of(entry: dict[str, Any]) -> str:
    """`2026-11-22T10:00:00.123Z supervisor info message  key=value`, and a traceback below."""
    head = " ".join(str(entry.get(key, "")) for key in ("time", "part", "level"))
    fields = [
        f"{key}={value}"
        for key, value in entry.items()
        if key not in ("time", "part", "level", "logger", "where", "pid", "message", "traceback")
    ]
    text = printable("  ".join([f"{head} {entry.get('message', '')}", *fields]), 1000)
    lines = str(entry.get("traceback", "")).splitlines()
    return "\n".join([text, *(f"    {printable(line)}" for line in lines)])


def _is_shown(entry: dict[str, Any], least: str) -> bool:
    levels = ("debug", *LEVELS, "critical")
    level = entry.get("level")
    return level in levels and levels.index(str(level)) >= levels.index(least)


HOW = (
    "`--environment NAME=REQUIREMENTS` of `breakeven compare` and `breakeven run` makes an "
    "environment. Each backend then runs in every environment of the experiment."
)


def show_environments(store: Store) -> None:
    """Lists the environments, each with a button that removes it."""
    known = uv_environments(data_dir())
    if not known:
        st.markdown("**There are no environments.**")
        st.caption(HOW)
        return
    sizes = {
        environment.name: _size(environment.folder, environment.folder.stat().st_mtime_ns)
        for environment in known
    }
    total = linked("disk_bytes", format_bytes(sum(sizes.values())))
    st.markdown(f"**{words.plural(len(known), 'environment')}** with {total}.")
    st.caption(HOW)
    for environment in known:
        with st.container(
            horizontal=True,
            vertical_alignment="center",
            horizontal_alignment="distribute",
            border=True,
        ):
            needs = inert(", ".join(environment.requirements.split()))
            size = format_bytes(sizes[environment.name])
            st.markdown(f"**{inert(environment.name)}** · {size} · {needs}", width="content")
            if permissions.may_act():
                _ask_removal(environment)


def _ask_removal(environment: UvEnvironment) -> None:
    with st.popover("Remove", icon=":material/delete:", width="content"):
        st.markdown("Results of its runs stay, but these runs cannot be resumed or repeated.")
        if st.button("Remove it", type="primary", key=f"remove-environment-{environment.name}"):
            permissions.require_acting()
            with errors_shown():
                remove(data_dir(), environment)
                st.rerun()


@lru_cache(64)
def _size(folder: Path, changed: int) -> int:
    """Bytes on the disk. `changed`: time stamp of the folder; a made environment stays the same."""
    return size_of(folder)
