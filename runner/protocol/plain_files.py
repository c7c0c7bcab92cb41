"""Opens plain files inside a run folder, and nothing else.

A run folder may come from anywhere and may contain anything: a link out of the folder, a pipe
without a writer, a device. Every path is walked part by part without following links, and only
regular files are opened.

Folders may be nested to any depth. Python walks by recursion before 3.12, and removes by recursion
before 3.13, so a thousand nested folders would crash any reader. Runs write at most a dozen levels
deep.
"""

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from breakeven.runner.errors import InvalidRunFolder
from breakeven.runner.texts import printable

MAX_DEPTH = 60
"""Levels of folders that are read; deeper ones are ignored."""


def walk(top: Path, depth: int = MAX_DEPTH) -> Iterator[tuple[str, list[str], list[str]]]:
    """`os.walk` down to `depth` levels below `top`; folders of the last level are not entered."""
    for parent, folders, files in os.walk(top):
        yield parent, folders, files
        if levels_below(top, parent) >= depth:
            folders.clear()


def levels_below(top: Path, parent: str) -> int:
    """How many levels below `top` a folder from `walk` lies."""
    return parent.count(os.sep) - os.fspath(top).count(os.sep)


def remove_tree(folder: Path) -> None:
    """`shutil.rmtree` for folders of any depth; raises `OSError`."""
    try:
        shutil.rmtree(folder)
    except RecursionError:
        done = subprocess.run(["rm", "-rf", "--", folder], capture_output=True, text=True)
        if done.returncode:
            raise OSError(errno.EIO, done.stderr.strip(), str(folder)) from None


MAX_DOCUMENT_BYTES = 4_000_000
"""Longest specification, claim or exit record that is read; real ones have a few kB."""
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


def open_inside(folder: Path, name: str) -> BinaryIO:
    """Opens the file `name`, a path relative to `folder`, for reading.

    Raises `FileNotFoundError` if there is none, and `InvalidRunFolder`, naming the file, if it is
    no plain file inside the folder or cannot be read. The folder itself may be a link.
    """
    shown = printable(folder / name)
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or PurePosixPath(name).is_absolute():
        raise InvalidRunFolder(f"{shown} is not opened: it lies outside the run folder")
    try:
        file = open_below(folder, parts)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise InvalidRunFolder(f"{shown} cannot be read: {_why(error)}") from None
    try:
        _require_plain(os.fstat(file).st_mode, shown)
    except InvalidRunFolder:
        os.close(file)
        raise
    return os.fdopen(file, "rb")


def read_document(folder: Path, name: str) -> str:
    """The whole text of a small file; raises the errors of `open_inside`."""
    shown = printable(folder / name)
    with open_inside(folder, name) as file:
        content = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(content) > MAX_DOCUMENT_BYTES:
        limit = f"{MAX_DOCUMENT_BYTES:,} bytes"
        raise InvalidRunFolder(f"{shown} cannot be read: it has more than {limit}")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidRunFolder(f"{shown} cannot be read: it is not UTF-8 text ({error})") from None


def stat_inside(folder: Path, name: str) -> os.stat_result | None:
    """`os.lstat` of a plain file directly in `folder`; None if there is none.

    Raises `InvalidRunFolder` if it is no plain file.
    """
    shown = printable(folder / name)
    try:
        status = os.lstat(folder / name)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidRunFolder(f"{shown} cannot be read: {_why(error)}") from None
    _require_plain(status.st_mode, shown)
    return status


def require_plain_tree(folder: Path, ignore: Collection[str]) -> None:
    """Raises `InvalidRunFolder` if the folder contains anything but plain files and folders, so
    that no write leads elsewhere. Files below the folders `ignore` are not checked.
    """
    for parent, folders, files in walk(folder):
        if Path(parent) == folder:
            files += [name for name in folders if name in ignore]
            folders[:] = [name for name in folders if name not in ignore]
        if folders and levels_below(folder, parent) >= MAX_DEPTH:
            raise InvalidRunFolder(
                f"{printable(folder)} has more than {MAX_DEPTH} folders in another"
            )
        for name in (*folders, *files):
            path = Path(parent, name)
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:  # The unfinished file of a process that writes just now.
                continue
            if not stat.S_ISDIR(mode):
                _require_plain(mode, printable(path))


def open_below(folder: Path, parts: tuple[str, ...]) -> int:
    """Opens a path of any kind without following links, even if a part is replaced by a link
    meanwhile; returns the descriptor. Raises `OSError`."""
    with ExitStack() as opened:
        directory = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        opened.callback(os.close, directory)
        for part in parts[:-1]:
            directory = os.open(part, READ | os.O_DIRECTORY, dir_fd=directory)
            opened.callback(os.close, directory)
        return os.open(parts[-1], READ | os.O_NONBLOCK, dir_fd=directory)


KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _require_plain(mode: int, shown: str) -> None:
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "something else")
        raise InvalidRunFolder(f"{shown} is {kind}; a run folder holds plain files")


def _why(error: OSError | ValueError) -> str:
    if not isinstance(error, OSError):
        return str(error)
    is_link = error.errno == errno.ELOOP
    return "there is a link on the way" if is_link else error.strerror or str(error)
