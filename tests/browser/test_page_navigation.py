"""What a person chose stays chosen, from page to page and back, and while data arrive."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect
from playwright.sync_api import TimeoutError as TooLate

from breakeven.runner.files import FileLock
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.process import ProcessIdentity
from breakeven.runner.folders.states import RunState
from breakeven.views import former
from tests.helpers.journals import Recording, experiment_spec, falling_losses, record_experiment
from tests.helpers.serving import served
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.browser
OLDER, NEWER = "20261121-101010-000000-aaa0", "20261122-101010-000000-aaa1"
RUNNING = "20261123-101010-000000-aaa2"
LABELS = ("baseline", "control", "inductor")
NOTES = """window.told = [];
window.Notification = class extends window.Notification {
  constructor(title, options) {
    super(title, options);
    window.told.push(`${title}: ${options.body}`);
  }
};"""
"""Keeps what the browser was asked to tell its reader."""
CHOSEN = "[role=radio][aria-checked=true]"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Recording]]:
    """Two finished experiments and the runs of one at work, by label."""
    folder = DataDir(Path(tmp_path_factory.mktemp("navigation")) / "data")
    lock = FileLock(folder.supervisor_lock)
    folder.path.mkdir()
    assert lock.try_acquire(), "these tests are the supervisor; another would end what they play"
    record_experiment(folder.runs, experiment_spec(name="older"), OLDER)
    spec = experiment_spec(name="newer", backends=("inductor", "aot_eager"))
    record_experiment(folder.runs, spec, NEWER)
    spec = experiment_spec(name="at work", num_steps=1000)
    me = ProcessIdentity.of(os.getpid())
    started = {label: Recording(folder.runs, label, spec, RUNNING) for label in LABELS}
    for run in started.values():
        run.claim(me).start().block([0.1] * 10, falling_losses(10))
    yield started
    lock.release()


@pytest.fixture(scope="module")
def address(runs: dict[str, Recording]) -> Iterator[str]:
    with served(DataDir(runs["baseline"].run.path.parent.parent), supervised=False) as (
        url,
        _server,
    ):
        yield url


@pytest.fixture
def page(reader: BrowserContext, address: str) -> Iterator[Page]:
    page = reader.new_page()
    page.set_viewport_size({"width": 1280, "height": 1000})
    yield page
    page.close()


def to(page: Page, title: str) -> None:
    """Goes to a page as people do, by the bar on top."""
    page.get_by_role("link", name=title, exact=True).first.click()


def chosen_experiment(page: Page) -> str:
    return the_field(page).input_value()


def the_field(page: Page) -> Locator:
    """The list of experiments, once the field of the page before has gone."""
    field = page.locator(".st-key-chosen_experiment input")
    expect(field).to_have_count(1)
    return field


def choose(page: Page, name: str) -> None:
    """Opens the list again if a page that was still being drawn closed it, as a person would."""
    wanted = page.get_by_role("option", name=re.compile(f"^{name} "))
    for _ in range(3):
        the_field(page).click()
        with suppress(TooLate):
            wanted.wait_for(timeout=10_000)
            break
    wanted.click()


def sizes_of_plotly(page: Page) -> list[int]:
    """Bytes of each script of Plotly's that the page loaded, once a chart is drawn."""
    page.locator(".moving-chart .main-svg").first.wait_for()
    loaded = "performance.getEntriesByType('resource').map(one => [one.name, one.transferSize])"
    return [size for name, size in page.evaluate(loaded) if "plotly" in name.lower()]


def test_what_was_chosen_is_shown_again_on_the_way_back_and_plotly_is_loaded_once(
    browser: Browser, address: str
):
    page = browser.new_context().new_page()  # of a reader who was never here
    page.goto(f"{address}/experiment")
    assert [size > 100_000 for size in sizes_of_plotly(page)] == [True], "before the first chart"
    assert chosen_experiment(page).startswith("at work"), "what runs comes first"
    choose(page, "older")
    page.wait_for_url(re.compile(OLDER))
    choice = page.locator(".st-key-break-even")
    choice.get_by_text("Time saved").click()
    page.wait_for_url(re.compile("break-even=Time"))
    to(page, "Machine")
    page.get_by_role("tab", name="Devices").wait_for()
    page.go_back()
    expect(choice.locator(CHOSEN)).to_have_text("Time saved")
    to(page, "Machine")
    page.get_by_role("tab", name="Devices").wait_for()
    to(page, "Experiment")
    page.wait_for_url(re.compile(f"experiment.*{OLDER}"))
    page.locator(".backend-cards").wait_for()
    assert chosen_experiment(page).startswith("older")

    # The runs that are picked of one experiment are not asked of another.
    page.goto(f"{address}/experiment?tab=Runs&experiment={NEWER}")
    pills = page.locator(".st-key-runs button")
    pills.filter(has_text="aot_eager").click()
    page.wait_for_url(re.compile("runs="))
    assert [size > 100_000 for size in sizes_of_plotly(page)] == [False], "the browser has it"
    choose(page, "older")
    page.wait_for_url(re.compile(OLDER))
    expect(pills).to_have_count(3)
    assert "runs=" not in page.url
    expect(page.locator(".st-key-runs button[aria-pressed=true]")).to_have_count(3)
    page.context.close()


