"""Journals of runs that are over, packed: the same bytes in a sixth of the room.

`events.jsonl` becomes `events.jsonl.gz`, which any other program unpacks too. Whoever reads a
journal (`events.py`, `RunDir.open`) reads either. The plain one goes only once the packed one is
on the disk and was read back; where both are, the plain one counts. Why not Parquet, and what each
takes: docs/decisions/packed-journals.md.
"""

import fcntl
import gzip
import io
import os
import shutil
import stat
import struct
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from runner.errors import InvalidRunFolder
from runner.folders.inside import open_inside
from runner.texts import printable

ENDING = ".gz"
LEVEL = 6
CHUNK = 2**20
MAX_BYTES = 2**32 - 1
"""The format tells the size of what is packed in 32 bits."""
MAX_RATIO = 100
"""No journal packs better, unless somebody made it to fill a memory; real ones come to six."""
TRAILER = struct.Struct("<II")


class _Plain(io.RawIOBase):
    """What a packed journal holds, and no byte more than it says that it does."""

    def __init__(self, file: BinaryIO, size: int, shown: str) -> None:
        self._file, self._size, self._shown = file, size, shown
        self._inner = gzip.GzipFile(fileobj=file)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]
        wanted = min(len(buffer), self._size - self._at)
        if wanted <= 0:
            return 0
        try:
            self._inner.seek(self._at)
            data = self._inner.read(wanted)
            is_whole = len(data) == wanted
            # Only at its end the checksum is looked at.
            if self._at + wanted == self._size and self._inner.read(1):
                is_whole = False
        except (EOFError, zlib.error, OSError) as error:
            raise InvalidRunFolder(f"{self._shown} is damaged: {printable(error)}") from None
        if not is_whole:
            raise InvalidRunFolder(f"{self._shown} is damaged: it holds other than it says")
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        found = bytearray(max(0, self._size - self._at))
        return bytes(found[: self.readinto(found)])

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self._file.close()
        super().close()


def open_packed(folder: Path, name: str) -> BinaryIO:
    """The content of `name`, a plain file directly in a run folder, from its packed form.

    Raises what `open_inside` raises, and `InvalidRunFolder` while reading what is damaged.
    """
    file = open_inside(folder, name + ENDING)
    try:
        size = _size_of(file, printable(folder / (name + ENDING)))
    except BaseException:
        file.close()
        raise
    return cast(
        BinaryIO, io.BufferedReader(_Plain(file, size, printable(folder / (name + ENDING))))
    )


def stat_packed(folder: Path, name: str) -> tuple[int, int] | None:
    """Bytes that the packed form of a file holds, and its inode; None if there is none."""
    try:
        with open_inside(folder, name + ENDING) as file:
            size = _size_of(file, printable(folder / (name + ENDING)))
            return size, os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return None


def pack(plain: Path, record: Path) -> int:
    """Packs the journal of a run whose exit record is `record`; returns the bytes that this freed.

    0 if there is nothing to pack, or it would come to no less. A crash at any moment leaves the
    plain journal, or a packed one that was read back and is on the disk. Raises `InvalidRunFolder`
    for a run that is reopened meanwhile, and `OSError`.
    """
    packed = plain.with_name(plain.name + ENDING)
    with held(record):
        try:
            found = os.lstat(plain)
        except FileNotFoundError:
            return 0
        if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= MAX_BYTES:
            return 0
        descriptor, beside = tempfile.mkstemp(dir=plain.parent, prefix=f".{packed.name}.")
        try:
            with (
                open_inside(plain.parent, plain.name) as source,
                os.fdopen(descriptor, "w+b") as target,
            ):
                # Without name and time, so that the same journal always comes to the same bytes.
                with gzip.GzipFile("", "wb", LEVEL, target, 0) as writer:
                    shutil.copyfileobj(source, writer, CHUNK)
                target.flush()
                os.fsync(target.fileno())
                size = os.fstat(target.fileno()).st_size
            if size >= found.st_size or found.st_size > size * MAX_RATIO:
                return 0
            os.chmod(beside, stat.S_IMODE(found.st_mode))
            os.utime(beside, ns=(found.st_mtime_ns, found.st_mtime_ns))
            _require_same(plain, Path(beside))
            os.replace(beside, packed)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(beside)
        _sync(plain.parent)
        os.unlink(plain)
        return found.st_size - size


def unpack(plain: Path) -> None:
    """Makes the packed journal a plain one again, for a run that goes on; nothing if it is."""
    packed = plain.with_name(plain.name + ENDING)
    if not os.path.lexists(packed):
        return
    if not os.path.lexists(plain):
        descriptor, beside = tempfile.mkstemp(dir=plain.parent, prefix=f".{plain.name}.")
        try:
            with (
                open_packed(plain.parent, plain.name) as source,
                os.fdopen(descriptor, "wb") as target,
            ):
                shutil.copyfileobj(source, target, CHUNK)
                target.flush()
                os.fsync(target.fileno())
            found = os.lstat(packed)
            os.chmod(beside, stat.S_IMODE(found.st_mode))
            os.utime(beside, ns=(found.st_mtime_ns, found.st_mtime_ns))
            os.replace(beside, plain)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(beside)
        _sync(plain.parent)
    os.unlink(packed)


@contextmanager
def held(record: Path) -> Iterator[None]:
    """Nobody packs the journal of a run, or reopens it, while somebody else does: both hold its
    exit record. Raises `InvalidRunFolder` if it is no longer there once it is held."""
    try:
        descriptor = os.open(record, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidRunFolder(f"{printable(record)} cannot be held: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            is_there = os.path.samestat(os.fstat(descriptor), os.lstat(record))
        except FileNotFoundError:
            is_there = False
        if not is_there:
            raise InvalidRunFolder(f"{printable(record)} was put aside: the run goes on")
        yield
    finally:
        os.close(descriptor)


def _size_of(file: BinaryIO, shown: str) -> int:
    """What the last bytes say that there is; raises `InvalidRunFolder` for what cannot be."""
    packed = file.seek(0, os.SEEK_END)
    file.seek(max(0, packed - TRAILER.size))
    tail = file.read(TRAILER.size)
    file.seek(0)
    if len(tail) < TRAILER.size:
        raise InvalidRunFolder(f"{shown} is damaged: it is too short")
    size = int(TRAILER.unpack(tail)[1])
    if size > MAX_RATIO * packed:
        raise InvalidRunFolder(f"{shown} is not opened: {packed:,} bytes would become {size:,}")
    return size


def _require_same(plain: Path, packed: Path) -> None:
    """Raises `OSError` unless what was packed, read from the disk, is the journal as it is."""
    with plain.open("rb") as one, gzip.open(packed, "rb") as other:
        while True:
            expected, found = one.read(CHUNK), other.read(CHUNK)
            if expected != found:
                raise OSError(f"{printable(plain)} did not come back from its packed form as it "
                              "was; it stays as it is")  # fmt: skip
            if not expected:
                return


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
