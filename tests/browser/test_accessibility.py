"""axe-core finds nothing serious on any page, in both themes: contrast, names, roles, keyboard."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from runner.folders.run_dir import DataDir
from tests.helpers.hostile_texts.store import EXPERIMENTS, record_hostile
from tests.helpers.machine import MACHINE, keep
from tests.helpers.pages import compare_all
from tests.helpers.serving import served

pytestmark = pytest.mark.browser
RUN = f"run?run={EXPERIMENTS['train']}.inductor"
TABS = ("Steps", "Scores", "Gradients", "Compiling", "Device", "Checkpoints", "Settings",
        "Environment", "Log")  # fmt: skip
PAGES = {
    **{f"Compare, {name}": f"?experiment={key}" for name, key in EXPERIMENTS.items()},
    "Experiments": "experiments",
    "Side by side": f"difference?side={EXPERIMENTS['train']}&side={EXPERIMENTS['failed']}",
    "Live, ended": f"live?experiment={EXPERIMENTS['train']}",
    "Live, failed": f"live?experiment={EXPERIMENTS['failed']}",
    "Live, active": f"live?experiment={EXPERIMENTS['active']}",
    "Launch": "launch",
    **{f"Run, {tab}": f"{RUN}&tab={tab}" for tab in TABS},
    "Run, failed": f"run?experiment={EXPERIMENTS['failed']}",
    "Suites": "suites",
    "Matrix": "matrix",
    "Trends": "trends",
    "Definitions": "definitions",
}
"""Address of each page, over all kinds of records."""
SETTLED = """() => !document.querySelector('[data-testid=stStatusWidget], [data-testid=stSkeleton]')
    && document.querySelectorAll('[data-testid=stMain] [data-stale=true]').length == 0"""
UNFOLD = "document.querySelectorAll('details:not([open]) > summary').forEach(one => one.click())"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = DataDir(tmp_path_factory.mktemp("axe"))
    keep(folder, MACHINE)
    record_hostile(folder)
    compare_all(folder)
    with served(folder) as (url, _server):
        yield url


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.set_default_timeout(60_000)
    yield page
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious_on_any_page_in_either_theme(page: Page, address: str, name: str):
    page.emulate_media(color_scheme="light")
    page.goto(f"{address}/{PAGES[name]}")
    page.locator("[data-testid=stMain] p").first.wait_for(state="attached")
    page.wait_for_function(SETTLED)
    page.evaluate(UNFOLD)
    page.wait_for_timeout(500)
    assert background(page) > 200
    told = serious(page)
    # An open page follows the reader's choice, of which only colours can be the worse.
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(500)
    assert background(page) < 50
    told += serious(page, runOnly=["color-contrast"])
    assert not told, "\n".join(told)


def background(page: Page) -> int:
    """How bright the page is, from 0 to 255."""
    colour = page.locator("[data-testid=stApp]").evaluate(
        "app => getComputedStyle(app).backgroundColor"
    )
    return max(int(part) for part in re.findall(r"\d+", colour)[:3])


def serious(page: Page, **options: Any) -> list[str]:
    """What axe calls serious or critical, each with its place."""
    return [
        f"{one['impact']} {one['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for one in Axe().run(page, options=options or None).response["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def test_axe_finds_what_it_is_asked_for(page: Page):
    page.set_content(
        "<main><p style='color: #999; background: #fff'>faint</p><button></button></main>"
    )
    found = {one["id"] for one in Axe().run(page).response["violations"]}
    assert {"color-contrast", "button-name"} <= found
