"""Unpacks archives from unknown sources.

An archive may contain paths outside the target folder, links, devices, a few bytes that expand to
terabytes, or a table of names that fills the memory. Unpacking therefore trusts no header: it
checks every name, counts every byte, and stops at anything unusual. Unpacked files are never
executed.
"""

import errno
import gzip
import io
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from breakeven.runner.texts import printable
from breakeven.storage.errors import ImportUnusable

CHUNK = 2**16
MAX_DEPTH, LONGEST_NAME = 12, 200
"""Limits of a path: number of parts, and bytes of each."""
MAX_DIRECTORY_BYTES = 16 * 2**20
"""Limit of a ZIP's table of contents, which is read into memory as a whole."""
END_OF_ZIP, LOCATOR_OF_ZIP64 = b"PK\x05\x06", b"PK\x06\x07"
LONGEST_END = 22 + 2**16
ENCRYPTED = 1
KNOWN_ARCHIVES = "a ZIP archive, a tar archive or a tar.gz"
JUNK = ("__MACOSX", ".DS_Store", "Thumbs.db")
"""Files that operating systems add to archives."""


@dataclass(frozen=True)
class Limits:
    """Limits of an unpacked archive."""

    files: int = 20_000
    total_bytes: int = 2 * 2**30

    def check(self, files: int, num_bytes: int) -> None:
        """Raises `ImportUnusable` above the limits."""
        if files > self.files:
            raise ImportUnusable(f"it holds more than {self.files:,} files")
        if num_bytes > self.total_bytes:
            raise ImportUnusable(f"unpacked it takes more than {self.total_bytes / 2**20:,.0f} MiB")


USUAL_LIMITS = Limits()


def unpack(archive: Path, into: Path, limits: Limits = USUAL_LIMITS) -> list[str]:
    """Writes the plain files of an archive into an empty folder; returns their paths in it.

    Raises `ImportUnusable` if the file is no archive, is damaged, or contains anything except plain
    files and folders with safe paths. Then the caller must delete the files already written.
    """
    unpacked = _UnpackedFiles(into, limits)
    try:
        for name, content in _members(archive, limits):
            unpacked.write(name, content)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error, EOFError) as error:
        raise ImportUnusable(f"it is damaged: {printable(error)}") from None
    except (NotImplementedError, RuntimeError, UnicodeError, ValueError) as error:
        raise ImportUnusable(f"it cannot be unpacked: {printable(error)}") from None
    except OSError as error:
        # A negative offset, or an error of gzip; other errors, such as a full disk, pass on.
        if error.errno in (None, errno.EINVAL):
            raise ImportUnusable(f"it is damaged: {printable(error)}") from None
        raise
    return unpacked.files


class _UnpackedFiles:
    """The files written so far, and the paths already in use."""

    def __init__(self, into: Path, limits: Limits) -> None:
        self.into, self.limits = into, limits
        self.files: list[str] = []
        self._kinds: dict[tuple[str, ...], str] = {}
        self._num_bytes = 0

    def write(self, name: str, content: IO[bytes] | None) -> None:
        """Writes a file; without content, claims the path for a folder."""
        parts = plain_parts(name)
        if not parts or any(part in JUNK or part.startswith("._") for part in parts):
            return
        # Some systems treat names as equal that differ in case or in Unicode normalization.
        comparable = tuple(unicodedata.normalize("NFC", part).casefold() for part in parts)
        for length in range(1, len(comparable)):
            self._claim(comparable[:length], "folder", name)
        self._claim(comparable, "folder" if content is None else "file", name)
        if content is None:
            return
        path = self.into.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.files.append("/".join(parts))
        self.limits.check(len(self._kinds), self._num_bytes)
        with path.open("xb") as file:
            while chunk := content.read(CHUNK):
                self._num_bytes += len(chunk)
                self.limits.check(len(self._kinds), self._num_bytes)
                file.write(chunk)

    def _claim(self, place: tuple[str, ...], kind: str, name: str) -> None:
        if place in self._kinds and (self._kinds[place] != kind or kind == "file"):
            raise ImportUnusable(f"{printable(name)} is in it twice")
        self._kinds[place] = kind


