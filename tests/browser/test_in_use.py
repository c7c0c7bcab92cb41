"""A dashboard in use, in a real Chromium: choices stay, important parts are in view on a projector
and on a phone, and exported files can be imported."""

import io
import os
import pickle
import re
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect
from playwright.sync_api import TimeoutError as TooLate

from breakeven.runner.files import FileLock
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from tests.browser.going import fits, go
from tests.browser.zooming import x_range, zoom
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)
from tests.helpers.pages import compare_all
from tests.helpers.serving import ROOT, served
from tests.helpers.suites import HARNESS
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.browser
OLDER, NEWER = "20261121-101010-000000-aaa0", "20261122-101010-000000-aaa1"
RUNNING = "20261123-101010-000000-aaa2"
LABELS = ("baseline", "control", "inductor")
NOTES = """() => {
  window.notifications = [];
  window.Notification = class extends window.Notification {
    constructor(title, options) {
      super(title, options);
      window.notifications.push(`${title}: ${options.body}`);
    }
  };
}"""
"""Records the notifications that the browser shows."""
CHOSEN = "[role=radio][aria-checked=true]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataDir]:
    """Three finished experiments; one has many backends with long names."""
    folder = DataDir(Path(tmp_path_factory.mktemp("use")) / "data")
    folder.path.mkdir()
    lock = FileLock(folder.supervisor_lock)
    assert lock.try_acquire(), "these tests are the supervisor; another would end what they play"
    long = ("inductor:mode=reduce-overhead", "eager", "a_backend_with_a_rather_long_name")
    record_experiment(folder.runs, experiment_spec(num_steps=80, backends=("inductor", *long)))
    record_experiment(folder.runs, experiment_spec(name="older"), OLDER)
    spec = experiment_spec(name="newer", backends=("inductor", "aot_eager"))
    record_experiment(folder.runs, spec, NEWER)
    compare_all(folder)
    yield folder
    lock.release()


@pytest.fixture(scope="module")
def runs(folder: DataDir) -> dict[str, Recording]:
    """The runs of an active experiment, by label."""
    spec = experiment_spec(name="at work", num_steps=1000)
    me = ProcessIdentity.from_pid(os.getpid())
    started = {label: Recording(folder.runs, label, spec, RUNNING) for label in LABELS}
    for run in started.values():
        run.claim(me).start().block([0.1] * 10, falling_losses(10))
    return started


@pytest.fixture(scope="module")
def address(folder: DataDir, runs: dict[str, Recording]) -> Iterator[str]:
    with served(folder, supervised=False) as (url, _server):
        yield url


@pytest.fixture(scope="module")
def tab(reader: BrowserContext) -> Page:
    return reader.new_page()


@pytest.fixture
def page(tab: Page) -> Page:
    """The page as the previous test left it, in the usual size: loading takes long."""
    tab.set_viewport_size({"width": 1280, "height": 1000})
    tab.emulate_media(color_scheme="light")
    return tab


def to(page: Page, title: str) -> None:
    """Goes to a page through the bar on top, as people do."""
    page.get_by_role("link", name=title, exact=True).first.click()


def chosen_experiment(page: Page) -> str:
    return the_field(page).input_value()


def the_field(page: Page) -> Locator:
    """The list of experiments, after the field of the previous page has disappeared."""
    field = page.locator(".st-key-chosen_experiment input")
    expect(field).to_have_count(1)
    return field


def choose(page: Page, name: str) -> None:
    """Opens the list again if a page that was still being drawn closed it."""
    wanted = page.get_by_role("option", name=re.compile(f"^{name} "))
    for _ in range(3):
        the_field(page).click()
        with suppress(TooLate):
            wanted.wait_for(timeout=10_000)
            break
    wanted.click()


def sizes_of_plotly(page: Page) -> list[int]:
    """Bytes of each script of plotly.js that the page loaded, after a chart is drawn."""
    page.locator(".moving-chart .main-svg").first.wait_for()
    loaded = "performance.getEntriesByType('resource').map(file => [file.name, file.transferSize])"
    return [size for name, size in page.evaluate(loaded) if "plotly" in name.lower()]


# First in this file, because the browser's cache is still empty.
def test_what_was_chosen_is_shown_again_on_the_way_back(page: Page, address: str):
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

    # The runs that are selected in one experiment are not requested of another.
    go(page, f"{address}/experiment?tab=Runs&experiment={NEWER}")
    pills = page.locator(".st-key-runs button")
    pills.filter(has_text="aot_eager").click()
    page.wait_for_url(re.compile("runs="))
    choose(page, "older")
    page.wait_for_url(re.compile(OLDER))
    expect(pills).to_have_count(3)
    assert "runs=" not in page.url
    expect(page.locator(".st-key-runs button[aria-pressed=true]")).to_have_count(3)


