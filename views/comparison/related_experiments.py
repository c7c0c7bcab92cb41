"""Related experiments: investigations of a run's fault, with their answer, program and issue;
the training that confirms the answer of a search.
"""

from contextlib import suppress
from functools import partial
from io import BytesIO
from typing import Literal
from zipfile import ZIP_DEFLATED, ZipFile

import pandas as pd
import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.unconfirmed_searches import why_too_short, why_unconfirmed
from breakeven.runner.masking import mask_private
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import ExperimentState, RunState
from breakeven.runner.specs.follow_ups import BUDGET_SECONDS, DATA_FILE
from breakeven.storage import queries
from breakeven.storage.comparison.evidence import of_role
from breakeven.storage.comparison.measuring_warnings import SearchEnded
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.investigation import (
    COMPILER_CAUSES,
    Fault,
    Investigation,
    fault_to_find,
    finished_investigation,
    load_investigation,
    next_experiment,
    suspects,
)
from breakeven.storage.words.investigation import (
    TRIAL_HEADER,
    facts,
    headline,
    issue,
    loads_data,
    program_needs,
    remedies,
    trial_cells,
)
from breakeven.storage.words.issues import slow_issue, slower
from breakeven.storage.words.known_causes import remedy_text
from breakeven.views.access import permissions
from breakeven.views.comparison.leaderboard import table, verdict_word
from breakeven.views.parts.actions import again_link, errors_shown, launch
from breakeven.views.parts.downloads import download, titled
from breakeven.views.shared import words
from breakeven.views.shared.address import write_address
from breakeven.views.shared.definition_links import linked
from breakeven.views.shared.inert import Html, Markdown, code, inert
from breakeven.views.shared.resources import (
    among_readers,
    data_dir,
    get_store,
    keeping_up,
    look_at_machine,
)

SECONDS, AT_MOST = 2.0, 5.0
"""Seconds between two readings of a running investigation: usually, and with many readers."""
ISSUE_HEIGHT = 480
OUTCOMES: dict[str, Html] = {"passes": "good", "raises": "bad", "differs": "bad", "crashes": "bad"}
DOES = {
    "raises": "failed",
    "differs": "learns something else than the baseline",
    "not finite": "has a loss that is not finite, and so has the baseline",
}

NOT_AGAIN = "had a fault that did not come back when its steps were made again"


def show_buttons(store: Store, run_id: str) -> None:
    """For a run with a fault: the answer that was found, or the button that starts the search."""
    investigation, fault = finished_investigation(store, run_id), fault_to_find(store, run_id)
    if investigation is not None:
        st.button(
            "The cause",
            icon=":material/search_check:",
            key=f"cause-of-{run_id}",
            on_click=write_address,
            kwargs={"experiment": investigation, "tab": "Cause"},
        )
    if fault is not None and permissions.may_act():
        _start_button(run_id, fault, again=investigation is not None)


def _start_button(run_id: str, fault: Fault, *, again: bool) -> None:
    label = "Find the slow stage" if fault.kind == "slow" else "Find the cause"
    budget = words.duration(BUDGET_SECONDS)
    help = (
        "Runs every stage of the compiler against the baseline."
        if fault.kind == "slow"
        else f"Trials name the part of the compiler that is to blame, in at most {budget}."
    )
    if st.button(
        f"{label} again" if again else label,
        icon=":material/search:",
        help=help,
        key=f"investigate-{run_id}",
    ):
        with errors_shown():
            investigate(run_id)


def investigate(run_id: str) -> None:
    """Queues what finds the cause of a run's fault and opens its page; raises `RunnerError`."""
    permissions.require_acting()
    with st.spinner("Looking at what this machine offers …"):
        machine = look_at_machine(data_dir()).result()
    launch(next_experiment(get_store(), run_id), machine)


