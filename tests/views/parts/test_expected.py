"""The page draws parts that it will need out of sight before anybody reads it."""

from pathlib import Path

from streamlit.testing.v1 import AppTest

import breakeven.views

VIEWS = Path(breakeven.views.__file__).parent


def test_a_part_of_each_kind_that_stands_beside_charts_is_there_first_out_of_sight_and_reach():
    page = "from breakeven.views.parts.downloads import expect_parts; expect_parts()"
    app = AppTest.from_string(page).run()
    assert not app.exception
    for kind in ("button_group", "link_button", "download_button", "bidi_component"):
        (part,) = app.get(kind)
        assert kind == "bidi_component" or part.proto.disabled
    style = (VIEWS / "shared/style.css").read_text()
    rule = style.partition(":has(> .st-key-expected),")[2]
    assert rule.partition("}")[0].split() == [".st-key-loading-charts", "{", "display:", "none;"]
    # If drawn later, the server would be done before them.
    page = (VIEWS / "experiment.py").read_text()
    assert page.partition("def main() -> None:\n")[2].split()[0] == "expect_parts()"