def open_palette(page: Page) -> Locator:
    """The palette's field. A page that has just been drawn ignores keys for some milliseconds."""
    field = page.get_by_role("dialog").locator("input")

    def opens() -> bool:
        page.keyboard.press("Control+k")
        with suppress(TooLate):
            field.wait_for(timeout=2000)
        return field.is_visible()

    wait_until(opens)
    expect(field).to_be_focused()
    return field


def test_control_k_opens_an_experiment_by_its_name(page: Page, address: str):
    page.goto(f"{address}/experiment?experiment={OLDER}")
    field = open_palette(page)
    page.keyboard.press("Escape")
    expect(field).to_have_count(0)
    open_palette(page)
    page.keyboard.type("newer")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(NEWER))
    assert [size > 100_000 for size in sizes_of_plotly(page)] == [False], "the browser has it"


SCREENS = {"projector": (1280, 720), "phone": (390, 844), "desk": (2200, 1200)}
SEEN = """cell => {
  const table = cell.closest('.leaderboard'), scrolled = table.scrollLeft;
  cell.scrollIntoView({behavior: 'instant', block: 'center', inline: 'nearest'});
  table.scrollLeft = scrolled;
  const box = cell.getBoundingClientRect();
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  const top = document.elementFromPoint(x, y);
  return box.left >= 0 && box.right <= innerWidth && (cell.contains(top) || cell === top);
}"""
"""Whether the whole cell is within the page, and nothing covers it."""
HIDDEN = (
    f"cells => cells.filter(cell => !({SEEN})(cell) || !cell.innerText.trim())"
    ".map(cell => cell.outerHTML)"
)
"""The cells that cannot be read."""
SHADE = "cell => +getComputedStyle(cell, '::before').opacity"


@pytest.mark.parametrize(
    "screen",
    ["projector", *(pytest.param(name, marks=pytest.mark.slow) for name in ("phone", "desk"))],
)
def test_runs_are_in_sight_on_every_screen_and_their_charts_zoom_together(
    page: Page, address: str, screen: str
):
    width, height = SCREENS[screen]
    page.set_viewport_size({"width": width, "height": height})
    go(page, f"{address}/experiment?experiment={EXPERIMENT_ID}&tab=Verdict")
    page.locator(".st-key-chart-break-even .main-svg").first.wait_for()
    cards = page.locator(".backend-cards").bounding_box()
    chart = page.locator(".st-key-chart-break-even").bounding_box()
    assert cards and chart
    assert width > 390 or cards["y"] < chart["y"], "on a phone the cards come before the chart"
    page.get_by_role("tab", name="Runs").click()
    page.locator(".leaderboard td.break-even").first.wait_for()
    page.wait_for_timeout(500)
    assert fits(page)

    # Runs and their break-even are in view however the table is scrolled.
    table = page.locator(".leaderboard").first
    cells = table.locator(".break-even, tr > :first-child")
    assert cells.count() == 14, "a title and six runs, twice"
    for scrolled in (0.0, 0.5, 1.0):
        table.evaluate("(box, share) => box.scrollLeft = share * box.scrollWidth", scrolled)
        assert not cells.evaluate_all(HIDDEN), scrolled

    # A shade shows that columns are scrolled away; without hidden columns there is none.
    first = table.locator("td.break-even").first
    table.evaluate("box => box.scrollLeft = 0")
    hidden = table.evaluate("box => box.scrollWidth - box.clientWidth")
    assert (hidden > 0) == (width == 390), hidden
    wait_until(lambda: first.evaluate(SHADE) == (1 if hidden > 0 else 0))
    if hidden > 0:
        table.evaluate("box => box.scrollLeft = box.scrollWidth")
        wait_until(lambda: first.evaluate(SHADE) == 0)
        edge = table.locator("td:first-child").first
        wait_until(lambda: edge.evaluate(SHADE.replace("before", "after")) == 1)

    page.get_by_role("radio", name="inductor", exact=True).click()
    times, loss = (page.locator(f".st-key-chart-run-{name}") for name in ("steps", "loss"))
    for chart in (times, loss):
        chart.locator(".main-svg").first.wait_for()
    if width > 390:  # on a phone, a finger scrolls and does not zoom
        shown = zoom(times)
        assert shown[0] > 10
        wait_until(lambda: x_range(loss) == pytest.approx(shown, abs=0.01))


HEIGHTS = """() => {
  window.heights = {};
  const look = () => {
    for (const place of document.querySelectorAll('[data-testid=stElementContainer]')) {
      const name = place.className.match(/st-key-(chart-\\S+)/)?.[1];
      if (name) (window.heights[name] ??= []).push(Math.round(place.offsetHeight));
    }
    requestAnimationFrame(look);
  };
  look();
}"""
"""Records the height of each chart's place in every frame."""
SHOWN = "names => names.every(name => window.heights[name]?.some(height => height))"
"""Whether each of these charts was recorded in its place."""
OUTLINE = """() => {
  const style = getComputedStyle(document.activeElement);
  return `${style.outlineStyle} ${style.outlineWidth} ${style.outlineColor}`;
}"""


