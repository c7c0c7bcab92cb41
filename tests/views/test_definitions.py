"""Every number on every page links to its definition: the test visits all pages."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.library.catalog import compute_missing
from breakeven.storage.numbers.metrics import NUMBERS, read_chapters, read_definitions
from breakeven.storage.queries import time_use
from breakeven.views.charts import losses as loss_charts
from breakeven.views.library.table import COLUMNS
from breakeven.views.parts.downloads import to_html
from breakeven.views.scenarios.timed import TABS as EXPERIMENT_TABS
from breakeven.views.shared import resources
from tests.helpers.comparisons import series
from tests.helpers.correctness_journals import passing, record, tensor
from tests.helpers.device_journals import OTHER
from tests.helpers.device_journals import record as on_device
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, record_experiment
from tests.helpers.pages import every_tab, opened, opened_run, text
from tests.helpers.pages_journals import record_rich
from tests.helpers.speed_journals import record_speed, speed_spec
from tests.helpers.suites import HARNESS, SuiteRecorder, bring

LINK = re.compile(r"definitions#(\w+)")
LINKED_WORDS = re.compile(r'\[[^]]*\]\(definitions#\w+ "[^"]*"\)|`[^`]*`')
QUANTITY = re.compile(
    r"\d[\d.,]*( ?(x|%|ms|s|min|h|[KMG]iB)|(?<=\d) (steps?|epochs?|samples?))(?![\w-])"
)
"""A number with its unit, as `storage.numbers.formats` and `views.shared.words` write it."""
TABS = ("Steps", "Scores", "Gradients", "Compiling", "Checkpoints", "Environment")
OLDER = "20261101-093015-123456-7f3b"
NAMES = {"Pid"}
"""Columns whose digits are names and no counts."""
SAID = ("markdown", "caption", "info", "warning", "error", "progress")


def blocks_with(app: AppTest, kind: str) -> Iterator[tuple[Any, list[str]]]:
    """Each element of a kind, and the help texts of the card that holds it."""
    for block in app:
        if is_frame(block):
            continue
        for child in getattr(block, "children", {}).values():
            for element in child.children.values() if is_frame(child) else [child]:
                if element.type == kind:
                    yield (
                        element,
                        [
                            neighbour.proto.help
                            for neighbour in block
                            if neighbour.type == "markdown"
                        ],
                    )


def is_frame(block: Any) -> bool:
    """Whether it is the container of a low chart inside its card."""
    return "-low-" in getattr(getattr(block, "proto", None), "id", "")


def are_numbers(values: Any) -> bool:
    """Whether a column shows quantities, as numbers or as formatted texts."""
    if isinstance(values, dict) or not len(values):  # Plotly's packed arrays
        return bool(values)
    column = pd.Series(list(values)).dropna()
    if column.empty:
        return False
    if column.map(lambda value: isinstance(value, str)).all():
        return bool(column.str.match(r"^[<~]?[\d.,]+( ?[a-zA-Z%/]+)?( \(.*\))?$").any())
    return pd.api.types.is_numeric_dtype(column) and column.dtype != bool


def unexplained_columns(app: AppTest) -> list[str]:
    meant = {number.definition: number.anchor for number in NUMBERS.values()}
    missing = []
    for table, helps in blocks_with(app, "dataframe"):
        config = json.loads(table.proto.columns or "{}")
        for title, values in table.value.items():
            anchor = meant.get(config.get(title, {}).get("help"))
            if (
                title not in NAMES
                and are_numbers(values)
                and anchor not in LINK.findall(" ".join(helps))
            ):
                missing.append(f"column {title}")
    return missing


def unexplained_axes(app: AppTest) -> list[str]:
    missing = []
    for chart, helps in blocks_with(app, "bidi_component"):
        content = json.loads(chart.proto.json or "{}")
        if "figure" not in content:
            continue
        figure = json.loads(content["figure"])
        for trace in figure["data"]:
            if "z" in trace and not LINK.search(" ".join(helps)):
                missing.append(f"colours of {trace['type']}")
            for letter in "xy":
                axis = figure["layout"].get(f"{letter}axis", {})
                title = axis.get("title", {}).get("text", "")
                values = trace.get("median" if letter == "x" and "median" in trace else letter, [])
                if are_numbers(values) and not LINK.search(title):
                    missing.append(f"axis {letter} of {trace.get('name')}: {title}")
    return missing


def unexplained_cells(app: AppTest) -> list[str]:
    """Cells of HTML tables that begin with a digit, below a header without a link."""
    missing = []
    for element in app.get("html"):
        html = element.proto.body
        headers = re.findall(r"<th>(.*?)</th>", html)[1:]
        for row in re.findall(r"<tr>(<td>.*?)</tr>", html):
            cells = re.findall(r"<td>(.*?)</td>", row)[1:]
            missing += [
                f"cell {cell}"
                for header, cell in zip(headers, cells, strict=True)
                if re.match(r"[<~]?\d", re.sub("<[^>]*>", "", cell)) and not LINK.search(header)
            ]
        # The cards of the backends, with a name and a number each.
        facts = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html)
        missing += [f"fact {fact}" for name, fact in facts if not LINK.search(name)]
    return missing


def unexplained_words(app: AppTest) -> list[str]:
    said = [
        element.proto.body if hasattr(element.proto, "body") else element.proto.text
        for kind in SAID
        for element in app.get(kind)
    ]
    return [match[0] for text in said if (match := QUANTITY.search(LINKED_WORDS.sub("", text)))]


def dead_links(app: AppTest) -> set[str]:
    everything = " ".join(str(element.proto) for element in app if hasattr(element, "proto"))
    return set(LINK.findall(everything)) - set(read_definitions())


def check(app: AppTest) -> None:
    assert LINK.search(" ".join(str(element.proto) for element in app if hasattr(element, "proto")))
    assert not unexplained_columns(app)
    assert not unexplained_axes(app)
    assert not unexplained_cells(app)
    assert not unexplained_words(app)
    assert not dead_links(app)


def compile_once(run: Recording) -> None:
    when = {"step": 0, "phase": "training", "compile_id": "0/0"}
    run.log.append("compile_started", trigger="DYNAMO", **when)
    run.log.append("compile_ended", trigger="DYNAMO", seconds=3.0, **when)
    run.log.append(
        "compile_metrics",
        **when,
        function="forward",
        file="model.py",
        line=7,
        dynamo_seconds=1.0,
        aot_seconds=1.5,
        inductor_seconds=1.0,
        code_seconds=0.5,
        kernel_seconds=0.2,
        total_seconds=3.0,
        graph_ops=100,
        guards=12,
    )


def cold_and_warm(folder: DataDir) -> None:
    spec = experiment_spec(num_steps=20, scenario="cache", backends=("inductor",))
    Recording(folder.runs, "baseline", spec, OLDER).start().blocks([0.7] * 2, [1.0] * 20).end()
    for label, seconds in (("inductor-cold-1", 8.0), ("inductor-warm-1", 2.0)):
        run = Recording(folder.runs, label, spec, OLDER).start()
        compile_once(run)
        run.block([0.5 + seconds] + [0.5] * 9, [1.0] * 10, compiled=[0])
        layers = {"fx_graph": {"hit": 3, "miss": 1, "bypass": 0}}
        run.log.append("compile_cache", step=10, phase="training", layers=layers)
        run.block([0.5] * 10, [1.0] * 10).end()


@pytest.fixture(scope="module")
def everything(kept_folder: DataDir) -> DataDir:
    record_rich(kept_folder)
    record_experiment(kept_folder.runs, experiment_spec(num_steps=80), OLDER)
    bring(kept_folder, HARNESS)
    return kept_folder


CHOICES = {
    "Verdict": {"break-even": "Time saved"},
    "Learning": {"loss": "Difference"},
    "Runs": {"step-times": "Every step"},
}


@pytest.mark.parametrize("tab", EXPERIMENT_TABS)
def test_every_number_of_a_comparison_leads_to_its_definition(everything: DataDir, tab: str):
    check(opened(experiment=EXPERIMENT_ID, tab=tab))
    if tab in CHOICES:  # of another chart
        check(opened(experiment=EXPERIMENT_ID, tab=tab, **CHOICES[tab]))


@pytest.mark.parametrize("tab", TABS)
def test_every_number_of_a_run_leads_to_its_definition(everything: DataDir, tab: str):
    check(opened_run(part=tab))


def test_every_number_of_a_check_and_of_caches_leads_to_its_definition(folder: DataDir):
    record(folder, "baseline", passing())
    record(folder, "eager", passing())
    record(folder, "inductor", {"training": ("fail_accuracy", [tensor("a", passed=False)])})
    check(opened(experiment=EXPERIMENT_ID))
    cold_and_warm(folder)
    check(opened(experiment=OLDER))
    planned = opened(experiment=OLDER, plan="1000")
    check(planned)
    # 1,000 steps of 0.5 s after 8 or 2 s of compiling, or of 0.7 s.
    times = ("8 min 28 s", "8 min 22 s", "at later ones with filled caches")
    assert all(duration in text(planned) for duration in times)


def test_every_number_of_a_running_experiment_leads_to_its_definition(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
):
    for least in ("SHORTEST_SHOWN", "SMALLEST_SHARE"):
        monkeypatch.setattr(time_use, least, 0.0)  # an activity is shown however short it was
    for label in ("baseline", "control", "inductor"):
        run = Recording(folder.runs, label, experiment_spec(num_steps=40))
        run.claim(ProcessIdentity.from_pid(1)).start().blocks([0.1, 0.1], [1.0] * 20)
    check(opened("experiment", experiment=EXPERIMENT_ID))


def test_the_page_of_definitions_has_an_anchor_for_each_of_them(everything: DataDir):
    app = opened("definitions")
    anchors = [heading.proto.anchor for heading in app.subheader]
    assert set(read_definitions()) <= set(anchors)
    assert len(anchors) == len(set(anchors))
    linked = re.findall(r"\]\(#([\w-]+)\)", " ".join(element.value for element in app.markdown))
    assert linked and set(linked) <= set(anchors)
    assert not re.findall(r"\]\([\w-]+\.md", " ".join(element.value for element in app.markdown))
    assert len(app.caption[0].value.split(" · ")) == len(read_chapters()) - 1


def test_a_chart_that_leaves_as_html_has_the_definitions_of_its_numbers_inside():
    figure = loss_charts.losses(series("loss", baseline=[2.0, 1.0]))
    page = to_html(figure, "Losses", ["parity"]).decode()
    assert all(f'<h3 id="{anchor}">' in page for anchor in ("parity", "loss", "step"))
    assert "Optimizer steps of a run, counted from 0." in page
    assert "definitions#" not in page, "no link leads out of the file"


def test_every_number_of_a_suite_run_leads_to_its_definition(folder: DataDir):
    suite = SuiteRecorder(folder)
    suite.speed("Model", 0.1, suite_run="before", memory=50)
    suite.speed("Model", 0.2, memory=50)
    suite.accuracy("Model", "pass")
    check(opened("experiments", view="Suites", suite_run="now", against="before"))


def test_every_number_about_the_device_leads_to_its_definition(folder: DataDir):
    on_device(folder, throttle_reasons=["power cap"], processes=[OTHER])
    check(opened_run(part="Device"))
    check(opened(experiment=EXPERIMENT_ID, tab="Runs"))


@pytest.mark.parametrize("part", ["training", "inference"])
def test_every_number_of_a_speed_experiment_leads_to_its_definition(folder: DataDir, part: str):
    for label, seconds in (("baseline", 0.2), ("control", 0.2), ("eager", 0.1)):
        record_speed(folder, label, speed_spec(part), seconds, compile_seconds=3.0, num_rounds=20)
    for page in every_tab(experiment=EXPERIMENT_ID):
        check(page)


def test_every_number_of_the_launch_the_list_and_of_sides_leads_to_its_definition(
    everything: DataDir,
):
    check(opened("launch"))
    check(opened("experiments", view="Side by side", side=[EXPERIMENT_ID, OLDER]))
    compute_missing(resources.get_store(), 100.0)
    app = opened("experiments", columns=list(COLUMNS))
    assert app.dataframe[0].value["speedup"].iloc[0] == pytest.approx(2.0)
    check(app)
