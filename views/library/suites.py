"""Suite runs: many models under each backend, and changes since an earlier run; and the form that
queues a suite.
"""

import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any, get_args

import pandas as pd
import streamlit as st

from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.specs.arm_fields import Settings
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.training import Precision
from breakeven.runner.suites import SUITES
from breakeven.runner.suites.suite_matrix import (
    PARTS,
    SUITE_SCENARIOS,
    Matrix,
    new_suite_run,
    submit_missing,
)
from breakeven.storage import queries
from breakeven.storage.exchange.benchmark_formats import suite_rows
from breakeven.storage.index.store import Store
from breakeven.storage.suite_runs.cells import outcomes
from breakeven.storage.suite_runs.groups import Outcome, SuiteChanges, groups, suite_changes
from breakeven.storage.words.suites import UNCLEAR, change_text, other_conditions
from breakeven.views.access import permissions
from breakeven.views.charts import across_experiments as suite_charts
from breakeven.views.charts.across_experiments import heat_map
from breakeven.views.parts import exchange
from breakeven.views.parts.actions import check, errors_shown, work_off_the_queue
from breakeven.views.parts.downloads import Card, show_card, show_table, table_downloads
from breakeven.views.parts.pictures import files_of, suite_origin
from breakeven.views.report import menu as report_menu
from breakeven.views.report import suite_tables
from breakeven.views.shared import words
from breakeven.views.shared.address import choose_earlier, choose_suite_run
from breakeven.views.shared.definition_links import linked, sentence
from breakeven.views.shared.inert import Markdown, inert
from breakeven.views.shared.resources import capabilities, data_dir

EMPTY = """\
#### No suite was run here yet

A suite runs many models of PyTorch's benchmarks under every backend, checks their numbers and
times them. `breakeven queue suite` does the same.
"""


def show(store: Store) -> None:
    runs = queries.list_suite_runs(store)
    if runs.empty:
        st.markdown(EMPTY)
        st.page_link(
            "views/launch.py",
            label="Launch a suite",
            icon=":material/rocket_launch:",
            query_params={"start": "suite"},
        )
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        run = choose_suite_run(runs)
        earlier = choose_earlier(runs, run["suite_run"])
    with st.spinner(f"Reading {words.plural(run['num_experiments'], 'experiment')} …"):
        run_outcomes = outcomes(store, run["suite_run"])
        before = outcomes(store, earlier) if earlier else []
    compared = suite_changes(run_outcomes, before) if earlier else None
    show_answer(store, run, run_outcomes, compared, earlier)
    with files_of(suite_origin(run)):
        show_summary(store, run, run_outcomes)
        if compared is not None:
            show_changes(earlier, compared, other_conditions(runs, run["suite_run"], earlier))
        show_speedups(run_outcomes, before)
        show_cells(run_outcomes)
        exchange.show_imported(store, run["suite_run"], suite_rows)


def show_answer(
    store: Store,
    run: pd.Series,
    run_outcomes: Sequence[Outcome],
    compared: SuiteChanges | None,
    earlier: str,
) -> None:
    """Shows the answer in one or two sentences, the progress of the run, and its machine."""
    num_open = run["num_experiments"] - run["num_over"]
    if num_open:
        st.info(
            f"{num_open:,} of {run['num_experiments']:,} experiments are not finished; the "
            "numbers below are preliminary.",
            icon=":material/hourglass_top:",
        )
    st.markdown(f"### {suite_tables.headline(groups(run_outcomes), compared, earlier)}")
    parts = [run["device_name"], words.day(run["submitted"])]
    parts += [f"torch {run['torch_version']}"] if run["torch_version"] else []
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(" · ".join(inert(part) for part in parts if part), width="stretch")
        report_menu.links(run["suite_run"])
        with st.container(width="content"):
            report_menu.show(store, run["suite_run"], suite_origin(run), is_suite=True)


def show_summary(store: Store, run: pd.Series, run_outcomes: Sequence[Outcome]) -> None:
    """A row for each backend, precision and part, and the files in the harness's formats."""
    rows = groups(run_outcomes)
    show_table(
        "All models together",
        suite_tables.summary(rows),
        "suite-summary",
        "",
        dict.fromkeys(("models", "counted", "failed"), "geomean_speedup"),
        download=suite_tables.numbers(rows),
    )
    in_means = suite_tables.models_in_means(rows)
    if in_means:
        st.caption(
            "  \n".join(
                [f"{linked('left_out', 'Influence of single models on the means')}:", *in_means]
            )
        )
    failures = {
        f"{model} ({', '.join(row.row)}): {reason}": None
        for row in rows
        for model, reason in row.failures.items()
    }
    if failures:
        listed = "\n".join(f"- {inert(failure)}" for failure in failures)
        st.warning(f"Left out of the mean speedup:\n{listed}", icon=":material/info:")
    exchange.buttons(store, run["suite_run"])


