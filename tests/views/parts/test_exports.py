"""What leaves a page says what it shows, under a name that says it too, and nothing covers it."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from breakeven.runner.folders.data_dir import DataDir
from breakeven.views.charts import bars
from breakeven.views.charts import layers as charts
from breakeven.views.parts import downloads
from breakeven.views.parts.pictures import Origin, picture, slug, to_html
from breakeven.views.shared.inert import inert_figure
from tests.helpers.comparisons import result, series
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment
from tests.helpers.pages import opened

ABOUT = Origin(
    name="bert-20261121-7f3a",
    facts=(
        "Star reviews · 20261121-093015-123456-7f3a",
        "builtin:bert-tiny on builtin:reviews · NVIDIA H200 (cuda:0) · bfloat16 · 21 Nov 2026",
        ", ".join(f"package{number} 1.{number}.0" for number in range(14)),
    ),
)
LONG = "a_backend_with_a_rather_long_name_{}: after 1,234,567 steps, perhaps never"


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Names of the files that a page offers, by the button's key."""
    offered: dict[str, str] = {}

    def button(label: str, data: object, file_name: str, mime: str, key: str, **more: object):
        if key != "download-expected":  # out of sight, and disabled
            offered[key] = file_name

    monkeypatch.setattr(downloads.st, "download_button", button)
    return offered


def test_file_names_begin_with_the_experiment(folder: DataDir, named: dict[str, str]):
    record_experiment(folder.runs, experiment_spec(name="My <b>first</b> race!".replace("b>", "")))
    mine = "my-first-race-20261121-7f3a-"
    of_a_run = {"tab": "Runs", "run": f"{EXPERIMENT_ID}.inductor"}
    for query, begins in (({}, mine), ({"tab": "Runs"}, mine), (of_a_run, f"{mine}inductor-")):
        named.clear()
        opened(experiment=EXPERIMENT_ID, **query)
        assert any(name.startswith(begins) for name in named.values())
        assert all(name.startswith(mine) for name in named.values())


def test_a_page_of_a_chart_says_all_that_a_judge_of_it_must_know(folder: DataDir, files):
    record_experiment(folder.runs, experiment_spec(name="Race <1>"))
    opened(experiment=EXPERIMENT_ID, tab="Learning")
    said = unescape(files["download-loss.html"]().decode())
    header = re.search(r"<header.*?</header>", said, re.DOTALL)[0]
    for fact in ("Training loss", "Race <1>", EXPERIMENT_ID, "builtin:bert-tiny", "builtin:reviews",
                 "Test CPU (cpu)", "float32", "21 Nov 2026", "torch 2.13.0", "Python 3.11.7",
                 "transformers 5.23.0"):  # fmt: skip
        assert fact in header, fact


@pytest.mark.parametrize(
    ("name", "expected"),
    [("BERT on reviews", "bert-on-reviews"), ("../../etc", "etc"), ("Über ½", "ber"),
     ("日本", "experiment"), ("a" * 90, "a" * 40), ("CON:|?*", "con")],
)  # fmt: skip
def test_any_name_can_begin_a_files_name(name: str, expected: str):
    assert slug(name) == expected


BOXES = """names => names.map(name => {
  const found = document.querySelector(name);
  const box = found && found.getBoundingClientRect();
  return box && [box.left, box.top, box.right, box.bottom];
})"""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_context(viewport={"width": 1000, "height": 1200}).new_page()
    yield page
    page.close()


@pytest.mark.browser
def test_in_a_picture_no_title_lies_over_the_legend(page: Page, tmp_path: Path):
    labels = [LONG.format(n) for n in range(7)]
    figure = charts.losses(series("loss", **{label: [2.0, 1.0] for label in labels}))
    drawn = inert_figure(picture(figure, "Training loss", ABOUT))
    file = tmp_path / "picture.html"
    drawn.write_html(file, include_plotlyjs=True, default_width=1000)
    page.goto(file.as_uri())
    names = [".gtitle", ".gtitle-subtitle", ".legend", ".nsewdrag"]
    title, facts, legend, plot = page.evaluate(BOXES, names)
    assert title[3] <= facts[1] + 4, "the facts follow the title"
    assert facts[3] <= legend[1], "the legend follows the facts"
    assert legend[3] <= plot[1] + 4, "the plot follows the legend"
    assert facts[2] <= 1000 and legend[2] <= 1000, "nothing leaves the picture"
    assert plot[3] - plot[1] > 250


@pytest.mark.browser
def test_in_a_page_of_a_chart_no_title_lies_over_the_legend(page: Page, tmp_path: Path):
    figure = charts.losses(series("loss", **{LONG.format(n): [2.0, 1.0] for n in range(5)}))
    file = tmp_path / "page.html"
    file.write_bytes(to_html(figure, "Training loss", ["loss"], ABOUT))
    page.goto(file.as_uri())
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(f"document.querySelector('.main-svg').clientWidth <= {width}")
        header, legend = page.evaluate(BOXES, ["header", ".legend"])
        assert header[3] <= legend[1]
    offered = page.locator(".modebar-btn").evaluate_all("all => all.map(one => one.dataset.title)")
    assert offered and not [one for one in offered if "cloud" in one.lower()]


def test_the_marks_of_memory_are_explained_in_the_chart_itself():
    results = [result("baseline", peak_memory_bytes=2**30),
               result("inductor", peak_memory_bytes=2**29, compile_peak_memory_bytes=2**30,
                      allocated_memory_bytes=3 * 2**30)]  # fmt: skip
    figure = bars.peak_memory(results)
    explained = {trace.name: trace.marker.symbol for trace in figure.data if trace.showlegend}
    assert explained == {"Memory needed to compile": "diamond-open", "Allocated memory": "line-ns"}
    assert figure.layout.showlegend
    plain = bars.peak_memory(results[:1])
    assert not [trace for trace in plain.data if trace.showlegend], "nothing to explain"