def offer(store: Store, comparison: Comparison) -> None:
    """For each backend that learned something else: a sentence and the buttons. A failed one has
    them at its error, a slow one on its own page."""
    for result in suspects(store, comparison):
        fault = fault_to_find(store, result.run_id)
        if fault is not None and fault.kind in ("differs", "not finite"):
            with st.container(horizontal=True, vertical_alignment="center"):
                is_open = result.parity is not None and result.parity.verdict == "unknown"
                does = NOT_AGAIN if is_open else DOES[fault.kind]
                st.markdown(f"**{inert(result.label)}** {does}.", width="content")
                show_buttons(store, result.run_id)


def show(store: Store, experiment: pd.Series, comparison: Comparison) -> None:
    """The answer of an investigation; while it goes on, its trials as they come."""
    experiment_id = comparison.experiment_id
    if ExperimentState(experiment["state"]).is_active:
        redraw_seconds = among_readers(SECONDS, AT_MOST)
        st.fragment(_show_so_far, run_every=redraw_seconds)(store, experiment_id)
        # Buttons outside: in a fragment they would draw the fragment again instead of the page.
        _show_links(store, load_investigation(store, experiment_id))
        return
    investigation = load_investigation(store, experiment_id)
    _show_answer(investigation)
    _show_links(store, investigation)
    if investigation.finding.cause in COMPILER_CAUSES:
        _show_issue(investigation)
        _show_program(investigation)
        with st.expander(
            words.plural(len(investigation.trials), "trial"), icon=":material/science:"
        ):
            _show_trials(investigation)
    else:
        _show_trials(investigation)


def _show_so_far(store: Store, experiment_id: str) -> None:
    with keeping_up(store):
        investigation = load_investigation(store, experiment_id)
    _show_answer(investigation)
    _show_trials(investigation)


def _show_answer(investigation: Investigation) -> None:
    st.markdown(f"### {inert(headline(investigation))}")
    if known := facts(investigation):
        st.markdown("\n".join(f"- {inert(fact)}" for fact in known))


def _show_links(store: Store, investigation: Investigation) -> None:
    """Links to the run with the fault, and to Launch with each backend without the fault."""
    experiment_id, _, label = investigation.investigated.partition(".")
    with suppress(NotInStore), st.container(horizontal=True, vertical_alignment="center"):
        queries.experiment_spec(store, experiment_id)
        st.button(
            f"The run {inert(label)}",
            icon=":material/arrow_back:",
            key="investigated",
            on_click=write_address,
            kwargs={"experiment": experiment_id, "run": investigation.investigated, "tab": "Runs"},
        )
        for remedy in remedies(store, investigation).remedies:
            text = remedy_text(remedy)
            again_link(experiment_id, f"Try {code(text)}", dict(remedy.fields))


def _show_trials(investigation: Investigation) -> None:
    if not investigation.trials:
        return
    rows = [trial_cells(trial) for trial in investigation.trials]
    frame = pd.DataFrame(rows, columns=list(TRIAL_HEADER))
    with titled(inert(words.plural(len(rows), "trial")), frame, "trials"):
        st.html(trials_html(investigation))


def trials_html(investigation: Investigation) -> Html:
    """A row for each trial, in order."""
    rows = []
    for trial in investigation.trials:
        number, stage, what, _outcome, detail, took = map(inert, trial_cells(trial))
        word = verdict_word(trial.outcome, OUTCOMES.get(trial.outcome, "plain"))
        rows.append([number, stage, what, word, detail, took])
    classes = dict.fromkeys(range(1, len(TRIAL_HEADER)), "words")
    return table("Trials", [inert(title.capitalize()) for title in TRIAL_HEADER], rows, classes)


def _show_program(investigation: Investigation) -> None:
    """The program alone; the issue has it as well."""
    program = investigation.finding.program
    if program is None:
        note = investigation.finding.program_note or "none was found"
        st.caption(f"There is no program that shows the fault by itself: {inert(note)}.")
        return
    with st.expander("The program", icon=":material/code:"):
        st.caption(
            f"It needs {inert(program_needs(investigation.finding))}. `python repro.py` fails, "
            "`python repro.py eager` does not."
        )
        st.code(program, language="python")