SHIFTED = """() => new Promise(resolve => {
  let shifted = 0;
  new PerformanceObserver(list => {
    for (const entry of list.getEntries()) shifted += entry.value;
  }).observe({type: 'layout-shift', buffered: true});
  setTimeout(() => resolve(shifted), 500);
})"""
"""The sum of the layout shifts since the page was opened."""


@pytest.mark.slow
def test_a_chart_has_its_place_before_it_is_drawn_and_the_tab_names_page_and_experiment(
    page: Page, address: str
):
    page.goto(f"{address}/experiment?experiment={OLDER}&tab=Settings")
    page.get_by_text("The same experiment without the browser").wait_for()
    assert page.title() == "older · Experiment · Breakeven"
    assert page.evaluate(SHIFTED) < 0.1
    page.evaluate(HEIGHTS)
    page.get_by_role("tab", name="Learning").click()
    page.locator(".st-key-chart-loss .main-svg").first.wait_for()
    page.get_by_role("tab", name="Verdict").click()
    page.locator(".st-key-chart-break-even .main-svg").first.wait_for()
    # Under load, a late frame may still record the place of a chart that is already shown.
    page.wait_for_function(SHOWN, arg=["chart-loss", "chart-break-even"])
    for name, seen in page.evaluate("window.heights").items():
        shown = {height for height in seen if height}  # 0 while its tab is hidden
        assert max(shown, default=0) - min(shown, default=0) <= 2, (name, shown)

    # The focus is visible for people who use the keyboard.
    page.locator("body").press("Tab")
    outlines = []
    for _ in range(25):
        outlines.append(page.evaluate(OUTLINE))
        page.keyboard.press("Tab")
    assert set(outlines) == {"solid 2px rgb(47, 127, 224)"}
    to(page, "Launch")
    page.wait_for_function("document.title === 'Launch · Breakeven'")
    go(page, f"{address}/?view=Matrix")
    page.wait_for_function("document.title === 'Matrix · Experiments · Breakeven'")


@pytest.mark.slow
def test_the_list_of_tags_leaves_the_button_that_saves_free_and_a_file_is_imported_once_chosen(
    page: Page, address: str
):
    go(page, f"{address}/?origin=local")
    width, height = SCREENS["phone"]
    page.set_viewport_size({"width": width, "height": height})
    open_labels_of_all(page)
    page.keyboard.type("phone")
    page.get_by_role("option", name="Add: phone").wait_for()
    page.get_by_role("button", name="Save", exact=True).click(trial=True)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("4 experiments labelled.").wait_for()
    page.get_by_role("button", name="Import").click()
    page.locator("input[type=file]").first.set_input_files(
        {"name": "inductor.csv", "mimeType": "text/csv", "buffer": HARNESS.encode()}
    )
    page.get_by_text("2 rows next to own results").wait_for()


def open_labels_of_all(page: Page) -> None:
    """Moves the focus to the field of the tags."""
    table = page.locator("[data-testid=stDataFrame] canvas").first
    label = page.get_by_role("button", name="Label", exact=True)
    table.wait_for()
    for _ in range(10):  # A table ignores a click while it is drawn again.
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
"""The difference between a button's text and its background, of 255."""
PAPER = """() => +getComputedStyle(document.querySelector('[data-testid=stApp]'))
  .backgroundColor.match(/\\d+/)[0]"""
"""The brightness of the page."""


def test_a_button_that_cannot_be_used_yet_can_be_read_and_a_script_uploaded_makes_it_usable(
    page: Page, address: str
):
    go(page, f"{address}/launch?preset=Your+own+script")
    button = page.get_by_role("button", name="Launch")
    button.wait_for()
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        wait_until(lambda: (page.evaluate(PAPER) < 128) == (theme == "dark"))  # noqa: B023
        assert button.is_disabled()
        wait_until(lambda: button.evaluate(CONTRAST) > 60)  # colours change slowly
    page.get_by_text("Upload a script").click()
    script = ROOT / "examples/scripts/plain_loop.py"
    page.locator("input[type=file]").first.set_input_files(script)
    page.get_by_text("What will run:").wait_for()
    assert button.is_enabled()


