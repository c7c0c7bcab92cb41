"""What a page is going to need is drawn out of sight before the page is read."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import breakeven.views

PAGE = "from breakeven.views.parts.downloads import expect_parts; expect_parts()"
STYLE = Path(breakeven.views.__file__).parent / "shared" / "style.css"
NEEDED_BY_CHARTS = ("button_group", "link_button", "download_button", "bidi_component")


def test_a_part_of_each_kind_that_stands_beside_charts_is_there_and_nobody_can_use_it() -> None:
    app = AppTest.from_string(PAGE).run()
    assert not app.exception
    for kind in NEEDED_BY_CHARTS:
        (part,) = app.get(kind)
        assert kind == "bidi_component" or part.proto.disabled


def test_they_take_no_part_in_the_page() -> None:
    rule = STYLE.read_text().partition(":has(> .st-key-expected),")[2]
    assert rule.partition("}")[0].split() == [".st-key-loading-charts", "{", "display:", "none;"]


@pytest.mark.parametrize("page", ["experiment"])
def test_pages_with_charts_have_them_before_anything_else(page: str) -> None:
    """Later the server is done by the time that they are there."""
    source = (STYLE.parents[1] / f"{page}.py").read_text()
    assert source.partition("def main() -> None:\n")[2].split()[0] == "expect_parts()"
