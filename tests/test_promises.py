"""Every promise in docs/promises.md names tests that exist."""

import re

from breakeven.runner.project import PROJECT_ROOT

NAMED = re.compile(r"`(tests/[\w/]+\.py)`|`(test_\w+)`")


def promises(document: str) -> list[str]:
    """Rows of the tables; their last column names tests."""
    text = (PROJECT_ROOT / document).read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if not re.match(r"\|(---|\s*(who|what|promise|attack)\s*\|)", row)]


def unfounded(row: str) -> list[str]:
    """Missing files and tests of a row; the whole row if it names none."""
    missing, source, names_a_test = [], "", False
    for path, test in NAMED.findall(row):
        names_a_test = True
        if path:
            file = PROJECT_ROOT / path
            source = file.read_text() if file.exists() else ""
            missing += [] if file.exists() else [path]
        elif not re.search(rf"^ *def {test}\(", source, re.MULTILINE):
            missing.append(test)
    return missing if names_a_test else [row]


def test_every_promise_names_tests_that_are_there() -> None:
    rows = promises("docs/promises.md")
    assert len(rows) >= 50
    for row in rows:
        assert not unfounded(row)


def test_a_promise_without_a_test_or_with_one_that_is_gone_is_found() -> None:
    assert unfounded("| nobody is let in | |") == ["| nobody is let in | |"]
    assert unfounded("| x | `tests/test_nothing.py` |") == ["tests/test_nothing.py"]
    assert unfounded("| x | `tests/test_promises.py`: `test_nothing` |") == ["test_nothing"]