def show_changes(earlier: str, compared: SuiteChanges, conditions: str) -> None:
    """Shows cells that became worse or better, cells that only one run has, and different
    conditions of the two runs."""
    if conditions:
        st.warning(
            f"The two runs had different conditions: {inert(conditions)}.", icon=":material/info:"
        )
    table = pd.DataFrame(
        [
            {
                **change.cell._asdict(),
                "what": change.kind,
                "change": "worse" if change.is_worse else "better",
                "before": change.before,
                "now": change.now,
                "warnings": " ".join(
                    str(warning.sentence_without_runs()) for warning in change.warnings
                ),
            }
            for change in compared.changes
        ]
    )
    if not any(change.warnings for change in compared.changes):
        table = table.drop(columns="warnings", errors="ignore")
    show_table(
        f"Worse or better than {inert(earlier)}",
        table,
        "suite-changes",
        "No cell is clearly better or worse.",
        {"before": "suite_change", "now": "suite_change"},
    )
    notes = [
        f"**{inert(', '.join(row))}**: {sentence(change_text(mean))}"
        for row, mean in compared.means.items()
    ]
    if compared.unclear:
        unclear = ", ".join(dict.fromkeys(cell.model for cell in compared.unclear))
        notes.append(
            f"{words.plural(len(compared.unclear), 'undecided cell')} (for each, "
            f"{UNCLEAR}): {inert(unclear)}."
        )
    for which, cells in (("earlier", compared.only_before), ("later", compared.only_now)):
        if cells:
            models = ", ".join(dict.fromkeys(cell.model for cell in cells))
            notes.append(
                f"Only the {which} run has {words.plural(len(cells), 'cell')}: {inert(models)}."
            )
    st.caption("  \n".join(notes))


def show_speedups(run_outcomes: Sequence[Outcome], before: Sequence[Outcome]) -> None:
    frame = suite_charts.speedup_frame(run_outcomes, before)
    if frame.empty:
        return
    draw = suite_charts.by_conditions(frame)
    alike: dict[str, list[Outcome]] = {}
    for outcome in run_outcomes:
        alike.setdefault(f"{outcome.cell.precision}, {outcome.cell.part}", []).append(outcome)
    draw |= {
        f"{title}, matrix": partial(heat_map, suite_charts.speedup_matrix(alike[title]))
        for title in list(draw)
    }
    show_card(
        Card("Speedup of every model", draw, frame, name="suite-speedups", numbers=["speedup"])
    )


def show_cells(run_outcomes: Sequence[Outcome]) -> None:
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown("**Every cell**", width="stretch")
            table_downloads(suite_tables.cells_frame(run_outcomes), "suite-cells")
        st.html(suite_tables.cells_html(run_outcomes))


SETTINGS: tuple[Settings, ...] = get_args(Settings)[::-1]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
CPU_SHRINK = 16
"""Default without a GPU: the suites' own sizes take hours on a CPU."""
MANY = 200
"""Number of experiments from which the form warns."""


def show_form() -> None:
    """The form, once the hardware is known."""
    machine = capabilities()
    if machine is None:
        st.caption("Detecting the hardware of this machine: the form opens within 10 seconds.")
        if st.button("Try again", key="suite-look"):
            st.rerun()
        return
    with errors_shown():
        cells, command = _ask(machine)
        _offer(cells, command, machine)


