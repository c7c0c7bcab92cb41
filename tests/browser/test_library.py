"""Journeys among many experiments in a real Chromium: search, tick, compare side by side across
machines; by keyboard, on a phone, in the dark theme."""

import re
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import BrowserContext, FloatRect, Page, ViewportSize, expect

from breakeven.runner.experiments import trash
from breakeven.runner.experiments.labels import EXAMPLES
from breakeven.runner.experiments.queue import experiments, find_experiment
from breakeven.runner.protocol.data_dir import DataDir
from tests.browser.going import AT_REST, fits, go
from tests.browser.many import NUM_ALIKE, NUM_EXPERIMENTS, PAIR, TARGET, make_many
from tests.helpers.machine import MACHINE, keep
from tests.helpers.pages import compare_all
from tests.helpers.serving import served
from tests.helpers.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.browser, pytest.mark.slow]
LAPTOP: ViewportSize = {"width": 1280, "height": 720}
PHONE: ViewportSize = {"width": 390, "height": 844}
SHIPPED = {run.name.partition(".")[0] for run in EXAMPLES.glob("*/*.baseline")}
ALL = f"{NUM_EXPERIMENTS + len(SHIPPED):,}"
FIRST_ROW, ROW_HEIGHT = 52, 35
"""Positions of rows of the table below its upper edge, in pixels."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    folder = DataDir(tmp_path_factory.mktemp("library"))
    keep(folder, MACHINE)
    make_many(folder)
    compare_all(folder)  # numbers that arrive meanwhile would redraw the table
    return folder


@pytest.fixture(scope="module")
def address(folder: DataDir) -> Iterator[str]:
    with served(folder) as (url, _server):
        yield url


@pytest.fixture(scope="module")
def page(reader: BrowserContext, address: str) -> Page:
    """Each test continues where the previous one ended: loading takes long."""
    page = reader.new_page()
    page.set_viewport_size(LAPTOP)
    page.goto(f"{address}/definitions")
    return page


@pytest.fixture
def listed(page: Page, address: str) -> Page:
    """The list of all experiments."""
    go(page, f"{address}/?view=Table")
    expect(table(page)).to_be_visible()
    return page


def table(page: Page):
    return page.locator("[data-testid=stDataFrame] canvas").first


def settle(page: Page) -> None:
    page.locator(AT_REST).wait_for()
    page.wait_for_timeout(400)  # the table draws its rows in its own frames


def resting_place(page: Page) -> FloatRect:
    """The position of the table once it no longer moves: texts above it come and go, and a click
    would hit something else."""
    before = None
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        box = table(page).bounding_box()
        if box is not None and box == before:
            return box
        before = box
        page.wait_for_timeout(300)
    raise AssertionError(f"the table does not come to rest; it was last at {before}")


def tick(page: Page, row: int) -> None:
    """Clicks again if a table that was being redrawn ignored the click."""
    picked = page.locator(".st-key-picked")
    before = picked.inner_text()
    for _ in range(3):
        settle(page)
        box = resting_place(page)
        page.mouse.click(box["x"] + 18, box["y"] + FIRST_ROW + ROW_HEIGHT * row)
        for _ in range(100):
            if picked.inner_text() != before:
                settle(page)
                if picked.inner_text() != before:
                    return
                break  # a search that ended just now redrew the table without the tick
            page.wait_for_timeout(100)
    raise AssertionError(f"row {row} was not ticked")


def press(page: Page, name: str, exact: bool = False) -> None:
    """Presses the button when the page is at rest: while the page replaces its elements, a button
    can exist twice."""
    settle(page)
    button = page.get_by_role("button", name=name, exact=exact)
    expect(button).to_have_count(1)
    button.click()


def search(page: Page, text: str, expected: str) -> None:
    page.get_by_placeholder("Search").fill(text)
    page.keyboard.press("Enter")
    expect(page.get_by_text(expected, exact=False).first).to_be_visible()


def labels(folder: DataDir):
    return find_experiment(folder, TARGET).runs[0].read_labels()


def return_to_an_empty_search(page: Page) -> None:
    page.get_by_role("link", name="Experiments", exact=True).first.click()
    expect(page.get_by_placeholder("Search")).to_have_value("")
    settle(page)
    assert "needle" not in page.url
    expect(page.get_by_text(f"1 experiment of {ALL}")).to_have_count(0)


def reach_the_table(page: Page) -> None:
    """Moves the focus by keyboard, from any element."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "CANVAS":
            break


