"""Revisions of a script's repository: finds commits, and lays the files of one over a copy.

Git only reads the repository here. A copy of the files as they are, with data that no commit has,
becomes that of a commit by replacing the tracked files that differ.
"""

import io
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from breakeven.runner.errors import InvalidSpec, WorkloadError
from breakeven.runner.specs.arms import (
    ARGUMENTS_MARK,
    BACKENDS,
    PYTHON_MARK,
    REVISION_MARK,
    Changes,
    read_changes,
    split_name,
)
from breakeven.runner.start_folders import executable, path_from

SAME_WORD = 0.8
"""Likeness, of at most 1, of a mistyped word to the one that is meant."""
NO_GIT = "git is not installed here, so no arm can have a revision or a diff"
MakeReal = Callable[[PurePosixPath], Path]
"""Makes a path of the copy, with the folders around it, a copy instead of a link, so that nothing
is written into the original; returns it."""


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Where the words of arms are looked up."""

    script: Path
    """Its repository has the revisions."""
    start: Path
    """The folder in which the script starts, each run in a copy."""
    typed: Path
    """Relative paths start here."""


def resolved_arm(text: str, folders: Folders) -> str:
    """An arm whose commit, diff and paths any run finds: by their full names. Raises
    `InvalidSpec`."""
    name, changes = split_name(text)
    return f"{name}={resolved_changes(changes, folders, 'named_arms')}"


def resolved_changes(text: str, folders: Folders, field: str) -> str:
    """Changes of an arm or of the baseline, as `resolved_arm`. Raises `InvalidSpec`."""
    changes = read_changes(text, field)
    if ARGUMENTS_MARK not in shlex.split(text):
        _check_mistyped(changes, field)
    commit, diff, python = changes.revision, changes.diff, changes.python
    if commit is not None:
        commit = commit_of(folders.script, commit, field)
    if diff is not None:
        file = (folders.typed / Path(diff).expanduser()).resolve()
        if not file.is_file():
            raise InvalidSpec(field, REVISION_MARK + diff, f"there is no file {file}")
        diff = str(file)
    if python is not None:
        file = executable(python, folders.typed)
        if not file.is_file():
            rule = f"names no Python, and no folder of an environment: there is no file {file}"
            raise InvalidSpec(field, PYTHON_MARK + python, rule)
        python = str(file)
    named = Changes(
        revision=commit,
        diff=diff,
        python=python,
        variables=changes.variables,
        backend=changes.backend,
        arguments=tuple(
            path_from(word, folders.start, typed=folders.typed) for word in changes.arguments
        ),
    )
    return named.text


def _check_mistyped(changes: Changes, field: str) -> None:
    """Refuses a first argument that is nearly the name of a backend."""
    word, colon, settings = next(iter(changes.arguments), "").partition(":")
    for backend in get_close_matches(word, BACKENDS, 1, SAME_WORD):
        rule = f"is no backend; did you mean {backend}{colon}{settings}? If it is an argument, "
        raise InvalidSpec(field, word + colon + settings, f"{rule}write -- before it")


def commit_of(folder: Path, revision: str, field: str) -> str:
    """The full name of a commit; raises `InvalidSpec`."""
    text = REVISION_MARK + revision
    if revision.startswith("-"):
        raise InvalidSpec(field, text, "must be the name of a commit, branch or tag")
    try:
        commit = _git(folder, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
    except WorkloadError as error:
        rule = f"is no revision of the repository of {folder}: {error}. `git branch -a` and `git "
        rule += "log --oneline` list some"
        raise InvalidSpec(field, text, rule) from None
    return commit.decode().strip()


@dataclass(frozen=True)
class Repository:
    """The part of a repository whose files lie in `folder`."""

    folder: Path

    @property
    def prefix(self) -> PurePosixPath:
        """The folder's path within the repository."""
        return PurePosixPath(_git(self.folder, "rev-parse", "--show-prefix").decode().strip())

    def differing(self, commit: str) -> tuple[list[PurePosixPath], list[PurePosixPath]]:
        """Tracked files that differ from those of a commit: those that the commit has, and those
        that it has not. Paths start at the repository's top. Raises `WorkloadError`."""
        options = ("--no-renames", "--ignore-submodules", "--name-status", "-z", "--no-ext-diff")
        words = _git(self.folder, "diff", *options, commit).decode("utf-8", "surrogateescape")
        pairs = words.split("\0")[:-1]
        kept: list[PurePosixPath] = []
        gone: list[PurePosixPath] = []
        for status, path in zip(pairs[::2], pairs[1::2], strict=True):
            (gone if status == "A" else kept).append(PurePosixPath(path))
        return kept, gone

    @property
    def top(self) -> Path:
        return Path(_git(self.folder, "rev-parse", "--show-toplevel").decode().rstrip("\n"))

    def lay_over(self, commit: str, make_real: MakeReal) -> list[Path]:
        """Makes the copy of `folder` that of a commit; returns the differing files outside of the
        folder, which the copy does not have."""
        prefix = self.prefix
        kept, gone = self.differing(commit)
        outside = [path for path in (*kept, *gone) if not path.is_relative_to(prefix)]
        for path in gone:
            if path not in outside:
                make_real(path.relative_to(prefix)).unlink(missing_ok=True)
        inside = [path for path in kept if path not in outside]
        for blob in self._blobs(commit, inside):
            blob.write_to(make_real(blob.path.relative_to(prefix)))
        return sorted(self.top / path for path in outside)

    def _blobs(self, commit: str, paths: Sequence[PurePosixPath]) -> Iterator["_Blob"]:
        """The files of a commit as a checkout would write them."""
        top = self.top
        entries = _git(top, "ls-tree", "-r", "-z", "--full-tree", commit)
        wanted = {*map(str, paths)}
        listed: list[tuple[str, str, str]] = []
        for entry in entries.decode("utf-8", "surrogateescape").split("\0")[:-1]:
            facts, _, path = entry.partition("\t")
            mode, kind, name = facts.split(" ")
            if path in wanted and kind == "blob":
                listed.append((path, mode, name))
        # Each path only says which filters apply.
        lines = (f"{name} {path}".replace("\n", "_") + "\n" for path, _, name in listed)
        wanted_lines = "".join(lines)
        answer = io.BytesIO(
            _git(
                top,
                "cat-file",
                "--batch",
                "--filters",
                text=wanted_lines.encode("utf-8", "surrogateescape"),
            )
        )
        for path, mode, _ in listed:
            size = int(answer.readline().split()[2])
            yield _Blob(PurePosixPath(path), mode, answer.read(size))
            answer.read(1)


