"""Journals that version 0.1 compressed (`events.jsonl.gz`): unpacked when first opened."""

import gzip
import os
import stat
import struct
import tempfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from breakeven.runner.errors import InvalidRunFolder
from breakeven.runner.folders.inside import open_inside
from breakeven.runner.texts import printable

ENDING = ".gz"
CHUNK = 2**20
MAX_RATIO = 100
"""Real journals compress to a sixth. A higher ratio was made to fill a disk."""
TRAILER = struct.Struct("<II")
"""How a gzip file ends: checksum and size of its content."""


def unpack(plain: Path) -> bool:
    """Replaces `events.jsonl.gz` by the plain journal; False if there is none.

    A crash at any moment leaves one of the two whole. Raises `InvalidRunFolder` for a damaged file
    or a folder that cannot be written.
    """
    packed = plain.with_name(plain.name + ENDING)
    if not os.path.lexists(packed):
        return False
    shown = printable(packed)
    try:
        with open_inside(plain.parent, packed.name) as source:
            _unpack(source, plain, shown)
        os.unlink(packed)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidRunFolder(f"{shown} is damaged: {printable(error)}") from None
    except FileNotFoundError:  # Another process unpacked the journal at this moment.
        return True
    except OSError as error:
        why = error.strerror or printable(error)
        raise InvalidRunFolder(f"{shown} cannot be unpacked: {why}. Run gunzip on it") from None
    return True


def _unpack(source: BinaryIO, plain: Path, shown: str) -> None:
    size = _content_size(source, shown)
    found = os.fstat(source.fileno())
    descriptor, beside = tempfile.mkstemp(dir=plain.parent, prefix=f".{plain.name}.")
    try:
        with gzip.GzipFile(fileobj=source) as content, os.fdopen(descriptor, "wb") as target:
            while chunk := content.read(CHUNK):
                target.write(chunk)
                if target.tell() > size:
                    raise InvalidRunFolder(f"{shown} is damaged: it holds more than it declares")
            target.flush()
            os.fsync(target.fileno())
        os.chmod(beside, stat.S_IMODE(found.st_mode))
        os.utime(beside, ns=(found.st_mtime_ns, found.st_mtime_ns))
        # Where both files exist, the plain journal counts.
        with suppress(FileExistsError):
            os.link(beside, plain)
    finally:
        os.unlink(beside)


def _content_size(file: BinaryIO, shown: str) -> int:
    """Bytes of the content as the file declares them; raises for an impossible number."""
    packed = file.seek(0, os.SEEK_END)
    if packed < TRAILER.size:
        raise InvalidRunFolder(f"{shown} is damaged: it is too short")
    file.seek(packed - TRAILER.size)
    size = int(TRAILER.unpack(file.read(TRAILER.size))[1])
    file.seek(0)
    if size > MAX_RATIO * packed:
        raise InvalidRunFolder(f"{shown} is not opened: {packed:,} bytes would become {size:,}")
    return size
