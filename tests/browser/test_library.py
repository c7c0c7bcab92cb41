"""Journeys through the list of experiments in a real Chromium: found, labelled, put away, deleted,
brought back, run again with a change, held side by side; by keyboard, on a phone."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from runner.folders import library
from runner.folders.queue import experiments, find_experiment
from runner.folders.run_dir import DataDir
from tests.helpers.journals import experiment_spec, record_experiment
from tests.helpers.machine import MACHINE, keep
from tests.helpers.serving import served

pytestmark = pytest.mark.browser
NUM_EXPERIMENTS = 40
TARGET = "20261121-000007-000000-0007"
"""The one that is looked for."""
LAPTOP, PHONE = {"width": 1280, "height": 720}, {"width": 390, "height": 844}
FIRST_ROW, ROW_HEIGHT = 52, 35
"""Where rows of the table stand below its upper edge, in pixels."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    """Many experiments; one is called otherwise than all others."""
    folder = DataDir(tmp_path_factory.mktemp("library"))
    keep(folder, MACHINE)
    first = "20261121-000000-000000-0000"
    record_experiment(folder.runs, experiment_spec(num_steps=80, name="One of many"), first)
    for number in range(1, NUM_EXPERIMENTS):
        for run in [run for run in folder.run_dirs() if run.run_id.startswith(first)]:
            other = f"20261121-00{number // 60:02d}{number % 60:02d}-000000-{number:04d}"
            copy = folder.runs / run.run_id.replace(first, other)
            shutil.copytree(run.path, copy)
            spec = (copy / "spec.json").read_text().replace(first, other)
            (copy / "spec.json").write_text(spec)
    library.change_labels(folder, TARGET, lambda old: old.tagged(["needle"]))
    return folder


@pytest.fixture(scope="module")
def address(folder: DataDir) -> Iterator[str]:
    with served(folder) as (url, _server):
        yield url


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    page = browser.new_page(viewport=LAPTOP)
    page.set_default_timeout(15_000)
    page.goto(f"{address}/experiments")
    expect(table(page)).to_be_visible()
    yield page
    page.close()


def table(page: Page):
    return page.locator("[data-testid=stDataFrame] canvas").first


def settle(page: Page) -> None:
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    page.wait_for_timeout(400)  # the table draws its rows in frames of its own


def tick(page: Page, row: int) -> None:
    """A table that is drawn anew just then takes no click: another one follows."""
    picked = page.locator(".st-key-picked")
    before = picked.inner_text()
    for _ in range(3):
        settle(page)
        box = table(page).bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + 18, box["y"] + FIRST_ROW + ROW_HEIGHT * row)
        for _ in range(30):
            if picked.inner_text() != before:
                settle(page)
                return
            page.wait_for_timeout(100)
    raise AssertionError(f"row {row} was not ticked")


def search(page: Page, text: str, found: str) -> None:
    page.get_by_placeholder("Search").fill(text)
    page.keyboard.press("Enter")
    expect(page.get_by_text(found, exact=False).first).to_be_visible()


def labels(folder: DataDir):
    return find_experiment(folder, TARGET).runs[0].read_labels()


def test_one_of_many_is_found_and_opened_by_keyboard_alone(page: Page):
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.placeholder || ''").startswith("Search"):
            break
    page.keyboard.type("needle")
    page.keyboard.press("Enter")
    expect(page.get_by_text(f"1 experiment of {NUM_EXPERIMENTS + 1}")).to_be_visible()
    assert "q=needle" in page.url
    settle(page)
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "CANVAS":
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+Space")
    link = page.locator(".st-key-picked").get_by_role("link", name="Compare")
    expect(link).to_be_visible()
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**experiment={TARGET}*")
    expect(page.locator(".leaderboard").first).to_be_visible()


def test_what_the_address_chose_shows_where_it_is_changed(page: Page, address: str):
    page.goto(f"{address}/experiments?model=bert-tiny&columns=name&columns=batch")
    expect(page.get_by_role("button", name="Filters (1)")).to_be_visible()
    page.wait_for_timeout(1500)  # numbers fill in meanwhile, which draws the page anew
    page.get_by_role("button", name="Filters").click()
    expect(page.get_by_text("bert-tiny (", exact=False).first).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Columns", exact=True).click()
    expect(page.locator("[data-testid=stMultiSelect]").filter(has_text="Batch size").first
           ).to_be_visible()  # fmt: skip


def test_labelled_put_away_deleted_and_brought_back(page: Page, folder: DataDir):
    search(page, "needle", "1 experiment of")
    tick(page, 0)
    page.get_by_role("button", name="Label").click()
    page.get_by_role("textbox", name="Name", exact=True).fill("Renamed here")
    page.get_by_role("textbox", name="Notes").fill("**Why** it matters")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("1 experiment labelled.")).to_be_visible()
    assert (labels(folder).name, labels(folder).tags) == ("Renamed here", ("needle",))
    expect(page.locator("strong", has_text="Why")).to_be_visible()
    page.get_by_role("button", name="Archive").click()
    expect(page.get_by_text("No experiment fits.")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(table(page)).to_be_visible()
    assert not labels(folder).archived
    settle(page)
    if not page.get_by_role("button", name="Delete", exact=True).count():
        tick(page, 0)
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("1 experiment deleted.")).to_be_visible()
    assert [one.experiment_id for one in library.trash(folder)] == [TARGET]
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("1 experiment as before.")).to_be_visible()
    assert labels(folder).name == "Renamed here"


def test_two_are_held_side_by_side(page: Page):
    search(page, "many -needle", f"{NUM_EXPERIMENTS - 1} experiments of {NUM_EXPERIMENTS + 1}")
    tick(page, 0)
    tick(page, 1)
    page.get_by_role("link", name="2 experiments side by side").click()
    page.wait_for_url("**/difference?side=*&side=*")
    expect(page.get_by_text("By how much")).to_be_visible()
    expect(page.locator(".leaderboard").first).to_contain_text("same")
    assert page.locator("[data-testid=stMain]").evaluate("e => e.scrollWidth - e.clientWidth") <= 0


def test_one_runs_again_with_a_change(page: Page, folder: DataDir):
    library.change_labels(folder, TARGET, lambda old: old.tagged(["again"]))
    search(page, "needle", "1 experiment of")
    tick(page, 0)
    page.get_by_role("link", name="with changes").click()
    page.wait_for_url(f"**again={TARGET}*")
    expect(page.get_by_text("with all its settings")).to_be_visible()
    page.get_by_text("Batches, steps and precision").click()
    page.get_by_role("textbox", name="Batch size").fill("4")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Changed:")).to_be_visible()
    before = find_experiment(folder, TARGET).spec
    assert before.training.batch_size == 8
    assert len(list(experiments(folder))) == NUM_EXPERIMENTS


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, address: str):
    page = browser.new_page(viewport=PHONE)
    page.set_default_timeout(15_000)
    for path in ("experiments", f"difference?side={TARGET}&side=20261121-000009-000000-0009"):
        page.goto(f"{address}/{path}")
        expect(page.get_by_text("experiments" if path == "experiments" else "By how much").last
               ).to_be_visible()  # fmt: skip
        settle(page)
        main = page.locator("[data-testid=stMain]")
        assert main.evaluate("e => e.scrollWidth - e.clientWidth") <= 0, path
    page.close()
