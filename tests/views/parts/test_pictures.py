"""Pictures of charts: in the size and the colours of where they go, by a browser that is kept."""

import os
import re
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import plotly.graph_objects as go
import pytest

from runner.project import PROJECT_ROOT
from tests.helpers.comparisons import series
from views.charts import layers as charts
from views.parts.drawing import KeptBrowser, NotDrawn
from views.parts.exports import Origin
from views.parts.pictures import SIZES, THEMES, Style, picture

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


@pytest.fixture(scope="module")
def kept() -> Iterator[KeptBrowser]:
    kept = KeptBrowser()
    yield kept
    kept.close()


def processes(kept: KeptBrowser) -> int:
    assert kept._kaleido is not None
    return kept._kaleido.subprocess.pid


@pytest.mark.browser
def test_one_browser_draws_for_several_at_a_time(kept: KeptBrowser) -> None:
    kept.picture(FIGURE, PNG)
    first, pictures = processes(kept), {}

    def draw(number: int) -> None:
        pictures[number] = kept.picture(FIGURE, {**PNG, "width": 300 + number})

    threads = [threading.Thread(target=draw, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Width and height stand behind the signature and the head of the first chunk.
    sizes = {n: struct.unpack(">II", one[16:24]) for n, one in pictures.items()}
    assert sizes == {number: (600 + 2 * number, 400) for number in range(4)}
    assert processes(kept) == first


@pytest.mark.browser
def test_a_browser_that_was_killed_is_started_anew(kept: KeptBrowser) -> None:
    kept.picture(FIGURE, PNG)
    first = processes(kept)
    os.kill(first, signal.SIGKILL)
    assert kept.picture(FIGURE, PNG).startswith(b"\x89PNG")
    assert processes(kept) != first


@pytest.mark.browser
def test_what_cannot_be_drawn_is_said_and_the_next_picture_comes(kept: KeptBrowser) -> None:
    with pytest.raises(NotDrawn, match="Try again"):
        kept.picture({"data": [{"type": "no such chart", "y": 1}], "layout": 7}, PNG)
    for format, begins in (("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF")):
        assert kept.picture(FIGURE, {**PNG, "format": format}).startswith(begins)


@pytest.mark.browser
@pytest.mark.parametrize("how", ["sys.exit()", "os.kill(os.getpid(), 9)"])
def test_the_browser_ends_with_the_process_however_that_ends(how: str) -> None:
    code = (
        "import os, sys\nfrom views.parts.drawing import browser\n"
        f"browser.picture({FIGURE!r}, {PNG!r})\n"
        f"print(browser._kaleido.subprocess.pid, flush=True)\n{how}"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True,
                           text=True, timeout=120)  # fmt: skip
    pid = int(ended.stdout)
    for _ in range(100):
        if not is_alive(pid):
            return
        threading.Event().wait(0.1)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the browser outlived the process that it drew for")


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


LATE = """<body><script>
setTimeout(() => {
  window.drawn = async () => {
    document.body.innerHTML = "<p style='break-after: page'>drawn</p>".repeat(3);
    return true;
  };
}, 1500);
</script></body>"""


@pytest.mark.browser
def test_a_page_that_takes_a_while_to_load_is_printed_once_it_is_drawn(
    kept: KeptBrowser, tmp_path: Path
) -> None:
    page = tmp_path / "late.html"
    page.write_text(LATE)
    printed = kept.printed(page, "drawn()")
    # Three breaks make three pages, and an empty one may follow.
    assert re.search(rb"/Count [34]\b", printed), "printed before it was drawn"
