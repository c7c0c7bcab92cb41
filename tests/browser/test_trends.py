"""A step that was planted into a trend is found in a real Chromium, and so is its way out."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from runner.folders.run_dir import DataDir
from tests.helpers.machine import MACHINE, keep
from tests.helpers.nights import record_slower_torch
from tests.helpers.serving import served

pytestmark = pytest.mark.browser
SIZES = {"laptop": (1280, 720), "phone": (390, 844)}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = DataDir(tmp_path_factory.mktemp("trends"))
    keep(folder, MACHINE)
    record_slower_torch(folder)
    with served(folder) as (url, _server):
        yield url


def opened(browser: Browser, url: str, size: str) -> Page:
    width, height = SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="dark")
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    page.goto(url)
    return page


def test_a_planted_step_is_told_and_its_first_experiment_is_a_click_away(
    browser: Browser, address: str
):
    page = opened(browser, f"{address}/trends?origin=local", "laptop")
    expect(page.get_by_text("1 step to a worse level")).to_be_visible()
    expect(page.get_by_text("torch 2.12.0 to 2.13.0")).to_be_visible()
    mark = page.locator(".st-key-chart-trend .annotation-text").filter(has_text="inductor")
    expect(mark).to_be_visible()
    with page.expect_popup() as first:
        page.get_by_role("link", name="2026-11-09").click()
    expect(first.value.locator(".leaderboard table")).to_be_visible()
    assert "experiment=20261109-093015-123456-7f3a" in first.value.url
    first.value.close()
    page.close()


def test_the_matrix_is_asked_for_by_keyboard_and_its_address_shows_it_again(
    browser: Browser, address: str
):
    page = opened(browser, f"{address}/matrix?origin=local", "laptop")
    expect(page.get_by_text("Speedup by backend and model")).to_be_visible()
    page.get_by_role("combobox", name="Across").focus()
    page.keyboard.type("torch")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Speedup by backend and torch")).to_be_visible()
    again = opened(browser, page.url, "phone")
    expect(again.get_by_text("Speedup by backend and torch")).to_be_visible()
    cells = again.locator(".st-key-chart-matrix .heatmap-label")
    expect(cells.first).to_be_visible()
    assert sorted(cells.all_text_contents())[0].startswith("1.6"), "0.2 s to 0.125 s"
    wide = again.evaluate("document.scrollingElement.scrollWidth")
    assert wide <= SIZES["phone"][0], "nothing is wider than the screen"
    page.close()
    again.close()
