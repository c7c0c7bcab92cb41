"""Exported figures, as HTML pages of their own that name their experiment.

`views/parts/pictures.py` makes pictures of them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.numbers.metrics import NUMBERS, read_definitions
from breakeven.views.shared import words
from breakeven.views.shared.inert import Html, inert, inert_figure
from breakeven.views.shared.links import anchors_in, without_link

MAX_SLUG = 40


@dataclass(frozen=True)
class Origin:
    """The subject of a page's files: the beginning of their names, and lines of facts."""

    name: str = ""
    facts: tuple[str, ...] = ()


NOTHING_KNOWN = Origin()
_origin: ContextVar[Origin] = ContextVar("origin", default=NOTHING_KNOWN)


def origin() -> Origin:
    """The origin of the page, or of the part of it, that is being drawn."""
    return _origin.get()


@contextmanager
def files_of(found: Origin) -> Iterator[None]:
    """A context in which all downloads name this origin."""
    before = _origin.set(found)
    try:
        yield
    finally:
        _origin.reset(before)


def experiment_origin(store: Store, experiment: pd.Series) -> Origin:
    """Experiment, model, data, device, precision, versions and date, if known; `experiment`: a row
    of `storage.queries.list_experiments`."""
    experiment_id = str(experiment["experiment_id"])
    spec = queries.experiment_spec(store, experiment_id)
    known = queries.environments(store, experiment_id).to_dict("records")
    environment = known[0] if known else {}
    versions = {"Python": environment.get("python"), **(environment.get("versions") or {}),
                "CUDA": environment.get("cuda"), "driver": environment.get("driver")}  # fmt: skip
    device = str(experiment["device"])
    if isinstance(experiment["device_name"], str):
        device = f"{experiment['device_name']} ({device})"
    return Origin(
        name=f"{slug(spec.name)}-{experiment_id[:8]}-{experiment_id[-4:]}",
        facts=(
            f"{spec.name} · {experiment_id}",
            " · ".join(filter(None, [spec.subject, device, spec.precision,
                                     words.day(experiment["submitted"])])),
            ", ".join(f"{name} {version}" for name, version in versions.items()
                      if isinstance(version, str) and version),
        ),
    )  # fmt: skip


def of_one_run(about: Origin, label: str) -> Origin:
    """The origin of one run of the experiment."""
    first, *others = about.facts
    return Origin(name=f"{about.name}-{slug(label)}", facts=(f"{first} · run {label}", *others))


def suite_origin(run: pd.Series) -> Origin:
    """The origin of a suite run, a row of `storage.queries.list_suite_runs`."""
    suite_run = str(run["suite_run"])
    facts = [run["device_name"], run["torch_version"] and f"torch {run['torch_version']}",
             words.day(run["submitted"])]  # fmt: skip
    facts_text = " · ".join(str(fact) for fact in facts if isinstance(fact, str) and fact)
    return Origin(name=slug(suite_run), facts=(suite_run, facts_text))


def slug(name: str) -> str:
    """A name that can begin a file name on any system."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain[:MAX_SLUG].rstrip("-") or "experiment"


def to_html(
    figure: go.Figure,
    title: str,
    numbers: Sequence[str],
    about: Origin = NOTHING_KNOWN,
    note: str = "",
) -> bytes:
    """An HTML page that needs no network, with plotly.js inside.

    Above the chart are its title and facts, below it the definitions of its numbers and of those on
    its axes.
    """
    anchors = [NUMBERS[name].anchor for name in numbers]
    axes = [*figure.select_xaxes(), *figure.select_yaxes()]
    anchors += [anchor for axis in axes for anchor in anchors_in(axis.title.text or "")]
    page: str = inert_figure(for_export(figure)).to_html(
        include_plotlyjs=True, config={"displaylogo": False, "showSendToCloud": False}
    )
    facts = "<br>".join(inert(fact) for fact in (*about.facts, note) if fact)
    style = "font-family: sans-serif; line-height: 1.5; max-width: 60rem; margin: 2rem 70px"
    head = f'<header style="{style}"><h1>{inert(title)}</h1><p>{facts}</p></header>'
    page = page.replace("<head>", f"<head><title>{inert(title)}</title>", 1)
    page = page.replace("<html>", '<html lang="en">', 1).replace("<body>", f"<body>{head}", 1)
    end = f'<section style="{style}">{_definitions(anchors)}</section></body>'
    before, _, after = page.rpartition("</body>")
    return f"{before}{end}{after}".encode()


def for_export(figure: go.Figure) -> go.Figure:
    """A copy with its own template, independent of the theme. Its axes have no links, because they
    lead into the dashboard."""
    copy = go.Figure(figure.to_dict())
    for axis in [*copy.select_xaxes(), *copy.select_yaxes()]:
        axis.title.text = without_link(axis.title.text or "")
    return copy.update_layout(template="plotly_white", margin={"l": 70, "r": 30, "b": 60})


def _definitions(anchors: Iterable[str]) -> Html:
    """Definitions as HTML; their Markdown stays, because it is readable as text."""
    known = read_definitions()
    titles = {name: number.axis_title for name, number in NUMBERS.items()}
    return "".join(
        f'<h3 id="{inert(anchor)}">{inert(titles.get(anchor, anchor))}</h3>'
        f'<p style="white-space: pre-line">{inert(known[anchor])}</p>'
        for anchor in dict.fromkeys(anchors)
    )
