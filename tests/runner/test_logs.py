"""What is printed on a terminal and may quote a stranger does nothing there."""

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.logs import JsonLines, open_log

ESCAPES = "x\n2026-11-23 00:00:00 all is well\r\x1b]0;title\x07\x1b[2J\u202etxt\x9b31m"


@pytest.fixture
def printed(tmp_path: Path) -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """A library's own logger, as Streamlit makes them, and what it prints."""
    before, handlers = logging.getLogRecordFactory(), [*logging.getLogger().handlers]
    open_log(tmp_path, "dashboard")
    output = io.StringIO()
    logger = logging.Logger("streamlit.some")
    handler = logging.StreamHandler(output)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    yield logger, output
    logging.setLogRecordFactory(before)
    logging.getLogger().handlers[:] = handlers


def test_a_request_of_a_stranger_writes_no_line_of_its_own_and_drives_no_terminal(
    printed: tuple[logging.Logger, io.StringIO],
) -> None:
    """As `/oauth2callback?error_description=...` did, which Streamlit quotes."""
    logger, output = printed
    logger.error("Error during authentication: %s. Error description: %s", "x", ESCAPES)
    said = output.getvalue()
    assert said.count("\n") == 1 and said[:-1].isprintable()
    assert "Error description: x\\n2026-11-23 00:00:00 all is well\\r\\x1b]0;title" in said


def test_an_error_that_quotes_a_stranger_keeps_its_lines_and_no_escape(
    printed: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, output = printed
    try:
        raise ValueError(ESCAPES)
    except ValueError:
        logger.exception("a page failed")
    lines = output.getvalue().splitlines()
    assert lines[1] == "Traceback (most recent call last):"
    assert "ValueError: x" in lines and all(line.isprintable() for line in lines)


def test_in_files_the_text_stands_as_it_was(printed: tuple[logging.Logger, io.StringIO]) -> None:
    record = logging.getLogRecordFactory()("x", 30, "f", 1, "two\nlines of %s", ("x",), None)
    assert '"message": "two\\nlines of x"' in JsonLines().format(record)