def _ask(machine: Capabilities) -> tuple[list[ExperimentSpec], str]:
    """All requested experiments, and the command that queues the same ones; raises
    `InvalidSpec`."""
    left, right = st.columns(2)
    with left:
        about = [
            f"**{inert(suite.name)}**: {inert(suite.text)}"
            + (f" Needs: {inert(suite.install)}" if suite.install else "")
            for suite in SUITES.values()
        ]
        chosen = st.selectbox("Suite", list(SUITES), key="suite-name", help="\n\n".join(about))
        suite = SUITES[chosen]
        names = [model.name for model in suite.models]
        everything = f"all models of the harness ({len(suite.choose(()))})"
        models = st.multiselect(
            "Models",
            names,
            default=suite.begin_with,
            key=f"suite-models-{suite.name}",
            select_all=False,
            placeholder=everything,
            help=f"Two are preselected; an empty field means {everything}.",
        )
        known = machine.backends
        usual = ["inductor"] if "inductor" in known else list(known[:1])
        backends = st.multiselect(
            "Backends",
            known,
            default=usual,
            key="suite-backends",
            accept_new_options=True,
            filter_mode="prefix",
            select_all=False,
            help="By name or with settings, such as `inductor:mode=max-autotune`.",
        )
        ids = [device.id for device in machine.devices]
        device = st.selectbox(
            "Device",
            ids[::-1],
            key="suite-device",
            format_func=lambda id: _device_text(machine, id),
        )
    with right:
        scenarios = st.pills(
            "Measurements",
            SUITE_SCENARIOS,
            selection_mode="multi",
            default=suite.scenarios,
            key=f"suite-scenarios-{suite.name}",
        )
        parts = st.pills("Parts", PARTS, selection_mode="multi", default=PARTS, key="suite-parts")
        precisions = st.pills(
            "Precision",
            PRECISIONS,
            selection_mode="multi",
            default=["float32"],
            key="suite-precisions",
        )
        settings = st.pills(
            "Settings of torch",
            SETTINGS,
            selection_mode="multi",
            default=["harness"],
            key="suite-settings",
            help="Those of PyTorch's Dynamo harness, or torch's "
            "defaults, or both. How to reproduce the harness's numbers: "
            "`docs/suites.md`.",
        )
        shrinks = suite.name == "huggingface"
        shrink = int(
            st.number_input(
                "Divide model sizes by",
                1,
                9999,
                CPU_SHRINK if device == "cpu" and shrinks else 1,
                key=f"suite-shrink-{device}-{suite.name}",
                disabled=not shrinks,
                help="The numbers of layers, attention heads and words are divided by this, for "
                "trials "
                "on small machines. 1 is the original size.",
            )
        )
    matrix = Matrix(
        suite=suite,
        models=suite.choose(models),
        precisions=tuple(precision for precision in PRECISIONS if precision in precisions),
        parts=tuple(parts),
        scenarios=tuple(scenarios),
        settings=tuple(setting for setting in SETTINGS if setting in settings),
        shrink=shrink,
    )
    base: dict[str, Any] = {"backends": tuple(backends), "devices": (device,)}
    return list(matrix.cells(base, new_suite_run(suite.name))), _command(matrix, backends, device)


def _offer(cells: list[ExperimentSpec], command: str, machine: Capabilities) -> None:
    """Shows the number of experiments, the equivalent command and the button."""
    count = words.plural(len(cells), "experiment")
    warned = " On the page Machine you can stop some of them." if len(cells) > MANY else ""
    st.caption(f"{count}, each with every backend, a baseline and a control.{warned}")
    with st.container(horizontal=True, vertical_alignment="center"):
        clicked = st.button(
            f"Queue {count}",
            type="primary",
            icon=":material/rocket_launch:",
            disabled=not cells,
            key="suite-queue",
        )
        with st.popover("Command", icon=":material/terminal:", type="tertiary"):
            st.code(command, language="bash", wrap_lines=True)
    if clicked:
        permissions.require_acting()
        for cell in cells:  # If one is refused, none is queued.
            check(cell, machine)
        submit_missing(data_dir(), cells, checked=cells)
        work_off_the_queue()
        query = {"view": "Suites", "suite_run": str(cells[0].suite_run)}
        st.switch_page("views/all_experiments.py", query_params=query)


def _device_text(machine: Capabilities, id: str) -> Markdown:
    name = next(device.name for device in machine.devices if device.id == id)
    return inert(f"{id} ({name})")


def _command(matrix: Matrix, backends: list[str], device: str) -> str:
    options = {
        "models": [model.name for model in matrix.models],
        "backends": backends,
        "precision": matrix.precisions,
        "parts": matrix.parts,
        "scenarios": matrix.scenarios,
        "settings": matrix.settings,
    }
    parts = [f"--{name}={','.join(values)}" for name, values in options.items()]
    if matrix.models == matrix.suite.choose(()):
        parts = parts[1:]
    parts += [f"--shrink={matrix.shrink}"] if matrix.shrink > 1 else []
    return shlex.join(
        ["breakeven", "queue", "suite", matrix.suite.name, *parts, f"--device={device}"]
    )
