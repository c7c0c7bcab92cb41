"""Revisions of a repository laid over a copy of its files: the copy becomes the commit's, and the
original stays as it is."""

import shutil
import sys
from pathlib import Path, PurePosixPath

import pytest

from breakeven.runner.errors import InvalidSpec, WorkloadError
from breakeven.runner.revisions import (
    Folders,
    Repository,
    apply_diff,
    commit_of,
    resolved_arm,
    resolved_changes,
)
from tests.helpers.machine import git

pytestmark = pytest.mark.heavy


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits: `first` has `old.py` and `lib/net.py` of 1; the second removes the one and makes
    the other 2. `data.bin` is in none."""
    folder = tmp_path / "mine"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "net.py").write_text("WIDTH = 1\n")
    (folder / "old.py").write_text("OLD = True\n")
    (folder / "train.py").write_text("import lib.net\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    git(folder, "tag", "first")
    (folder / "lib" / "net.py").write_text("WIDTH = 2\n")
    (folder / "old.py").unlink()
    git(folder, "commit", "-qam", "second")
    (folder / "data.bin").write_bytes(b"\0data")
    return folder


def copy_of(folder: Path, place: Path) -> Path:
    shutil.copytree(folder, place, ignore=shutil.ignore_patterns(".git"))
    return place


def as_is(place: Path, path: PurePosixPath) -> Path:
    return place / path


def lay(folder: Path, place: Path, revision: str) -> list[Path]:
    commit = commit_of(folder, revision, "baseline")
    return Repository(folder).lay_over(commit, lambda path: as_is(place, path))


def test_a_copy_becomes_that_of_a_commit_and_keeps_what_no_commit_has(
    repository: Path, tmp_path: Path
) -> None:
    place = copy_of(repository, tmp_path / "copy")
    assert lay(repository, place, "first") == []
    assert (place / "lib" / "net.py").read_text() == "WIDTH = 1\n"
    assert (place / "old.py").read_text() == "OLD = True\n"
    assert (place / "data.bin").read_bytes() == b"\0data"
    assert (repository / "lib" / "net.py").read_text() == "WIDTH = 2\n"
    assert not (repository / "old.py").exists()
    assert git(repository, "status", "--porcelain") == "?? data.bin"


def test_changes_that_are_not_committed_are_in_no_revision(
    repository: Path, tmp_path: Path
) -> None:
    (repository / "train.py").write_text("edited\n")
    (repository / "new.py").write_text("NEW = 1\n")
    git(repository, "add", "new.py")
    place = copy_of(repository, tmp_path / "copy")
    lay(repository, place, "HEAD")
    assert (place / "train.py").read_text() == "import lib.net\n"
    assert not (place / "new.py").exists()


def test_files_of_odd_names_links_and_programs_are_those_of_the_commit(
    repository: Path, tmp_path: Path
) -> None:
    odd = repository / "a b\n*é.py"
    odd.write_text("ODD = 1\n")
    (repository / "run").write_text("#!/bin/sh\n")
    (repository / "run").chmod(0o755)
    (repository / "link").symlink_to("train.py")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "odd")
    for name in (odd.name, "run", "link"):
        (repository / name).unlink()
    place = copy_of(repository, tmp_path / "copy")
    lay(repository, place, "HEAD")
    assert (place / odd.name).read_text() == "ODD = 1\n"
    assert (place / "run").stat().st_mode & 0o111
    assert (place / "link").readlink() == Path("train.py")


def test_files_outside_of_the_copied_folder_are_named(repository: Path, tmp_path: Path) -> None:
    place = copy_of(repository / "lib", tmp_path / "copy")
    assert lay(repository / "lib", place, "first") == [repository / "old.py"]
    assert (place / "net.py").read_text() == "WIDTH = 1\n"


DIFF = """--- a/lib/net.py
+++ b/lib/net.py
@@ -1 +1 @@
-WIDTH = 2
+WIDTH = 3
"""


def test_a_diff_changes_the_copy_even_within_another_repository(
    repository: Path, tmp_path: Path
) -> None:
    diff = tmp_path / "fix.diff"
    diff.write_text(DIFF)
    place = copy_of(repository, repository / "data" / "runs" / "x")
    apply_diff(diff, place, PurePosixPath(), lambda path: as_is(place, path))
    assert (place / "lib" / "net.py").read_text() == "WIDTH = 3\n"
    assert (repository / "lib" / "net.py").read_text() == "WIDTH = 2\n"


def test_the_paths_of_a_diff_start_at_the_top_of_the_repository(
    repository: Path, tmp_path: Path
) -> None:
    diff = tmp_path / "fix.diff"
    diff.write_text(DIFF)
    place = copy_of(repository / "lib", tmp_path / "copy")
    apply_diff(diff, place, PurePosixPath("lib"), lambda path: as_is(place, path))
    assert (place / "net.py").read_text() == "WIDTH = 3\n"
    with pytest.raises(WorkloadError, match=r"outside of the folder in which"):
        apply_diff(diff, place, PurePosixPath("other"), lambda path: as_is(place, path))


def test_a_diff_that_does_not_fit_fails_with_the_words_of_git(
    repository: Path, tmp_path: Path
) -> None:
    diff = tmp_path / "fix.diff"
    diff.write_text(DIFF.replace("WIDTH = 2", "WIDTH = 7"))
    place = copy_of(repository, tmp_path / "copy")
    with pytest.raises(WorkloadError, match="patch does not apply"):
        apply_diff(diff, place, PurePosixPath(), lambda path: as_is(place, path))


def test_an_arm_names_its_commit_and_diff_in_full(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "fix.diff").write_text(DIFF)
    first = git(repository, "rev-parse", "first")
    folders = Folders(script=repository, start=repository, typed=tmp_path)
    named = resolved_arm("pr=@first @fix.diff A=1 inductor --name 'a b'", folders)
    assert named == f"pr=@{first} @{tmp_path}/fix.diff A=1 inductor --name 'a b'"


@pytest.mark.parametrize(
    ("arm", "rule"),
    [
        ("pr=@nowhere", "is no revision of the repository"),
        ("pr=@--help", "must be the name of a commit"),
        ("pr=@missing.diff", "there is no file"),
    ],
)
def test_a_revision_that_does_not_exist_is_refused(repository: Path, arm: str, rule: str) -> None:
    with pytest.raises(InvalidSpec, match=rule):
        resolved_arm(arm, all_in(repository))


def test_a_folder_without_repository_has_no_revisions(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="not a git repository"):
        resolved_arm("pr=@main", all_in(tmp_path))


def test_a_path_among_the_arguments_of_an_arm_is_that_of_the_folder_in_which_it_was_typed(
    tmp_path: Path,
) -> None:
    typed, start = tmp_path / "typed", tmp_path / "start"
    for folder in (typed, start):
        folder.mkdir()
        (folder / "both.yaml").touch()
    (typed / "here.yaml").touch()
    folders = Folders(script=start, start=start, typed=typed)
    changes = "--config here.yaml --base=both.yaml --out there.yaml"
    resolved = f"--config {typed}/here.yaml --base=both.yaml --out there.yaml"
    assert resolved_arm(f"other={changes}", folders) == f"other={resolved}"
    assert resolved_changes(changes, folders, "baseline") == resolved


def all_in(folder: Path) -> Folders:
    return Folders(script=folder, start=folder, typed=folder)


def test_the_python_of_an_arm_is_a_file_or_the_folder_of_its_environment(
    repository: Path, tmp_path: Path
) -> None:
    python = tmp_path / "torch211" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    folders = Folders(script=repository, start=repository, typed=tmp_path)
    for text in (str(python), "torch211", "torch211/bin/python"):
        assert resolved_arm(f"new=python={text} --x", folders) == f"new=python={python} --x"
    with pytest.raises(InvalidSpec, match=r"'python=torch9': names no Python, .* no file .*torch9"):
        resolved_arm("new=python=torch9", folders)


def test_a_mistyped_backend_is_no_argument(repository: Path) -> None:
    folders = all_in(repository)
    with pytest.raises(InvalidSpec, match="did you mean inductor:mode=reduce-overhead"):
        resolved_arm("graphs=indctor:mode=reduce-overhead", folders)
    assert resolved_arm("graphs=-- indctor", folders) == "graphs=indctor"
    assert resolved_arm("data=--data eagre", folders) == "data=--data eagre"
