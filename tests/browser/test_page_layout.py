"""What must be in sight on a projector and on a phone, in a real Chromium."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page

from runner.folders.data_dir import DataDir
from tests.browser.zooming import x_range, zoom
from tests.helpers.journals import experiment_spec, record_experiment
from tests.helpers.serving import served

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
    with served(folder) as (url, _server):
        yield url


@pytest.fixture(
    params=["projector", "phone", pytest.param("desk", marks=pytest.mark.slow)], scope="module"
)
def compare(reader: BrowserContext, address: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    width, height = SCREENS[request.param]
    page = reader.new_page()
    page.set_viewport_size({"width": width, "height": height})
    page.goto(address)
    page.locator(".leaderboard td.namesake").first.wait_for(timeout=60_000)
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
    compare.wait_for_timeout(200)
    hidden = table.evaluate("box => box.scrollWidth - box.clientWidth")
    assert (hidden > 0) == (compare.viewport_size["width"] == 390), hidden
    assert first.evaluate(SHADE) == (1 if hidden > 0 else 0)
    if hidden > 0:
        table.evaluate("box => box.scrollLeft = box.scrollWidth")
        compare.wait_for_timeout(200)
        assert first.evaluate(SHADE) == 0
        edge = table.locator("td:first-child").first
        assert edge.evaluate(SHADE.replace("before", "after")) == 1


def test_the_page_itself_is_never_wider_than_the_screen(compare: Page):
    main = compare.locator("[data-testid=stMain]")
    assert main.evaluate("box => box.scrollWidth - box.clientWidth") <= 0


def test_zooming_one_chart_zooms_the_others_over_the_same_steps(compare: Page):
    paid, loss = (compare.locator(f".st-key-chart-{name}") for name in ("break-even", "loss"))
    for chart in (paid, loss):
        chart.locator(".main-svg").first.wait_for(timeout=30_000)
    if compare.viewport_size["width"] == 390:
        return  # where a finger scrolls and does not zoom
    shown = zoom(paid)
    assert shown[0] > 10
    for _ in range(40):
        if x_range(loss) == pytest.approx(shown, abs=0.01):
            break
        compare.wait_for_timeout(50)
    assert x_range(loss) == pytest.approx(shown, abs=0.01)
