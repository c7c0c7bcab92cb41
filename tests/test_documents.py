"""Documents by kind: how long they may be, what they link to, and that they are listed."""

import re
from pathlib import Path

import pytest

from breakeven.runner.project import PROJECT_ROOT

DOCS = sorted((PROJECT_ROOT / "docs").glob("*.md"))
README = PROJECT_ROOT / "README.md"
LLMS = PROJECT_ROOT / "llms.txt"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)")
CODE = re.compile(r"```.*?```", re.DOTALL)
MAX_WORDS = {"README.md": 600, "metrics.md": 6_000}
HOW_TO = ("agents", "ci", "comparing")
MAX_HOW_TO_WORDS = 400
MAX_ALL_WORDS = 33_000


def words(file: Path) -> int:
    """Without signs that stand alone, such as the bars of tables."""
    return sum(any(map(str.isalnum, word)) for word in file.read_text().split())


def anchors(file: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", file.read_text()), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def test_documents_are_short() -> None:
    counts = {file.name: words(file) for file in (README, *DOCS)}
    limits = MAX_WORDS | {f"{name}.md": MAX_HOW_TO_WORDS for name in HOW_TO}
    assert {name: count for name, count in counts.items() if count > limits.get(name, 10**6)} == {}
    assert sum(counts.values()) <= MAX_ALL_WORDS


@pytest.mark.parametrize(
    "file", [*PROJECT_ROOT.glob("*.md"), *DOCS, LLMS], ids=lambda file: file.name
)
def test_links_lead_to_files_and_headings(file: Path) -> None:
    for path, anchor in LINK.findall(CODE.sub("", file.read_text())):
        target = (file.parent / path).resolve() if path else file
        assert target.exists(), path
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{path}#{anchor}"


def test_the_readme_and_the_list_for_programs_name_every_document() -> None:
    for file in DOCS:
        assert f"docs/{file.name}" in README.read_text(), file.name
        assert f"docs/{file.name}" in LLMS.read_text(), file.name
