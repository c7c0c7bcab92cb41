"""Every page, with records in which strangers wrote every free text, in a real Chromium. Each page
is opened once for two checks: no text of a stranger acts, and axe-core finds nothing serious in
either theme: contrast, names, roles, keyboard."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import pytest
from playwright.sync_api import Browser, Page, Request

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.views.charts import bars
from breakeven.views.charts import losses as loss_charts
from breakeven.views.parts.downloads import to_html
from tests.browser.axe import serious
from tests.browser.going import AT_REST, go
from tests.helpers.hostile_texts.store import BACKEND, EXPERIMENTS, hostile, record_hostile, short
from tests.helpers.hostile_texts.texts import HOST
from tests.helpers.machine import MACHINE, keep
from tests.helpers.pages import compare_all
from tests.helpers.serving import served

pytestmark = pytest.mark.browser
TRAIN, FAILED = EXPERIMENTS["train"], EXPERIMENTS["failed"]
RUN = f"experiment?experiment={TRAIN}&tab=Runs&run={quote(f'{TRAIN}.{BACKEND}')}"
TABS = ("Why", "Learning", "Runs", "Settings")
PARTS = (
    "Steps",
    "Scores",
    "Gradients",
    "Compiling",
    "Device",
    "Checkpoints",
    "Settings",
    "Environment",
    "Log",
)
MACHINE_TABS = ("Devices", "Queue", "Environments", "Health", "Log")
FORM = (
    "name",
    "backends",
    "text_column",
    "data",
    "model",
    "optimizer_options",
    "task",
    "parameter_groups",
    "learning_rate",
    "losses",
)
TEXT = quote(hostile("query"))


def said(*names: str) -> str:
    """Parameters of an address whose values are a stranger's text, which no option has."""
    return "".join(f"&{name}={TEXT}" for name in names)


PAGES = {
    "Launch": "launch?" + said("preset", "again", *(f"quick.{name}" for name in FORM), "own.data"),
    "Definitions": "definitions#speedup",
    **{f"Verdict, {name}": f"experiment?experiment={key}" for name, key in EXPERIMENTS.items()},
    **{
        tab: f"experiment?experiment={TRAIN}&tab={tab}"
        + said("loss", "break-even", "plan", "speedup", "step-times", "values", "gradients")
        for tab in TABS
    },
    "Experiments": f"?q={HOST}" + said("columns", "sort", "view"),
    "Side by side": "?view=Side+by+side&side=" + "&side=".join(EXPERIMENTS.values()),
    "Launch, again": f"launch?again={FAILED}",
    **{f"Run, {part}": f"{RUN}&part={part}" for part in PARTS},
    "Run, failed": f"experiment?experiment={FAILED}&tab=Runs&run={FAILED}.inductor",
    "Suites": f"?view=Suites&suite_run={quote(short('suite_run'))}"
    + said("against", "suite-speedups"),
    "Matrix": "?view=Matrix" + said("across", "cells", "sort"),
    "Trends": "?view=Trends" + said("of", "training", "device"),
    **{f"Machine, {tab}": f"machine?tab={quote(tab)}" + said("device") for tab in MACHINE_TABS},
    "Experiments, others": "?" + said("q", "model", "tag", "archived"),
    "Runs, others": "experiment?tab=Runs" + said("experiment", "runs", "run", "part"),
}
"""The address of each page, for all kinds of records. The form comes first, because it reads its
address only when the app is loaded; the other pages follow their addresses."""
DAILY = {
    "Launch",
    "Verdict, train",
    "Verdict, failed",
    "Verdict, accuracy",
    "Learning",
    "Runs",
    "Experiments",
    "Side by side",
    "Run, Steps",
    "Run, Scores",
    "Run, Compiling",
    "Run, Settings",
    "Run, Environment",
    "Run, Log",
    "Run, failed",
    "Suites",
    "Matrix",
    "Machine, Devices",
}
"""Pages that have all kinds of elements, and show all fields of `MUST_BE_SHOWN`; the others are
slow."""
NOT_FOR_AXE = {"Launch, again", "Experiments, others", "Runs, others"}
"""Pages with nothing that other pages lack."""
SAME_AROUND = {
    *TABS[1:],
    *(f"Run, {part}" for part in PARTS[1:]),
    *(f"Machine, {tab}" for tab in MACHINE_TABS[1:]),
}
"""Tabs whose surroundings the check of the first tab covers."""
MUST_BE_SHOWN = {
    "name",
    "model",
    "error-message",
    "error-traceback",
    "stopped-reason",
    "suite_run",
    "workload-notes",
    "environment-host",
    "environment-versions-torch",
    "output-log",
    "environment-cpu_threads_reason",
    "value-name",
    "device-throttle_reasons",
    "device-processes-name",
    "evaluation-metrics-key",
    "graph_break-reason",
    "accuracy-tensor",
    "accuracy_status-message",
    "import-name",
    "source-source",
}
"""Fields whose hostile texts the pages must have shown; otherwise the test would prove nothing."""
LIVING = """() => {
    const shown = ['title', 'alt', 'aria-label', 'value', 'placeholder', 'content', 'download'];
    const attributes = [];
    for (const element of document.querySelectorAll('*'))
        for (const {name, value} of element.attributes)
            if (value.includes('HOST') && !shown.includes(name) && !name.startsWith('data-')
                && !(name == 'href' && new URL(value, location).host == location.host))
                attributes.push(`<${element.localName} ${name}="${value.slice(0, 200)}">`);
    return attributes;
}""".replace("HOST", HOST)
"""Attributes that contain a stranger's address. Attributes that are only read out are left out, and
links within the dashboard, whose query has a run's id with its label."""
SEEN = r"""() => [...new Set(
    Array.from(document.documentElement.outerHTML.matchAll(/HOST\/([\w-]+)/g), match => match[1]))]
""".replace("HOST", re.escape(HOST))
"""The fields whose hostile texts the page contains; the browser searches, because a report has
megabytes."""
SETTLED = """() => !document.querySelector('[data-testid=stStatusWidget], [data-testid=stSkeleton]')
    && document.querySelectorAll('[data-testid=stMain] [data-stale=true]').length == 0"""
