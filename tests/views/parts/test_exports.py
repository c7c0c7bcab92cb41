"""Exported figures and files tell what they show, also in their names, have the size and colours of
their purpose, and nothing covers them."""

import asyncio
import re
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.views.charts import losses as loss_charts
from breakeven.views.parts import downloads, pictures
from breakeven.views.parts.pictures import SIZES, THEMES, Origin, Style
from breakeven.views.shared.inert import inert_figure
from tests.helpers.comparisons import series
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
LONG = [
    f"a_backend_with_a_rather_long_name_{n}: after 1,234,567 steps, perhaps never" for n in range(7)
]
FIGURE = {"data": [{"type": "scatter", "y": [1, 2, 3]}], "layout": {}}
PNG = {"format": "png", "width": 300, "height": 200, "scale": 2}


def losses(*labels: str):
    return loss_charts.losses(series("loss", **{label: [2.0, 1.0] for label in labels}))


def test_file_names_begin_with_the_experiment(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch, files
):
    named: dict[str, str] = {}

    def button(label: str, data: object, file_name: str, mime: str, key: str, **more: object):
        if key != "download-expected":  # out of sight, and disabled
            named[key] = file_name

    monkeypatch.setattr(downloads.st, "download_button", button)
    record_experiment(folder.runs, experiment_spec(name="My <i>first race!"))
    prefix = "my-i-first-race-20261121-7f3a-"
    of_a_run = {"tab": "Runs", "run": f"{EXPERIMENT_ID}.inductor"}
    for query, begins in (({}, prefix), (of_a_run, f"{prefix}inductor-")):
        named.clear()
        opened(experiment=EXPERIMENT_ID, **query)
        assert any(name.startswith(begins) for name in named.values())
        assert all(name.startswith(prefix) for name in named.values())


def test_a_page_of_a_chart_says_all_that_a_judge_of_it_must_know(folder: DataDir, files):
    record_experiment(folder.runs, experiment_spec(name="Race <1>"))
    opened(experiment=EXPERIMENT_ID, tab="Learning")
    page = files["download-loss.html"]().decode()
    header = re.search(r"<header.*?</header>", unescape(page), re.DOTALL)[0]
    for fact in (
        "Training loss",
        "Race <1>",
        EXPERIMENT_ID,
        "builtin:bert-tiny",
        "builtin:reviews",
        "Test CPU (cpu)",
        "float32",
        "21 Nov 2026",
        "torch 2.13.0",
        "Python 3.11.7",
        "transformers 5.23.0",
    ):
        assert fact in header, fact
    assert "Race <1>" not in page, "foreign text is inert"
    assert "<script src=" not in page and len(page) > 1_000_000, "plotly.js is inside"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("BERT on reviews", "bert-on-reviews"),
        ("../../etc", "etc"),
        ("Über ½", "ber"),
        ("日本", "experiment"),
        ("a" * 90, "a" * 40),
        ("CON:|?*", "con"),
    ],
)
def test_any_name_can_begin_a_files_name(name: str, expected: str):
    assert pictures.slug(name) == expected


def test_a_picture_has_letters_title_and_colours_of_where_it_goes_and_the_page_keeps_its_figure():
    figure = losses("baseline", "inductor")
    before = figure.to_json()

    def drawn(size: str, theme: str = "light"):
        return pictures.picture(figure, "Losses", ABOUT, Style(SIZES[size], THEMES[theme]))

    slide, screen, dark = drawn("slide"), drawn("screen"), drawn("screen", "dark")
    assert (SIZES["slide"].width, slide.layout.height) == (1280, 720)
    assert slide.layout.font.size > 1.5 * screen.layout.font.size
    assert slide.data[0].line.width > 1.5 * screen.data[0].line.width
    assert slide.layout.title.text == "Losses"
    assert drawn("column").layout.title.text is None, "a paper has captions"
    assert SIZES["column"].width * SIZES["column"].scale / 3.3 == pytest.approx(300, rel=0.01)
    assert (screen.layout.paper_bgcolor, dark.layout.paper_bgcolor) == ("#ffffff", "#14171b")
    assert screen.layout.font.color != dark.layout.font.color
    assert [trace.line.color for trace in screen.data] == [trace.line.color for trace in dark.data]
    assert figure.to_json() == before


BOXES = """names => names.map(name => {
  const box = document.querySelector(name).getBoundingClientRect();
  return [box.left, box.top, box.right, box.bottom];
})"""


@pytest.mark.slow
@pytest.mark.browser
def test_in_a_picture_and_in_a_page_of_a_chart_no_title_lies_over_the_legend(
    browser: Browser, tmp_path: Path
):
    page = browser.new_context(viewport={"width": 1000, "height": 1200}).new_page()
    drawn = inert_figure(pictures.picture(losses(*LONG), "Training loss", ABOUT))
    drawn.write_html(tmp_path / "picture.html", include_plotlyjs=True, default_width=1000)
    page.goto((tmp_path / "picture.html").as_uri())
    names = [".gtitle", ".gtitle-subtitle", ".legend", ".nsewdrag"]
    title, facts, legend, plot = page.evaluate(BOXES, names)
    assert title[3] <= facts[1] + 4, "the facts follow the title"
    assert facts[3] <= legend[1], "the legend follows the facts"
    assert legend[3] <= plot[1] + 4, "the plot follows the legend"
    assert facts[2] <= 1000 and legend[2] <= 1000, "nothing leaves the picture"
    assert plot[3] - plot[1] > 250

    file = tmp_path / "page.html"
    file.write_bytes(pictures.to_html(losses(*LONG[:5]), "Training loss", ["loss"], ABOUT))
    page.goto(file.as_uri())
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(f"document.querySelector('.main-svg').clientWidth <= {width}")
        header, legend = page.evaluate(BOXES, ["header", ".legend"])
        assert header[3] <= legend[1]
    titles = "buttons => buttons.map(button => button.dataset.title)"
    offered = page.locator(".modebar-btn").evaluate_all(titles)
    assert offered and not [title for title in offered if "cloud" in title.lower()]
    page.context.close()


@pytest.mark.browser
def test_one_browser_draws_figures_each_in_its_format_where_an_event_loop_runs_and_goes() -> None:
    async def ask() -> list[bytes]:
        kinds = ({}, {"width": 400}, {"format": "svg"}, {"format": "pdf"})
        return pictures.draw([(FIGURE, PNG | kind) for kind in kinds])

    with ThreadPoolExecutor(1) as thread:  # Playwright's loop runs in this thread.
        first, second, vectors, paper = thread.submit(asyncio.run, ask()).result()
    # Width and height follow the signature and the head of the first chunk.
    assert [struct.unpack(">II", picture[16:24]) for picture in (first, second)] == [
        (600, 400),
        (800, 400),
    ]
    assert vectors.startswith(b"<svg") and paper.startswith(b"%PDF")
    with pytest.raises(pictures.NotDrawn, match="Try again"):
        pictures.draw([({"data": [{"type": "no such chart", "y": 1}], "layout": 7}, PNG)])
    children = Path(f"/proc/self/task/{threading.main_thread().native_id}/children")
    names = [Path(f"/proc/{pid}/comm").read_text() for pid in children.read_text().split()]
    assert not [name for name in names if "chrom" in name]
