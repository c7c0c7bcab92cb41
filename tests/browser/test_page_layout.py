"""What must be in sight on a projector and on a phone, in a real Chromium."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page
from playwright.sync_api import TimeoutError as TooLate

from breakeven.runner.folders.data_dir import DataDir
from tests.browser.zooming import x_range, zoom
from tests.helpers.imports import HARNESS
from tests.helpers.journals import experiment_spec, record_experiment
from tests.helpers.pages import compare_all
from tests.helpers.serving import ROOT, served
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.browser
SCREENS = {"projector": (1280, 720), "phone": (390, 844), "desk": (2200, 1200)}
SEEN = """cell => {
  cell.scrollIntoView({behavior: 'instant', block: 'center', inline: 'nearest'});
  const box = cell.getBoundingClientRect();
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  const top = document.elementFromPoint(x, y);
  return box.left >= 0 && box.right <= innerWidth && (cell.contains(top) || cell === top);
}"""
"""Whether nothing of a cell is beyond the sides of the page, and nothing lies on it."""
HIDDEN = (
    f"cells => cells.filter(cell => !({SEEN})(cell) || !cell.innerText.trim())"
    ".map(cell => cell.outerHTML)"
)
"""Of some cells, those that cannot be read."""
SHADE = "cell => +getComputedStyle(cell, '::before').opacity"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = DataDir(Path(tmp_path_factory.mktemp("layout")) / "data")
    long = ("inductor:mode=reduce-overhead", "eager", "a_backend_with_a_rather_long_name")
    record_experiment(folder.runs, experiment_spec(num_steps=80, backends=("inductor", *long)))
    record_experiment(folder.runs, experiment_spec(), "20261101-093015-123456-7f3b")
    compare_all(folder)
    with served(folder) as (url, _server):
        yield url


@pytest.fixture(
    params=["projector", "phone", pytest.param("desk", marks=pytest.mark.slow)], scope="module"
)
def compare(reader: BrowserContext, address: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    width, height = SCREENS[request.param]
    page = reader.new_page()
    page.set_viewport_size({"width": width, "height": height})
    page.goto(f"{address}/experiment")
    page.locator(".st-key-chart-break-even .main-svg").first.wait_for()
    cards = page.locator(".backend-cards").bounding_box()
    chart = page.locator(".st-key-chart-break-even").bounding_box()
    assert cards and chart
    assert width > 390 or cards["y"] < chart["y"], "on a phone the cards come before the chart"
    page.get_by_role("tab", name="Runs").click()
    page.locator(".leaderboard td.namesake").first.wait_for()
    page.wait_for_timeout(500)
    yield page
    page.close()


def test_runs_and_their_break_even_are_in_sight_however_the_table_is_scrolled(compare: Page):
    table = compare.locator(".leaderboard").first
    cells = table.locator(".namesake, tr > :first-child")
    assert cells.count() == 14, "a title and six runs, twice"
    for scrolled in (0.0, 0.5, 1.0):
        table.evaluate("(box, share) => box.scrollLeft = share * box.scrollWidth", scrolled)
        assert not cells.evaluate_all(HIDDEN), scrolled


def test_what_is_scrolled_away_shows_as_a_shade_and_nothing_does_where_all_fits(compare: Page):
    table = compare.locator(".leaderboard").first
    first = table.locator("td.namesake").first
    table.evaluate("box => box.scrollLeft = 0")
    hidden = table.evaluate("box => box.scrollWidth - box.clientWidth")
    assert (hidden > 0) == (compare.viewport_size["width"] == 390), hidden
    wait_until(lambda: first.evaluate(SHADE) == (1 if hidden > 0 else 0))
    if hidden > 0:
        table.evaluate("box => box.scrollLeft = box.scrollWidth")
        wait_until(lambda: first.evaluate(SHADE) == 0)
        edge = table.locator("td:first-child").first
        wait_until(lambda: edge.evaluate(SHADE.replace("before", "after")) == 1)


def test_the_page_itself_is_never_wider_than_the_screen(compare: Page):
    main = compare.locator("[data-testid=stMain]")
    assert main.evaluate("box => box.scrollWidth - box.clientWidth") <= 0


COVERED = """() => [...document.querySelectorAll('.js-plotly-plot')].flatMap(plot => {
  const place = one => one.getBoundingClientRect();
  const bar = [...plot.querySelectorAll('.modebar-group')].map(place);
  const meets = (a, b) => a.left < b.right && b.left < a.right
    && a.top < b.bottom && b.top < a.bottom;
  return [...plot.querySelectorAll('text')]
    .filter(text => place(text).width && bar.some(one => meets(one, place(text))))
    .map(text => text.textContent);
})"""
"""Texts of charts that lie below a mode bar."""


def assert_nothing_is_covered(page: Page, chart: Locator) -> None:
    chart.locator(".modebar-group").first.wait_for(state="attached")
    page.wait_for_timeout(500)
    assert page.evaluate(COVERED) == []
    chart.scroll_into_view_if_needed()
    chart.locator(".js-plotly-plot").hover()
    chart.locator(".modebar-btn").first.click(trial=True)


def test_no_mode_bar_covers_what_a_chart_of_runs_says(compare: Page):
    assert_nothing_is_covered(compare, compare.locator(".st-key-chart-peak-memory"))


def test_no_mode_bar_covers_what_a_matrix_says(reader: BrowserContext, address: str):
    page = reader.new_page()
    page.goto(f"{address}/?view=Matrix")
    chart = page.locator(".st-key-chart-matrix")
    for width, height in (SCREENS["projector"], SCREENS["phone"]):
        page.set_viewport_size({"width": width, "height": height})
        chart.locator(".main-svg").first.wait_for()
        wait_until(lambda: chart.locator(".main-svg").first.bounding_box()["width"] <= width)  # noqa: B023
        assert_nothing_is_covered(page, chart)
    page.close()


def test_the_list_of_tags_leaves_the_button_that_saves_free_and_a_file_is_imported_once_chosen(
    reader: BrowserContext, address: str
):
    page = reader.new_page()
    page.goto(f"{address}/?origin=local")
    width, height = SCREENS["phone"]
    page.set_viewport_size({"width": width, "height": height})
    open_labels_of_all(page)
    page.keyboard.type("phone")
    page.get_by_role("option", name="Add: phone").wait_for()
    page.get_by_role("button", name="Save", exact=True).click(trial=True)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("2 experiments labelled.").wait_for()
    page.get_by_role("button", name="Import").click()
    page.locator("input[type=file]").first.set_input_files(
        {"name": "inductor.csv", "mimeType": "text/csv", "buffer": HARNESS.encode()}
    )
    page.get_by_text("2 rows next to own results").wait_for()
    page.close()


def open_labels_of_all(page: Page) -> None:
    """Up to the field of the tags, which has the keyboard then."""
    table = page.locator("[data-testid=stDataFrame] canvas").first
    label = page.get_by_role("button", name="Label", exact=True)
    table.wait_for()
    for _ in range(10):  # A table that is drawn anew just then takes no click.
        page.wait_for_timeout(800)
        if not label.is_visible():
            box = table.bounding_box()
            page.mouse.click(box["x"] + 18, box["y"] + 18)  # all rows
        with suppress(TooLate):
            label.click(timeout=3_000)
            page.locator(".st-key-label-tags input").click(timeout=3_000)
            return
    raise AssertionError("no labels to change")


CONTRAST = """button => {
  const rgb = color => color.match(/[\\d.]+/g).map(Number);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const [r, g, b, a = 1] = rgb(getComputedStyle(node).backgroundColor);
      if (a > 0.5) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const text = button.querySelector('p'), paper = behind(button);
  const [r, g, b, a = 1] = rgb(getComputedStyle(text).color);
  return Math.max(...[r, g, b].map((part, at) => a * Math.abs(part - paper[at])));
}"""
"""By how much of 255 a button's word differs from what lies behind it."""
PAPER = """() => +getComputedStyle(document.querySelector('[data-testid=stApp]'))
  .backgroundColor.match(/\\d+/)[0]"""