UNFOLD = """() => {
    const closed = document.querySelectorAll(
        'details:not([open]) > summary, [data-testid=stJson] .collapsed-icon');
    closed.forEach(summary => summary.click());
    return closed.length;
}"""
MARK = """() => {
    const panels = [...document.querySelectorAll('[role=tabpanel]')];
    panels.filter(panel => panel.checkVisibility()).pop().setAttribute('data-looked-at', '');
}"""
"""Marks the content of the innermost tab."""
STILL = """addEventListener('DOMContentLoaded', () => {
    const style = document.createElement('style');
    style.textContent = '*, *::before, *::after {transition: none !important}';
    document.head.append(style);
});"""
"""Removes transitions: axe would find the colours between."""
BRIGHTNESS = """Math.max(...getComputedStyle(document.querySelector('[data-testid=stApp]'))
    .backgroundColor.match(/\\d+/g).slice(0, 3))"""
"""The brightness of the page, from 0 to 255."""
UNCOVERED = """() => {
    const heading = document.getElementById("speedup"), box = heading.getBoundingClientRect();
    return heading.contains(document.elementFromPoint(box.left + 5, box.top + 5));
}"""
"""Whether the definition that the address names is in view; the bar on top could cover it."""
SHOWS = """() => ['.leaderboard', 'aside', '.plot', 'pre']
    .filter(selector => document.querySelector(`#show ${selector}`)).join(' ')"""
