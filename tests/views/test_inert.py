"""Foreign text is shown literally: by the function that makes it inert, which no source
bypasses."""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest
from playwright.sync_api import Browser, Page

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.views.parts.downloads import Card
from breakeven.views.shared.inert import JOINER, code, inert, inert_figure, prose
from tests.helpers.hostile_texts.sources import Sources
from tests.helpers.hostile_texts.texts import HOST, ODD, TEXTS
from tests.helpers.serving import served

VIEWS = Path(__file__).parents[2] / "views"
WAYS = ("plain", "code", "label")


@pytest.fixture(scope="module")
def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page of all texts; its requests to other hosts are listed in `foreign_requests`."""
    folder = DataDir(tmp_path_factory.mktemp("inert"))
    program = "tests/helpers/hostile_texts/page.py"
    with served(folder, program, {"PYTHONPATH": "."}) as (url, _server):
        page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
        page.foreign_requests = []  # type: ignore[attr-defined]
        page.on(
            "request",
            lambda request: (
                page.foreign_requests.append(request.url) if HOST in request.url else None
            ),
        )
        page.goto(url)
        page.locator(".js-plotly-plot").wait_for()
        yield page
        page.close()


READ = """places => places.map(place => {
  const element = document.querySelector(place);
  return element && [element.innerText, element.getAttribute('title') ?? ''];
})"""


@pytest.mark.slow
@pytest.mark.browser
def test_a_browser_shows_every_character_of_a_foreign_text(shown: Page) -> None:
    places = [".html-{}", *(f".st-key-{way}-{{}} p" for way in WAYS)]
    wrong = {}
    for number, text in enumerate(TEXTS):
        shown_texts = shown.evaluate(READ, [place.format(number) for place in places])
        for place, (said, title) in zip(places, shown_texts, strict=True):
            if said.replace(JOINER, "").strip() != text.strip():
                wrong[place, text] = said
            if title.replace(JOINER, "") not in (text, ""):  # Streamlit empties some, to be safe
                wrong["title", text] = title
    assert not wrong


@pytest.mark.slow
@pytest.mark.browser
def test_no_foreign_text_makes_a_browser_ask_a_stranger_or_lead_there(shown: Page) -> None:
    shown.wait_for_timeout(1000)
    assert shown.foreign_requests == []  # type: ignore[attr-defined]
    links = shown.evaluate(
        "[...document.querySelectorAll('a')].map(a => a.href.baseVal ?? a.href ?? '')"
        ".concat([...document.querySelectorAll('*')].map(e => e.getAttribute('xlink:href') ?? ''))"
    )
    assert len(links) > len(TEXTS)  # our own texts are there
    assert not [link for link in links if HOST in link]
    made = "img[src*='stranger'], script[src*='stranger'], .katex, h1, h2, blockquote, del, em, hr"
    main = shown.locator("[data-testid=stMain]")
    assert main.locator(made).count() == 0


def test_what_cannot_be_seen_or_sent_is_replaced_and_an_ordinary_text_stays_as_it_is() -> None:
    for text in ODD:
        for way in (inert, code):
            way(text).encode()
            assert "\n" not in way(text) and "\u202e" not in way(text) and "\0" not in way(text)
    for text in (
        "inductor-max-autotune",
        "aot_eager",
        "1.62x (1.60 to 1.64)",
        "Tiny BERT, 8 steps",
        "ValueError: 3 is no class",
        "20 Nov 2026, 10:00",
        "-5 %",
    ):
        assert inert(text).replace("&#58;", ":") == text
        assert code(text) == f"`{text}`"


def test_a_figure_keeps_our_own_html_and_no_other() -> None:
    figure = go.Figure(layout={"xaxis": {"title": '<a target="_blank" href="definitions#step">'}})
    figure.add_bar(
        x=["inductor-<br>blocks", '<a href="http://x">y</a>', "10<sup>3</sup>"],
        name="<b>loud</b>",
        hovertemplate="%{x}<extra></extra>",
    )
    cleaned = inert_figure(figure)
    assert list(cleaned.data[0].x) == [
        "inductor-<br>blocks",
        '&lt;a href="http://x">y</a>',
        "10<sup>3</sup>",
    ]
    assert cleaned.data[0].name == "&lt;b>loud&lt;/b>"
    assert cleaned.data[0].hovertemplate == "%{x}<extra></extra>"
    assert cleaned.layout.xaxis.title.text == '<a target="_blank" href="definitions#step">'
    plain = go.Figure().add_bar(x=["a"], y=[1.0])
    assert inert_figure(plain) is plain


def test_a_chart_that_moves_is_written_once_and_without_foreign_html() -> None:
    figure = go.Figure().add_bar(x=["<img src=x>"], y=[1.0])
    drawn: list[go.Figure] = []
    card = Card("Loss", lambda: drawn.append(figure) or figure, pd.DataFrame(), "loss", [])
    written = card.written("", "group")
    assert "&lt;img" in written.figure
    assert "<img" not in written.figure
    assert json.loads(written.figure)["layout"]["uirevision"] == "group loss "
    assert card.written("", "group") is written
    assert json.loads(card.written("", "other").figure)["layout"]["uirevision"] == "other loss "
    assert len(drawn) == 2


def test_nothing_foreign_reaches_a_page_but_by_the_one_function() -> None:
    faults = list(Sources(sorted(VIEWS.rglob("*.py"))).faults())
    assert not faults, (
        "say `inert(...)` of `views/shared/inert.py`, or promise it by the type `Markdown`"
    )


FORGOTTEN = r"""
# a name in an f-string, an error as it is, a local name, and a list that grew
    st.caption(f'{run.label} is done')
    st.error(str(error))
    said = run.reason\n    st.info(said)
    said = ['done']\n    said.append(run.reason)\n    st.info(' '.join(said))
# a loop, a label, a help, and options that are read as Markdown
    for one in run.labels:\n        st.markdown(one)
    st.button(run.label)
    st.button('Stop', help=run.label)
    st.pills('Runs', run.labels)
# a column of a page, HTML, an argument that has to be inert, a figure, and its file
    left, right = st.columns(2)\n    left.caption(run.label)
    st.html(f'<p>{run.label}</p>')
    asks(run.label)
    st.plotly_chart(run.figure)
    run.figure.to_html()
"""
SOUND = """
import streamlit as st
from breakeven.views.shared.inert import Markdown, inert, inert_figure

def asks(title: Markdown) -> None:
    st.markdown(f"**{title}**")

def promised(run) -> Markdown:
    return f"{inert(run.label)} of {run.count:,}"

def sound(run):
    asks(promised(run))
    st.caption("Done: " + ", ".join(inert(one) for one in run.labels))
    st.plotly_chart(inert_figure(run.figure))
"""


def test_the_reading_of_sources_finds_what_was_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "page.py"
    pages = [f"def page(run, error):\n{line}" for line in FORGOTTEN.splitlines() if line[:1] == " "]
    for page in (*pages, "def broken(run) -> Markdown:\n    return run.label"):
        file.write_text(SOUND + page.replace("\\n", "\n") + "\n")
        assert len(list(Sources([file]).faults())) == 1, page


def test_a_sentence_shows_its_commands_as_code_and_foreign_text_in_it_stays_inert() -> None:
    assert prose("say `breakeven list` now") == "say `breakeven list` now"
    assert prose("*a* `*b*`") == f"{inert('*a*')} `*b*`"
    for text in ("odd ` <b>x</b>", "`a` `<img src=x>"):
        assert prose(text) == inert(text)