LINK_MODE, PROGRAM_MODE = "120000", "100755"


@dataclass(frozen=True)
class _Blob:
    """A file of a commit."""

    path: PurePosixPath
    mode: str
    content: bytes

    def write_to(self, target: Path) -> None:
        target.unlink(missing_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.mode == LINK_MODE:
            target.symlink_to(os.fsdecode(self.content))
            return
        target.write_bytes(self.content)
        target.chmod(0o755 if self.mode == PROGRAM_MODE else 0o644)


def apply_diff(diff: Path, place: Path, prefix: PurePosixPath, make_real: MakeReal) -> None:
    """Applies a diff, whose paths start at the top of the repository, to the copy `place` of the
    folder `prefix` of it. Raises `WorkloadError` unless all of it fits."""
    above = len(prefix.parts)
    for path in _paths_in(diff, place):
        if not path.is_relative_to(prefix):
            raise WorkloadError(
                f"{diff} changes {path}, outside of the folder in which the script's copy starts; "
                "start the command at the top of the repository"
            )
        make_real(path.relative_to(prefix))
    _git(place, "apply", f"-p{above + 1}", "--whitespace=nowarn", str(diff), alone=True)


def _paths_in(diff: Path, place: Path) -> list[PurePosixPath]:
    listed = _git(place, "apply", "--numstat", "-z", str(diff), alone=True)
    lines = [line for line in listed.decode("utf-8", "surrogateescape").split("\0") if line]
    return [PurePosixPath(line.split("\t")[-1]) for line in lines]


def _git(folder: Path, *arguments: str, alone: bool = False, text: bytes = b"") -> bytes:
    """The output of git, which reads `text`; raises `WorkloadError` with its message. `alone`: as
    if no repository lay around the folder."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    environment["LC_ALL"] = "C"
    if alone:
        environment["GIT_CEILING_DIRECTORIES"] = str(folder.resolve().parent)
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(
            command, env=environment, input=text, capture_output=True, check=False
        )
    except FileNotFoundError:
        raise WorkloadError(NO_GIT) from None
    if done.returncode:
        message = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise WorkloadError(message[-1] if message else f"git {arguments[0]} failed")
    return done.stdout