"""The elements of a screen of a presentation; screens with the same elements are checked once."""
FAINT = """() => {
    const rgb = color => {
        const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number);
        return [r, g, b, a];
    };
    const linear = part => part <= 10 ? part / 3294.6 : ((part / 255 + 0.055) / 1.055) ** 2.4;
    const bright = ([r, g, b]) =>
        0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) + 0.05;
    const paper = rgb(getComputedStyle(document.querySelector('[data-testid=stApp]'))
        .backgroundColor);
    const contrast = text => {
        const style = getComputedStyle(text), [r, g, b, a] = rgb(style.fill);
        const seen = a * style.fillOpacity * style.opacity;
        const mixed = [r, g, b].map((part, at) => seen * part + (1 - seen) * paper[at]);
        const [low, high] = [bright(mixed), bright(paper)].sort((a, b) => a - b);
        return high / low;
    };
    const inCell = text => text.closest('.textpoint') && text.closest('svg').querySelector('.hm');
    return [...document.querySelectorAll('.js-plotly-plot text')]
        .filter(text => text.textContent.trim() && text.checkVisibility() && !inCell(text))
        .filter(text => contrast(text) < 4.5)
        .map(text => `${text.textContent}: ${contrast(text).toFixed(2)}`);
}"""
"""Texts of charts with less contrast than WCAG 2.2 requires; axe does not check charts. Texts in
cells of a heat map are black or white, on colours that `test_palette` checks."""
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
    """A reader of the pages, with a record of the requests of the browser."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.foreign_requests: list[str] = []
        self.opened: set[str] = set()
        """Names of pages."""
        self.theme = "light"
        self.seen: set[str] = set()
        """The fields whose texts were shown."""
        page.on("request", self._note)

    def _note(self, request: Request) -> None:
        if HOST in re.sub(r"^http://127[^?]*\?.*", "", request.url):
            self.foreign_requests.append(request.url)

    def open(self, name: str) -> None:
        """Opens a page within the app, as its links do; loading takes longer than the checks."""
        address = f"{self.address}/{PAGES[name]}"
        (go if self.opened else Page.goto)(self.page, address)
        self.opened.add(name)
        self.page.locator(AT_REST).wait_for()
        self.page.wait_for_timeout(200)  # a page may run again by itself, and charts take a moment
        self.page.locator(AT_REST).wait_for()
        self.wait_for(SETTLED)
        if self.page.evaluate(UNFOLD):
            self.page.wait_for_timeout(200)
        self.look()

    def wait_for(self, condition: str) -> None:
        """Polls ten times a second: polling at every frame would take the processor."""
        self.page.wait_for_function(condition, polling=100)

    def change_theme(self) -> None:
        self.theme = {"light": "dark", "dark": "light"}[self.theme]
        self.page.emulate_media(color_scheme=self.theme)
        reached = {"dark": "< 50", "light": "> 200"}[self.theme]
        self.wait_for(f"{BRIGHTNESS} {reached}")

    def look(self) -> None:
        self.check()
        self.seen |= set(self.page.evaluate(SEEN))

    def check(self) -> None:
        """Checks that nothing acts; finding all texts takes longer."""
        failed = self.page.locator("[data-testid=stException]").all_inner_texts()
        assert not failed, (self.page.url, failed)
        living = self.page.evaluate(LIVING)
        assert not living, (self.page.url, living)
        assert self.page.locator(MADE).count() == 0, self.page.url
        assert self.foreign_requests == []


@pytest.fixture(scope="module")
def walk(browser: Browser, address: str) -> Iterator[Walk]:
    # The policy that keeps browsers from foreign hosts is off: the texts alone must be harmless.
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, bypass_csp=True)
    context.add_init_script(STILL)
    page = context.new_page()
    yield Walk(page, address)
    context.close()


@pytest.mark.parametrize(
    "name",
    [name if name in DAILY else pytest.param(name, marks=pytest.mark.slow) for name in PAGES],
)
def test_no_text_of_a_stranger_acts_and_axe_finds_nothing_serious_in_either_theme(
    walk: Walk, name: str
) -> None:
    walk.open(name)
    if name in NOT_FOR_AXE:
        return
    where = None
    if name in SAME_AROUND:
        walk.page.evaluate(MARK)
        where = "[data-looked-at]"
    findings = serious_once_drawn(walk.page, where)
    if name == "Definitions":
        walk.wait_for(UNCOVERED)
    # An open page follows the theme, and only colours can get worse. The next page begins in the
    # theme in which this one ends, because a change takes as long as a check.
    walk.change_theme()
    findings += serious_once_drawn(walk.page, where, runOnly=["color-contrast"])
    walk.look()  # again, because some parts of a page come late
    assert not findings, "\n".join(findings)


def serious_once_drawn(page: Page, where: str | None, **options: Any) -> list[str]:
    """Serious problems that stay: on a busy machine colours change slowly, and redrawn parts are
    pale meanwhile."""
    for _ in range(30):
        if not (findings := [*serious(page, where, **options), *page.evaluate(FAINT)]):
            break
        page.wait_for_timeout(200)
    return findings


def test_the_texts_that_could_act_were_shown(walk: Walk) -> None:
    # If this test runs alone, or a busy machine showed a part after the check.
    for name in [*(DAILY - walk.opened), *PAGES]:
        if walk.seen >= MUST_BE_SHOWN:
            break
        walk.open(name)
    assert walk.seen >= MUST_BE_SHOWN, MUST_BE_SHOWN - walk.seen


def test_faint_texts_of_charts_are_found(walk: Walk) -> None:
    walk.page.goto("about:blank")
    texts = "".join(f"<text y='20' fill='{fill}'>{fill}</text>" for fill in ("#8f949d", "#5c636d"))
    walk.page.set_content(
        "<main data-testid='stApp' style='background: #fff'>"
        f"<div class='js-plotly-plot'><svg>{texts}</svg></div></main>"
    )
    assert walk.page.evaluate(FAINT) == ["#8f949d: 3.05"]


def test_axe_finds_what_it_is_asked_for(walk: Walk) -> None:
    walk.page.goto("about:blank")
    walk.page.set_content(
        "<main><p style='color: #999; background: #fff'>faint</p><button></button></main>"
    )
    findings = " ".join(serious(walk.page))
    assert "serious color-contrast: <p" in findings and "critical button-name: <button>" in findings


@pytest.mark.slow
def test_no_text_of_a_stranger_acts_in_a_report_and_axe_finds_nothing_serious(walk: Walk) -> None:
    walk.seen = set()
    kinds = ("train", "failed", "accuracy")
    shown = ",".join(EXPERIMENTS[kind] for kind in kinds)
    answer = walk.page.goto(f"{walk.address}/report/{shown}")
    assert answer and answer.status == 200
    walk.page.locator(".chart").first.scroll_into_view_if_needed()
    walk.page.locator(".chart .main-svg").first.wait_for()
    assert not serious(walk.page)
    # Only colours can get worse in the other theme, and the table has the most of all screens.
    walk.page.emulate_media(color_scheme="dark" if walk.theme == "light" else "light")
    assert not serious(walk.page, runOnly=["color-contrast"])
    walk.page.keyboard.press("p")
    steps = walk.page.locator("#show .step").count()
    assert steps > len(kinds)
    looked_at: set[str] = set()
    for _ in range(steps):
        if (shows := walk.page.evaluate(SHOWS)) not in looked_at:
            assert not serious(walk.page), shows
            looked_at.add(shows)
        walk.page.keyboard.press("ArrowRight")
        walk.check()
    walk.page.keyboard.press("Escape")
    walk.page.evaluate("drawAllForPaper()")
    walk.page.evaluate(UNFOLD)
    assert looked_at >= {".leaderboard", "aside", ".plot", ""}, "the last one says what to do"
    walk.look()
    foreign_texts = {
        "name",
        "model",
        "environment-host",
        "environment-versions-torch",
        "workload-notes",
    }
    assert foreign_texts <= walk.seen, foreign_texts - walk.seen


@pytest.mark.slow
def test_a_chart_that_left_as_a_page_of_its_own_asks_nobody(walk: Walk, tmp_path: Path) -> None:
    # One name of a chart of bars is shortened in the middle, the other is not.
    label, short = hostile("label"), f"<i id={HOST}>"
    frame = pd.DataFrame(
        {
            "run_id": "x",
            "label": [label, label, short, short],
            "role": "backend",
            "step": [0, 1, 0, 1],
            "loss": [3.0, 2.0, 3.0, 1.0],
            "seconds": 0.1,
        }
    )
    for draw in (loss_charts.losses, bars.step_times):
        file = tmp_path / "chart.html"
        file.write_bytes(to_html(draw(frame), "Title", ["loss"]))
        walk.page.goto(file.as_uri())
        walk.page.locator(".js-plotly-plot .main-svg").first.wait_for()
        walk.page.wait_for_timeout(300)
        shown = walk.page.inner_text("body")
        assert label[:9] in shown and short in shown
        assert not walk.page.evaluate(LIVING)
        assert walk.foreign_requests == []