def _show_issue(investigation: Investigation) -> None:
    """The whole text before anything leaves, with a button that copies it, and the archive."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("#### The issue for PyTorch", width="stretch")
        has_program = investigation.finding.program is not None
        what = "program and issue" if has_program else "issue"
        files = "`repro.py` and `issue.md`" if has_program else "`issue.md`"
        download(
            f"Download {what}",
            partial(archive, investigation),
            "investigation.zip",
            "application/zip",
            help=f"An archive of {files}.",
        )
    if loads_data(investigation.finding):
        st.warning(
            f"The program reads tensors of your training from `{DATA_FILE}`, which the archive "
            "contains: it has numbers of your weights or samples.",
            icon=":material/info:",
        )
    _show_text(issue(investigation))


def _show_text(text: str) -> None:
    st.caption(
        "Read the text before you publish it: secrets and home folders are masked, but names in "
        "the program and in errors are yours. The button at the corner copies the text."
    )
    st.code(text, language="markdown", wrap_lines=True, height=ISSUE_HEIGHT)


def show_slow_issue(store: Store, comparison: Comparison) -> None:
    """The issue about a backend that is slower, on request."""
    if slower(comparison) is None:
        return
    with st.expander("The issue for PyTorch", icon=":material/bug_report:"):
        text = slow_issue(store, comparison)
        download("Download", text.encode, "issue.md", "text/markdown")
        _show_text(text)


def archive(investigation: Investigation) -> bytes:
    """`issue.md`, `repro.py`, and the tensors that the program reads."""
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as file:
        file.writestr("issue.md", issue(investigation))
        if investigation.finding.program is not None:
            file.writestr("repro.py", mask_private(investigation.finding.program))
        if loads_data(investigation.finding):
            with (
                suppress(OSError, RunnerError),
                RunDir(investigation.record.folder).open(
                    f"artifacts/investigation/{DATA_FILE}"
                ) as data,
            ):
                file.writestr(DATA_FILE, data.read())
    return buffer.getvalue()


ButtonType = Literal["primary", "secondary", "tertiary"]


def _open_button(
    label: Markdown, icon: str, experiment_id: str, type: ButtonType = "tertiary"
) -> None:
    """Opens another experiment on the same page."""
    st.button(
        label,
        icon=icon,
        type=type,
        key=f"open-{experiment_id}",
        on_click=write_address,
        kwargs={"experiment": experiment_id},
    )


def show_search(store: Store, comparison: Comparison) -> None:
    """Links a search to its confirmation, and a confirmation to its search."""
    spec = comparison.spec
    if spec.confirms is not None:
        _open_button("The search", ":material/manage_search:", spec.confirms, "secondary")
    if not spec.kind.has_candidates:
        return
    listed = queries.list_experiments(store)
    confirmations = listed[listed["confirms"] == comparison.experiment_id]
    if confirmations.empty:
        ended = next(
            (warning.reason for warning in comparison.warnings if isinstance(warning, SearchEnded)),
            "",
        )
        why = f" The search ended because {inert(ended)}." if ended else ""
        baseline = of_role(comparison.results, "baseline")
        ended_as = RunState(baseline.state) if baseline else RunState.LOST
        short = ""
        if baseline is not None and not ended:
            short = why_too_short(spec, data_dir().run_dir(baseline.run_id))
        reason = inert(short or why_unconfirmed(ended_as))
        st.info(f"{reason}{why}", icon=":material/manage_search:")
        return
    row = confirmations.iloc[0]
    state = ExperimentState(row["state"])
    with st.container(horizontal=True, vertical_alignment="center"):
        verb = "are trained" if state.is_active else "were trained"
        finalists = linked("speedup", "The best candidates")
        _open_button(
            "The confirmed answer", ":material/verified:", str(row["experiment_id"]), "primary"
        )
        st.markdown(
            f"{finalists} {verb} from the beginning, in fresh processes: that comparison decides.",
            width="content",
        )