def plain_parts(name: str) -> tuple[str, ...]:
    """The parts of a path that stays within its folder; raises `ImportUnusable` for any other."""
    shown = printable(name)
    if name.startswith(("/", "\\")) or "\\" in name or ":" in name:
        raise ImportUnusable(f"{shown} is no path below a folder")
    parts = PurePosixPath(name).parts
    if ".." in parts:
        raise ImportUnusable(f"{shown} leads out of its folder")
    if len(parts) > MAX_DEPTH:
        raise ImportUnusable(f"{shown} lies in more than {MAX_DEPTH} folders")
    for part in parts:
        if not part.isprintable() or len(part.encode()) > LONGEST_NAME:
            raise ImportUnusable(f"{shown} is no plain name of a file")
    return parts


def _members(archive: Path, limits: Limits) -> Iterator[tuple[str, IO[bytes] | None]]:
    """Yields name and content of each file, and the name of each folder with None."""
    with archive.open("rb") as file:
        head = file.read(512)
        file.seek(0)
        if head.startswith(b"PK"):
            yield from _of_zip(file)
        elif head.startswith(b"\x1f\x8b"):
            with gzip.open(file) as inner:
                yield from _of_tar(_LimitedFile(inner, limits))
        elif head[257:262] == b"ustar":
            yield from _of_tar(_LimitedFile(file, limits))
        else:
            raise ImportUnusable(f"it is not {KNOWN_ARCHIVES}")


def _of_zip(file: BinaryIO) -> Iterator[tuple[str, IO[bytes] | None]]:
    _check_directory(file)
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            shown = printable(entry.orig_filename)
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ImportUnusable(f"{shown} is a link or a device, and no plain file")
            if entry.flag_bits & ENCRYPTED:
                raise ImportUnusable(f"{shown} is encrypted")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ImportUnusable(f"{shown} is packed in a way that is not usual (not deflate)")
            # `filename` is cut at NUL and changed by zipfile; `orig_filename` is not.
            if entry.orig_filename.endswith("/") or kind == stat.S_IFDIR:
                yield entry.orig_filename, None
            else:
                with archive.open(entry) as content:
                    yield entry.orig_filename, content


def _check_directory(file: BinaryIO) -> None:
    """Raises `ImportUnusable` if the table of contents is too large for the memory."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - LONGEST_END - 20))
    tail = file.read()
    file.seek(0)
    at = tail.rfind(END_OF_ZIP)
    if at < 0 or len(tail) < at + 22:
        raise zipfile.BadZipFile("it has no end")
    if LOCATOR_OF_ZIP64 in tail[max(0, at - 20) : at]:
        raise ImportUnusable("it is a ZIP64 archive, for more than fits here")
    (num_bytes,) = struct.unpack_from("<I", tail, at + 12)
    if num_bytes > MAX_DIRECTORY_BYTES:
        raise ImportUnusable("its table of contents is too long")


def _of_tar(file: "_LimitedFile") -> Iterator[tuple[str, IO[bytes] | None]]:
    with tarfile.open(fileobj=file, mode="r:", errorlevel=2) as archive:  # type: ignore[call-overload]
        for entry in archive:
            if entry.issparse() or not (entry.isreg() or entry.isdir()):
                shown = printable(entry.name)
                raise ImportUnusable(f"{shown} is a link or a device, and no plain file")
            content = None if entry.isdir() else archive.extractfile(entry)
            yield entry.name, content


class _LimitedFile:
    """A file that limits the total and single reads: tarfile reads headers of any declared length
    into memory."""

    def __init__(self, file: BinaryIO | gzip.GzipFile, limits: Limits) -> None:
        self._file, self._limits = file, limits

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > MAX_DIRECTORY_BYTES:
            raise ImportUnusable("a head in it is too long")
        content: bytes = self._file.read(size)
        self._limits.check(0, self._file.tell())
        return content

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_SET:  # a check before gzip decompresses up to this offset
            self._limits.check(0, offset)
        at = self._file.seek(offset, whence)
        self._limits.check(0, at)
        return at

    def tell(self) -> int:
        return self._file.tell()