"""How bright the page is."""


def test_a_button_that_cannot_be_used_yet_can_be_read_and_a_script_uploaded_makes_it_usable(
    reader: BrowserContext, address: str
):
    page = reader.new_page()
    page.goto(f"{address}/launch?preset=Your+own+script")
    button = page.get_by_role("button", name="Launch")
    button.wait_for()
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        wait_until(lambda: (page.evaluate(PAPER) < 128) == (theme == "dark"))  # noqa: B023
        assert button.is_disabled()
        wait_until(lambda: button.evaluate(CONTRAST) > 60)  # colours change by and by
    page.get_by_text("Upload a script").click()
    script = ROOT / "examples/scripts/plain_loop.py"
    page.locator("input[type=file]").first.set_input_files(script)
    page.get_by_text("What will run:").wait_for()
    assert button.is_enabled()
    page.close()


def test_zooming_one_chart_zooms_the_others_over_the_same_steps(compare: Page):
    compare.get_by_role("radio", name="inductor", exact=True).click()
    times, loss = (compare.locator(f".st-key-chart-run-{name}") for name in ("steps", "loss"))
    for chart in (times, loss):
        chart.locator(".main-svg").first.wait_for()
    if compare.viewport_size["width"] == 390:
        return  # where a finger scrolls and does not zoom
    shown = zoom(times)
    assert shown[0] > 10
    wait_until(lambda: x_range(loss) == pytest.approx(shown, abs=0.01))
