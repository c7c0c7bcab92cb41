"""Pages as a reader sees them, without a browser: opens, reads, clicks."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from breakeven.runner.arguments.options import FIELDS
from breakeven.runner.experiments.queue import experiments
from breakeven.runner.machine.capabilities import visible_hardware
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.values import write_options
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import compute_missing
from breakeven.views.parts import actions
from breakeven.views.scenarios.timed import TABS
from breakeven.views.shared import resources
from breakeven.views.shared.resources import process_wide
from tests.helpers.journals import EXPERIMENT_ID
from tests.helpers.machine import MACHINE, keep

ROOT = Path(__file__).parents[2]
# Each page under test would search every installed package for components, which takes longer than
# the page itself; a server searches once.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


def close_store(folder: DataDir) -> None:
    """Makes this process forget the store of a data folder, as its end would."""
    store = process_wide().stores.pop(folder.path, None)
    if store is not None:
        store.close()


@contextmanager
def shown(place: Path) -> Iterator[DataDir]:
    """An empty data folder that knows this machine, and no shipped examples."""
    data_dir = DataDir(place / "data")
    data_dir.path.mkdir()
    # As this process sees the machine now: else a page asks torch, and waits long beside others.
    keep(data_dir, replace(MACHINE, seen=visible_hardware()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BREAKEVEN_DATA", str(data_dir.path))
        patch.setattr(resources, "EXAMPLES", place / "examples")
        # What a supervisor then does is the subject of the browser tests; here it would waste time.
        patch.setattr(actions, "ensure_supervisor", lambda data_dir: None)
        patch.setattr(resources, "ensure_supervisor", lambda data_dir: None)
        yield data_dir
        close_store(data_dir)


def compare_all(folder: DataDir) -> None:
    """Computes the numbers of every experiment, as if somebody had waited on a page."""
    with Store.open(folder, examples=resources.EXAMPLES) as store:
        store.ingest_all()
        compute_missing(store, 1000.0)


def opened(page: str = "experiment", **query: str) -> AppTest:
    """A page at its address, in its own session; raises the errors of the page."""
    app = AppTest.from_file(ROOT / "dashboard.py", default_timeout=120)
    if page == "experiments":  # which contains the address of the dashboard itself
        query = {"view": "Table", **query}
    else:
        app.switch_page(f"views/{page}.py")
    for name, value in query.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception, [element.value for element in app.exception]
    return app


def every_tab(**query: str) -> list[AppTest]:
    """The page of an experiment, once for each of its tabs."""
    return [opened(tab=tab, **query) for tab in TABS]


def text(app: AppTest) -> str:
    """All texts of the page in one string, in reading order; links are shown as their words."""
    shown = [*app.markdown, *app.caption, *app.warning, *app.error, *app.info, *app.code]
    said = "\n".join(
        [*(entry.value for entry in shown), *(entry.proto.body for entry in app.get("html"))]
    )
    return unescape(without_links(said))


def without_links(said: str) -> str:
    without = re.sub(r'\[([^]]*)\]\(definitions#\w+(?: "[^"]*")?\)', r"\1", said)
    return re.sub(
        r'<a target="_blank" href="definitions#\w+"(?: title="[^"]*")?>([^<]*)</a>', r"\1", without
    )


def opened_run(label: str = "inductor", **query: Any) -> AppTest:
    """The page of a run of the recorded experiment, or a part of that page."""
    run = f"{EXPERIMENT_ID}.{label}"
    return opened("experiment", tab="Runs", experiment=EXPERIMENT_ID, run=run, **query)


def tables(app: AppTest) -> list[pd.DataFrame]:
    return [entry.value for entry in app.dataframe]


def table(app: AppTest, column: str) -> pd.DataFrame:
    """The only table with this column."""
    (with_column,) = [frame for frame in tables(app) if column in frame.columns]
    return with_column


def cards(app: AppTest) -> list[str]:
    said = [without_links(entry.value) for entry in app.markdown]
    return [title for text in said for title in re.findall(r"^\*\*(.+)\*\*$", text)]


def charts(app: AppTest) -> str:
    components = [json.loads(entry.proto.json or "{}") for entry in app.get("bidi_component")]
    moving = [component["figure"] for component in components if "figure" in component]
    return "\n".join([*(entry.proto.spec for entry in app.get("plotly_chart")), *moving])


def set_field(app: AppTest, path: str, value: Any) -> None:
    """Types a value into the widget of a field of the preset `quick`."""
    key = f"quick.{FIELDS[path].key}"
    if (
        path in ("model.source", "data.source")
        and app.selectbox(key="quick.task").value == "custom"
    ):
        key = key.replace("quick.", "quick.custom.")  # each task has its own
    if isinstance(value, dict):
        value = write_options(value)
    elif path == "devices":
        (value,) = value
    elif isinstance(value, tuple):
        value = list(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    kinds = (app.selectbox, app.multiselect, app.text_input, app.toggle)
    (widget,) = [element for kind in kinds for element in kind if element.key == key]
    assert not widget.disabled, path
    widget.set_value(value)


def launched(app: AppTest, folder: DataDir) -> ExperimentSpec:
    before = {experiment.experiment_id for experiment in experiments(folder)}
    app.run()
    assert not app.exception and not app.error, text(app)
    app.button(key="launch").click().run()
    (new,) = [
        experiment for experiment in experiments(folder) if experiment.experiment_id not in before
    ]
    return new.spec
