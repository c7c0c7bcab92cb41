"""Each run of a script works in a copy of its folder."""

import os
from pathlib import Path

import pytest

from breakeven.runner.worker.script import workplaces as workplace
from breakeven.runner.worker.script.workplaces import make_workplace, tidy

pytestmark = pytest.mark.heavy


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "venv").mkdir()
    (folder / "train.py").write_text("code")
    (folder / "data" / "deep" / "words.txt").write_text("words")
    (folder / ".git" / "config").write_text("git")
    return folder


def names(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if not path.is_dir()}


def test_files_are_copied_and_what_no_script_reads_is_left_out(
    project: Path, tmp_path: Path
) -> None:
    assert make_workplace(project, tmp_path / "work") == []
    assert names(tmp_path / "work") == {"train.py", "data/deep/words.txt"}
    (tmp_path / "work/data/deep/words.txt").write_text("other")
    assert (project / "data/deep/words.txt").read_text() == "words"


@pytest.mark.parametrize(
    ("limit", "value", "linked"),
    [
        ("LARGEST_COPIED_BYTES", 4, "data/deep/words.txt"),
        # Together they are copied up to a limit: 4 for the code, 5 for the words.
        ("MAX_COPIED_BYTES", 7, "data/deep/words.txt"),
        ("MAX_FILES", 1, "data/deep"),
    ],
)
def test_large_files_and_folders_of_too_many_are_linked_and_named(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    value: int,
    linked: str,
) -> None:
    monkeypatch.setattr(workplace, limit, value)
    assert make_workplace(project, tmp_path / "work") == [linked]
    assert (tmp_path / "work" / linked).resolve() == project / linked
    assert (tmp_path / "work/data/deep/words.txt").read_text() == "words"
    assert not (tmp_path / "work/train.py").is_symlink()


def test_pipes_broken_links_and_a_workplace_inside_do_not_stop_it(project: Path) -> None:
    os.mkfifo(project / "pipe")
    (project / "nowhere").symlink_to("missing")
    place = project / "runs" / "one"
    make_workplace(project, place)
    assert names(place) == {"train.py", "data/deep/words.txt"}


def test_what_the_script_left_as_it_was_is_removed_afterwards(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workplace, "LARGEST_COPIED_BYTES", 4)
    place = tmp_path / "work"
    make_workplace(project, place)
    (place / "out").mkdir()
    (place / "out" / "weights.pt").write_text("weights")
    (place / "train.py").write_text("changed")
    tidy(project, place)
    assert names(place) == {"out/weights.pt", "train.py"} and not (place / "data").exists()
    assert (project / "data/deep/words.txt").read_text() == "words"