class Planted:
    """A pickle that would create a file if anybody unpickled it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def tarred(file: Path, entries: dict[str, bytes], link: str = "") -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        if link:
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(entry)
    return file


@pytest.mark.slow
def test_a_report_is_taken_away_and_archives_come_in_of_which_hostile_ones_do_nothing(
    page: Page, address: str, folder: DataDir, tmp_path: Path
) -> None:
    go(page, f"{address}/experiment?experiment={OLDER}&tab=Verdict")
    with page.expect_download() as data:
        page.locator(".st-key-downloads-of-break-even button").click()
        page.locator(".st-key-download-break-even-parquet button").click()
    assert data.value.suggested_filename == "older-20261121-aaa0-break-even.parquet"
    page.locator(".st-key-export button").click()
    with page.expect_download() as report:
        page.locator(".st-key-download-report-html button").click()
    report.value.save_as(tmp_path / "report.html")

    came, mark = "20261123-093015-123456-7f3b", tmp_path / "was run"
    runs = DataDir(tmp_path / "elsewhere").runs
    record_experiment(runs, experiment_spec(num_steps=80, name="Came along"), came)
    planted = pickle.dumps(Planted(mark))
    good = {
        str(file.relative_to(runs)): file.read_bytes() for file in runs.rglob("*") if file.is_file()
    }
    good |= {f"{came}.inductor/checkpoints/step-80.pt": planted, "setup.py": b"import os"}
    with zipfile.ZipFile(tmp_path / "hostile.zip", "w") as archive:
        archive.writestr("../../outside", "x")
    (tmp_path / "picture.zip").write_bytes(b"\x89PNG\r\n" + bytes(100))
    (tmp_path / "tool.exe").write_bytes(b"MZ")
    files = [
        tarred(tmp_path / "good.tar.gz", good),
        tmp_path / "picture.zip",
        tarred(tmp_path / "link.tar.gz", {"a/spec.json": b"{}"}, link="a/events.jsonl"),
        tmp_path / "tool.exe",
        tmp_path / "report.html",
        tmp_path / "hostile.zip",
    ]
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    go(page, f"{address}/?view=Table")
    page.locator(".st-key-import button").focus()
    page.keyboard.press("Enter")
    page.locator("input[type=file]").set_input_files(files)
    expect(page.get_by_text("files are not allowed", exact=False)).to_be_visible()
    for said in (
        "good.tar.gz: 3 new runs",
        "picture.zip is nothing that can be imported",
        "is a link or a device",
        "report.html: 3 runs there already",
        "leads out of its folder",
    ):
        expect(page.get_by_text(said)).to_be_visible()
    assert not mark.exists() and not (folder.path.parent / "outside").exists()
    assert not list(folder.path.rglob("setup.py"))
    assert {run.run_id for run in folder.run_dirs() if came in run.run_id} == {
        f"{came}.{label}" for label in ("baseline", "control", "inductor")
    }
    page.get_by_role("link", name=f"Open {came}").click()
    expect(page.locator(".backend-cards")).to_be_visible()
    assert fits(page)


def test_a_race_keeps_zoom_and_hidden_lines_while_data_arrive_and_is_stopped_and_told_of(
    page: Page, address: str, runs: dict[str, Recording], tmp_path: Path
):
    page.context.grant_permissions(["notifications"])
    page.evaluate(NOTES)
    go(page, f"{address}/experiment?experiment={RUNNING}")
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
    page.wait_for_function(f"steps => {drawn}.calcdata[0].length > steps", arg=before["steps"])
    page.wait_for_timeout(1000)
    after = chart.evaluate(look)
    assert (after["range"], after["hidden"]) == (before["range"], ["control"])

    # One run has the turn, the others wait.
    runs["inductor"].log.append("phase", phase="training")
    runs["baseline"].log.append("phase", phase="waiting")
    runs["control"].log.append("phase", phase="waiting")
    for run in runs.values():
        run.log.flush()
    expect(page.get_by_text("waiting for its turn")).to_have_count(2)
    expect(page.get_by_text("training a block")).to_have_count(1)

    # While the chart moves, it has its title and its downloads.
    expect(page.get_by_text("Loss so far")).to_be_visible()
    with page.expect_download() as download:
        page.locator(".st-key-downloads-of-race button").click()
        page.locator(".st-key-download-race-csv button").click()
    assert download.value.suggested_filename == "at-work-20261123-aaa2-race.csv"
    download.value.save_as(tmp_path / "race.csv")
    assert len((tmp_path / "race.csv").read_text().splitlines()) == 1 + 3 * 20

    # The experiment is stopped, and the reader who requested it is notified of the end.
    page.get_by_role("button", name="Tell me when it is over").click()
    expect(page.get_by_role("button", name="You will be told")).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Stop it").click()
    wait_until(lambda: all(run.run.cancel_file.exists() for run in runs.values()))
    for run in runs.values():
        run.end(RunState.CANCELLED, "stopped")
    page.wait_for_function("window.notifications.length > 0")
    assert page.evaluate("window.notifications") == ["at work: stopped"]
    # The race changes to its verdict without a click.
    expect(page.get_by_role("tab", name="Verdict")).to_be_visible()
    expect(page.get_by_text("stopped").first).to_be_visible()
