"""All pages with strangers' texts in every free field, in a real Chromium."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pandas as pd
import pytest
from playwright.sync_api import Browser, Page, Request

from runner.folders.run_dir import DataDir
from tests.helpers.hostile_texts.store import BACKEND, EXPERIMENTS, hostile, record_hostile, short
from tests.helpers.hostile_texts.texts import HOST
from tests.helpers.machine import MACHINE, keep
from tests.helpers.pages import compare_all
from tests.helpers.serving import served
from views.charts import bars
from views.charts import layers as charts
from views.parts.downloads import to_html

pytestmark = pytest.mark.browser
RUN_TABS = ("Steps", "Scores", "Gradients", "Compiling", "Device", "Checkpoints", "Settings",
            "Environment", "Log")  # fmt: skip
LIVING = """() => {
    const shown = ['title', 'alt', 'aria-label', 'value', 'placeholder', 'content', 'download'];
    const found = [];
    for (const element of document.querySelectorAll('*'))
        for (const {name, value} of element.attributes)
            if (value.includes('HOST') && !shown.includes(name) && !name.startsWith('data-')
                && !(name == 'href' && new URL(value, location).host == location.host))
                found.push(`<${element.localName} ${name}="${value.slice(0, 200)}">`);
    return found;
}""".replace("HOST", HOST)
"""Attributes that hold a stranger's address, but for those that are only read out, and links within
the dashboard, whose query has a run's id with its label."""
UNFOLD = "document.querySelectorAll('details:not([open]) > summary').forEach(one => one.click())"
MADE = "[data-testid=stMain] :is(img[src^=http], iframe, object, embed, .katex, video, audio)"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = DataDir(tmp_path_factory.mktemp("hostile"))
    keep(folder, MACHINE)
    record_hostile(folder)
    compare_all(folder)
    with served(folder) as (url, _server):
        yield url


class Walk:
    """A reader of the pages whose browser notes what it is made to do."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.asked: list[str] = []
        self.seen: set[str] = set()
        """Where the texts stood that were shown."""
        page.on("request", self._note)

    def _note(self, request: Request) -> None:
        if HOST in re.sub(r"^http://127[^?]*\?.*", "", request.url):
            self.asked.append(request.url)

    def open(self, path: str, **query: str) -> None:
        asked = "&".join(f"{name}={quote(value)}" for name, value in query.items())
        self.page.goto(f"{self.address}/{path}?{asked}")
        ended = "[data-testid=stApp][data-test-script-state=notRunning]"
        self.page.locator(ended).wait_for()
        self.page.wait_for_timeout(400)  # a page may run again by itself, and charts take a moment
        self.page.locator(ended).wait_for()
        self.page.evaluate(UNFOLD)
        self.page.wait_for_timeout(200)
        self.look()

    def look(self) -> None:
        failed = self.page.locator("[data-testid=stException]").all_inner_texts()
        assert not failed, (self.page.url, failed)
        living = self.page.evaluate(LIVING)
        assert not living, (self.page.url, living)
        assert self.page.locator(MADE).count() == 0, self.page.url
        assert self.asked == []
        self.seen |= set(re.findall(rf"{re.escape(HOST)}/([\w-]+)", self.page.content()))


@pytest.fixture(scope="module")
def walk(browser: Browser, address: str) -> Iterator[Walk]:
    # The policy that keeps browsers from asking strangers is put aside: texts alone have to hold.
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, bypass_csp=True)
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield Walk(page, address)
    context.close()


def test_no_text_of_a_stranger_acts_on_any_page(walk: Walk) -> None:
    for experiment_id in EXPERIMENTS.values():
        for path in ("", "live"):
            walk.open(path, experiment=experiment_id)
    for tab in RUN_TABS:
        experiment_id = EXPERIMENTS["train"]
        walk.open("run", experiment=experiment_id, run=f"{experiment_id}.{BACKEND}", tab=tab)
    failed = EXPERIMENTS["failed"]
    walk.open("run", experiment=failed, run=f"{failed}.inductor")
    walk.open("experiments", q=HOST)
    walk.open("difference?side=" + "&side=".join(EXPERIMENTS.values()) + "&end=")
    walk.open("launch", again=failed)
    walk.open("suites", suite_run=short("suite_run"))
    walk.open("matrix")
    walk.open("trends")
    walk.open("definitions")
    walk.open("launch")
    told = {"name", "model", "error-message", "error-traceback", "stopped-reason", "suite_run",
            "workload-notes", "environment-host", "environment-versions-torch", "output-log",
            "environment-cpu_threads_reason", "value-name", "device-throttle_reasons",
            "device-processes-name", "evaluation-metrics-key", "graph_break-reason",
            "accuracy-tensor", "accuracy_status-message", "import-name",
            "source-source"}  # fmt: skip
    assert told <= walk.seen, told - walk.seen


def test_no_text_of_a_stranger_acts_in_a_report(walk: Walk) -> None:
    before, walk.seen = walk.seen, set()
    for kind, experiment_id in EXPERIMENTS.items():
        answer = walk.page.goto(f"{walk.address}/report/{experiment_id}")
        assert answer and answer.status == 200, kind
        walk.page.evaluate("drawAllForPaper()")
        walk.page.evaluate(UNFOLD)
        walk.look()
        walk.page.keyboard.press("p")
        for _ in range(walk.page.locator("#show .step").count()):
            walk.page.keyboard.press("ArrowRight")
            walk.look()
    told = {"name", "model", "environment-host", "environment-versions-torch", "workload-notes"}
    assert told <= walk.seen, told - walk.seen
    walk.seen |= before


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("experiments", ("q", "model", "columns", "sort", "tag", "archived")),
        ("", ("experiment", "runs", "loss", "break-even", "step-times", "speedup", "predictions")),
        ("live", ("experiment",)),
        ("run", ("experiment", "run", "tab", "values", "gradients")),
        ("suites", ("suite_run", "against", "suite-speedups")),
        ("matrix", ("across", "cells", "q", "model", "sort")),
        ("trends", ("of", "training", "q", "device")),
        ("launch", ("preset", "again", "quick.name",
                    "quick.backends", "quick.text_column", "quick.data",
                    "own.data", "quick.model", "quick.optimizer_options", "quick.task",
                    "quick.parameter_groups", "quick.learning_rate", "quick.losses")),
        ("definitions", ("anything",)),
    ],
)  # fmt: skip
def test_no_address_acts_on_the_page_that_it_opens(
    walk: Walk, path: str, names: tuple[str, ...]
) -> None:
    walk.open(path, **{name: hostile("query") for name in names})


def test_a_chart_that_left_as_a_page_of_its_own_asks_nobody(walk: Walk, tmp_path: Path) -> None:
    label = hostile("label")
    frame = pd.DataFrame({"run_id": "x", "label": [label, label, "other", "other"],
                          "role": "backend", "step": [0, 1, 0, 1], "loss": [3.0, 2.0, 3.0, 1.0],
                          "seconds": 0.1})  # fmt: skip
    for draw in (charts.losses, bars.step_times):
        file = tmp_path / "chart.html"
        file.write_bytes(to_html(draw(frame), "Title", ["loss"]))
        walk.page.goto(file.as_uri())
        walk.page.locator(".js-plotly-plot .main-svg").first.wait_for()
        walk.page.wait_for_timeout(300)
        assert HOST in walk.page.inner_text("body"), "it is shown"
        assert not walk.page.evaluate(LIVING)
        assert walk.asked == []
