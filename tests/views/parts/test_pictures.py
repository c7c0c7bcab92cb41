"""Pictures of charts: in the size and the colours of where they go."""

import asyncio
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import plotly.graph_objects as go
import pytest

from breakeven.views.charts import layers as charts
from breakeven.views.parts.pictures import SIZES, THEMES, NotDrawn, Origin, Style, draw, picture
from tests.helpers.comparisons import series

ABOUT = Origin(name="mine", facts=("Mine · 7f3a", "bert on reviews · cpu"))
RUNS = {label: [2.0, 1.0] for label in ("baseline", "inductor", "cudagraphs")}


def drawn(size: str, theme: str) -> go.Figure:
    figure = charts.losses(series("loss", **RUNS))
    return picture(figure, "Losses", ABOUT, Style(SIZES[size], THEMES[theme]))


def test_a_slide_is_as_large_as_a_slide_and_its_letters_can_be_read_from_afar() -> None:
    slide, screen = drawn("slide", "light"), drawn("screen", "light")
    assert slide.layout.height == 720 and SIZES["slide"].width == 1280
    assert slide.layout.font.size > 1.5 * screen.layout.font.size
    assert slide.data[0].line.width > 1.5 * screen.data[0].line.width
    assert slide.layout.title.text == "Losses"


def test_a_paper_column_has_neither_title_nor_facts_which_are_its_captions() -> None:
    column = drawn("column", "light")
    assert column.layout.title.text is None
    assert SIZES["column"].width * SIZES["column"].scale / 3.3 == pytest.approx(300, rel=0.01)


def test_colours_are_those_of_the_theme_and_runs_keep_theirs() -> None:
    light, dark = drawn("screen", "light"), drawn("screen", "dark")
    assert (light.layout.paper_bgcolor, dark.layout.paper_bgcolor) == ("#ffffff", "#14171b")
    assert light.layout.font.color != dark.layout.font.color
    assert [one.line.color for one in light.data] == [one.line.color for one in dark.data]


def test_drawing_leaves_the_figure_of_the_page_as_it_is() -> None:
    figure = charts.losses(series("loss", **RUNS))
    before = figure.to_json()
    picture(figure, "Losses", ABOUT, Style(SIZES["slide"], THEMES["dark"]))
    assert figure.to_json() == before


FIGURE = {"data": [{"type": "scatter", "y": [1, 2, 3]}], "layout": {}}
PNG = {"format": "png", "width": 300, "height": 200, "scale": 2}


@pytest.mark.browser
def test_one_browser_draws_figures_each_in_its_format_and_size_where_an_event_loop_runs() -> None:
    wide = {**PNG, "width": 400}

    async def ask() -> list[bytes]:
        return draw([(FIGURE, PNG), (FIGURE, wide), (FIGURE, {**PNG, "format": "svg"}),
                     (FIGURE, {**PNG, "format": "pdf"})])  # fmt: skip

    with ThreadPoolExecutor(1) as thread:  # Playwright's loop runs in this one.
        first, second, vectors, paper = thread.submit(asyncio.run, ask()).result()
    # Width and height stand behind the signature and the head of the first chunk.
    assert [struct.unpack(">II", one[16:24]) for one in (first, second)] == [(600, 400), (800, 400)]
    assert vectors.startswith(b"<svg") and paper.startswith(b"%PDF")


@pytest.mark.browser
def test_what_cannot_be_drawn_is_said_and_no_browser_stays_behind() -> None:
    with pytest.raises(NotDrawn, match="Try again"):
        draw([({"data": [{"type": "no such chart", "y": 1}], "layout": 7}, PNG)])
    children = Path(f"/proc/self/task/{threading.main_thread().native_id}/children")
    names = [Path(f"/proc/{pid}/comm").read_text() for pid in children.read_text().split()]
    assert not [name for name in names if "chrom" in name]