def test_an_address_of_the_version_before_leads_to_the_page_of_today(page: Page, address: str):
    page.goto(f"{address}/run?experiment={OLDER}&run={OLDER}.inductor&tab=Log")
    page.wait_for_url(
        f"{address}/experiment?experiment={OLDER}&run=inductor&part=Log&tab=Runs"
    )  # fmt: skip
    expect(page.get_by_text("Page not found")).to_have_count(0)
    assert former.TARGETS["live"] == former.TARGETS["compare"] == ("views/experiment.py", {})
    views = {name: query["view"] for name, (_page, query) in former.TARGETS.items()
             if "view" in query}  # fmt: skip
    assert views == {"difference": "Side by side", "matrix": "Matrix", "trends": "Trends",
                     "suites": "Suites"}  # fmt: skip
    assert former.TARGETS["system"] == ("views/machine.py", {"tab": "Health"})


def open_palette(page: Page) -> Locator:
    """Its field. A page that has just been drawn takes some milliseconds until it hears keys."""
    field = page.get_by_role("dialog").locator("input")

    def opens() -> bool:
        page.keyboard.press("Control+k")
        with suppress(TooLate):
            field.wait_for(timeout=2000)
        return field.is_visible()

    wait_until(opens)
    expect(field).to_be_focused()
    return field


def test_control_k_opens_an_experiment_by_a_part_of_its_name(page: Page, address: str):
    page.goto(f"{address}/machine")
    page.get_by_role("tab", name="Devices").wait_for()
    field = open_palette(page)
    page.keyboard.press("Escape")
    expect(field).to_have_count(0)
    open_palette(page)
    page.keyboard.type("older")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(OLDER))


def test_a_race_keeps_zoom_and_hidden_lines_while_data_arrive_and_is_stopped_and_told_of(
    page: Page, address: str, runs: dict[str, Recording], tmp_path: Path
):
    page.context.grant_permissions(["notifications"])
    page.add_init_script(NOTES)
    page.goto(f"{address}/experiment?experiment={RUNNING}")
    chart = page.locator(".st-key-chart-race .js-plotly-plot")
    chart.wait_for()
    page.locator(".legendtext", has_text="control").wait_for()
    plot = chart.locator(".nsewdrag").first.bounding_box()
    page.mouse.move(plot["x"] + 0.2 * plot["width"], plot["y"] + 0.2 * plot["height"])
    page.mouse.down()
    page.mouse.move(plot["x"] + 0.6 * plot["width"], plot["y"] + 0.7 * plot["height"], steps=5)
    page.mouse.up()
    drawn = "document.querySelector('.st-key-chart-race .js-plotly-plot')"
    page.wait_for_function(f"{drawn}.layout.xaxis.range[0] > 0.5")
    chart.locator(".legendtoggle").nth(1).click()
    page.wait_for_function(f"{drawn}.data.some(line => line.visible === 'legendonly')")
    look = """box => ({
        range: [...box.layout.xaxis.range, ...box.layout.yaxis.range],
        hidden: box.data.filter(line => line.visible === 'legendonly').map(line => line.name),
        steps: box.calcdata[0].length,
    })"""
    before = chart.evaluate(look)
    assert before["hidden"] == ["control"]
    assert before["range"][0] > 0.5, "it was zoomed"
    for run in runs.values():
        run.block([0.1] * 10, [1.0] * 10)
    page.wait_for_function(
        f"steps => {drawn}.calcdata[0].length > steps", arg=before["steps"]
    )  # fmt: skip
    page.wait_for_timeout(1000)
    after = chart.evaluate(look)
    assert (after["range"], after["hidden"]) == (before["range"], ["control"])

    # One has the turn, the others wait.
    runs["inductor"].log.append("phase", phase="training")
    runs["baseline"].log.append("phase", phase="waiting")
    runs["control"].log.append("phase", phase="waiting")
    for run in runs.values():
        run.log.flush()
    expect(page.get_by_text("waiting for its turn")).to_have_count(2)
    expect(page.get_by_text("racing")).to_have_count(1)

    # The chart has its title and its files, while it moves.
    expect(page.get_by_text("Loss so far")).to_be_visible()
    with page.expect_download() as download:
        page.locator(".st-key-download-race-csv button").click()
    assert download.value.suggested_filename == "at-work-20261123-aaa2-race.csv"
    download.value.save_as(tmp_path / "race.csv")
    assert len((tmp_path / "race.csv").read_text().splitlines()) == 1 + 3 * 20

    # It is stopped, and the reader who asked for it is told of its end.
    page.get_by_role("button", name="Tell me when it is over").click()
    expect(page.get_by_role("button", name="You will be told")).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Stop it").click()
    wait_until(lambda: all(one.run.cancel_file.exists() for one in runs.values()))
    for one in runs.values():
        one.end(RunState.CANCELLED, "stopped")
    page.wait_for_function("window.told.length > 0")
    assert page.evaluate("window.told") == ["at work: stopped"]
    # The race turns into its verdict without a click.
    expect(page.get_by_role("tab", name="Verdict")).to_be_visible()
    expect(page.get_by_text("stopped").first).to_be_visible()