def tick_the_first_row(page: Page) -> None:
    reach_the_table(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+Space")


def test_one_of_many_is_opened_by_keyboard_alone_and_a_search_is_not_chosen_on_the_way_back(
    listed: Page,
):
    for _ in range(40):
        listed.keyboard.press("Tab")
        if listed.evaluate("document.activeElement.placeholder || ''").startswith("Search"):
            break
    listed.keyboard.type("needle")
    listed.keyboard.press("Enter")
    expect(listed.get_by_text(f"1 experiment of {ALL}")).to_be_visible()
    assert "q=needle" in listed.url
    settle(listed)
    picked = listed.locator(".st-key-picked").get_by_role("link", name="Open")
    # The table is redrawn when numbers arrive, and ignores a key at that moment.
    for _ in range(5):
        tick_the_first_row(listed)
        with suppress(AssertionError):
            expect(picked).to_be_visible(timeout=10_000)
            break
    expect(picked).to_be_visible()
    listed.keyboard.press("Enter")
    listed.wait_for_url(f"**experiment={TARGET}*")
    expect(listed.locator(".backend-cards")).to_be_visible()
    return_to_an_empty_search(listed)
    search(listed, "needle", f"1 experiment of {ALL}")
    listed.get_by_role("link", name="Launch", exact=True).first.click()
    expect(listed.get_by_placeholder("Search")).to_have_count(0)
    return_to_an_empty_search(listed)


def test_enter_opens_the_row_that_arrows_reached_far_down_a_list_sorted_by_a_title(
    page: Page, address: str
) -> None:
    page.goto(f"{address}/?view=Table&columns=name&columns=id")
    expect(table(page)).to_be_visible()
    settle(page)
    box = resting_place(page)
    page.mouse.click(box["x"] + 300, box["y"] + FIRST_ROW - ROW_HEIGHT)
    settle(page)
    ids = table(page).locator("tbody td:last-child").all_text_contents()
    assert ids == sorted(ids), "the newest is no longer the first"
    reach_the_table(page)
    for _ in range(30):
        page.keyboard.press("ArrowDown")
    page.wait_for_timeout(600)  # the focus follows the arrows late
    wanted = page.evaluate("document.activeElement.closest('tr').lastElementChild.textContent")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**experiment={wanted}*")
    expect(page.get_by_role("tab", name="Verdict")).to_be_visible()


def test_labelled_put_away_deleted_brought_back_and_run_again_with_a_change(
    listed: Page, folder: DataDir
):
    search(listed, "needle", "1 experiment of")
    tick(listed, 0)
    press(listed, "Label")
    listed.get_by_role("textbox", name="Name", exact=True).fill("Renamed here")
    listed.get_by_role("textbox", name="Notes").fill("**Why** it matters")
    press(listed, "Save", exact=True)
    expect(listed.get_by_text("1 experiment labelled.")).to_be_visible()
    assert (labels(folder).name, labels(folder).tags) == ("Renamed here", ("needle",))
    expect(listed.locator("strong", has_text="Why")).to_be_visible()
    press(listed, "Archive")
    expect(listed.get_by_text("No experiment matches.")).to_be_visible()
    press(listed, "Undo")
    expect(table(listed)).to_be_visible()
    assert not labels(folder).archived
    settle(listed)
    if not listed.get_by_role("button", name="Delete", exact=True).count():
        tick(listed, 0)
    press(listed, "Delete", exact=True)
    expect(listed.get_by_text("1 experiment deleted.")).to_be_visible()
    assert [deleted.experiment_id for deleted in trash.deleted_experiments(folder)] == [TARGET]
    press(listed, "Undo")
    expect(listed.get_by_text("1 experiment as before.")).to_be_visible()
    assert labels(folder).name == "Renamed here"

    again = listed.get_by_role("link", name="with changes")
    settle(listed)
    if not again.count():
        tick(listed, 0)
    again.click()
    listed.wait_for_url(f"**again={TARGET}*")
    expect(listed.get_by_text("All settings of")).to_be_visible()
    listed.get_by_role("textbox", name="Batch size").fill("4")
    listed.keyboard.press("Enter")
    expect(listed.get_by_text("Changed:")).to_be_visible()
    assert find_experiment(folder, TARGET).spec.training.batch_size == 8
    assert len(list(experiments(folder))) == NUM_EXPERIMENTS


def test_two_of_different_machines_are_held_side_by_side(listed: Page):
    search(listed, "many -needle", f"{NUM_ALIKE - 1} experiments of {ALL}")
    search(listed, "apart", f"2 experiments of {ALL}")
    tick(listed, 0)
    tick(listed, 1)
    press(listed, "2 experiments side by side")
    listed.wait_for_url(re.compile(r"view=Side.*side=.*side="))
    expect(listed.get_by_text("Speedups compared")).to_be_visible()
    expect(listed.locator(".leaderboard").first).to_contain_text("lower")
    differs = listed.locator(".leaderboard").last
    for said in ("NVIDIA H100", "cluster", "2.14.0"):
        expect(differs).to_contain_text(said)
    assert fits(listed)


def test_a_matrix_a_list_and_a_pair_fit_on_a_dark_phone(page: Page, address: str):
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark")
    go(page, f"{address}/?view=Matrix&q=night&across=torch")
    expect(page.get_by_text("Speedup by backend and torch")).to_be_visible()
    cells = page.locator(".st-key-chart-matrix .textpoint text")
    expect(cells.first).to_be_visible()
    assert sorted(cells.all_text_contents())[0].startswith("1.6"), "0.2 s to 0.125 s"
    assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]
    pair = f"?view=Side+by+side&side={PAIR[0]}&side={PAIR[1]}"
    for path, said in (("?view=Table", "experiments"), (pair, "Speedups compared")):
        go(page, f"{address}/{path}")
        expect(page.get_by_text(said).last).to_be_visible()
        settle(page)
        assert fits(page), path
