"""The page of measurements has a part that is written anew and a part that people wrote."""

import pytest

from benchmarks.at_size.page import BEGIN, END, renewed
from benchmarks.library_at_size import DOCUMENT


def test_what_people_wrote_stays_around_what_is_measured_anew() -> None:
    document = f"# Performance\n\nBefore.\n\n{BEGIN}old | 1\n{END}\nAfter.\n"
    found = renewed(document, "new | 2\n")
    assert found == f"# Performance\n\nBefore.\n\n{BEGIN}\nnew | 2\n\n{END}\nAfter.\n"
    assert renewed(found, "new | 2\n") == found


@pytest.mark.parametrize(
    "document", ["", BEGIN, END, END + BEGIN, BEGIN + END + BEGIN, BEGIN + END + END]
)
def test_a_page_without_one_place_for_it_is_left_alone(document: str) -> None:
    with pytest.raises(ValueError, match="each once"):
        renewed(document, "new")


def test_the_page_there_is_has_its_place() -> None:
    found = renewed(DOCUMENT.read_text(), "measured")
    assert "## Against what was asked for" in found and "| compare, first visit |" not in found
