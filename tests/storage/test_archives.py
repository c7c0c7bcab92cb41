"""Archives that somebody brought: plain ones are unpacked, all others are refused with words, and
nothing is ever written outside."""

import gzip
import io
import os
import random
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breakeven.storage.errors import ImportUnusable
from breakeven.storage.exchange.archives import Limits, unpack

pytestmark = pytest.mark.filterwarnings("ignore:Duplicate name")
SMALL = Limits(files=50, total_bytes=100_000)
Entries = list[tuple[str, bytes]]


def zipped(entries: Entries) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def tarred(entries: Entries, mode: str = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def gzipped(entries: Entries) -> bytes:
    return tarred(entries, "w:gz")


WAYS: dict[str, Callable[[Entries], bytes]] = {"zip": zipped, "tar": tarred, "tar.gz": gzipped}


def unpacked(content: bytes, folder: Path, limits: Limits = SMALL) -> dict[str, bytes]:
    archive, into = folder / "archive", folder / "box" / "into"
    archive.write_bytes(content)
    into.mkdir(parents=True)
    names = unpack(archive, into, limits)
    assert sorted(names) == sorted(
        path.relative_to(into).as_posix() for path in into.rglob("*") if path.is_file()
    )
    return {name: (into / name).read_bytes() for name in names}


@pytest.mark.parametrize("way", WAYS)
def test_a_plain_archive_is_unpacked_as_it_is(tmp_path: Path, way: str) -> None:
    plain = [("runs/a/spec.json", b"{}"), ("runs/a/events.jsonl", b"x" * 5000), ("b", b"")]
    junk = [("__MACOSX/._a", b"1"), ("runs/.DS_Store", b"2")]
    assert unpacked(WAYS[way]([*plain, *junk]), tmp_path) == dict(plain)


REFUSED = {
    "absolute": "/etc/passwd",
    "above": "../outside",
    "above in the middle": "runs/../../outside",
    "a drive": "C:/x",
    "backslashes": "..\\\\outside",
    "an escape sequence": "a\x1b[2Jb",
    "a line break": "a\nb",
    "text turned around": "a\u202egpj.exe",
    "too long": "a" * 300,
    "too deep": "/".join("a" * 20),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", REFUSED.values(), ids=REFUSED)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, way: str, name: str) -> None:
    with pytest.raises(ImportUnusable):
        unpacked(WAYS[way]([("a/spec.json", b"{}"), (name, b"mine")]), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"archive", "box"}
    assert [path.name for path in (tmp_path / "box").iterdir()] == ["into"]


def test_nul_and_halves_of_characters_in_names_are_refused(tmp_path: Path) -> None:
    whole = zipped([("a-b", b"x")])
    for number, odd in enumerate((b"a\0b", b"a\xffb")):
        with pytest.raises(ImportUnusable):
            unpacked(whole.replace(b"a-b", odd), folder_in(tmp_path, f"zip{number}"))
        with pytest.raises(ImportUnusable):
            unpacked(tarred([("a\udcffb", b"x")]), folder_in(tmp_path, f"tar{number}"))


def folder_in(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE,
             tarfile.GNUTYPE_SPARSE]
)  # fmt: skip
def test_what_is_no_plain_file_in_a_tar_is_refused(tmp_path: Path, kind: bytes) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("link")
        entry.type, entry.linkname = kind, "/etc/passwd"
        archive.addfile(entry)
        later = tarfile.TarInfo("link/inside")
        later.size = 1
        archive.addfile(later, io.BytesIO(b"x"))
    with pytest.raises(ImportUnusable):
        unpacked(file.getvalue(), tmp_path)
    assert not list((tmp_path / "box" / "into").rglob("*"))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_what_is_no_plain_file_in_a_zip_is_refused(tmp_path: Path, kind: int) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = (kind | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(ImportUnusable, match="link or a device"):
        unpacked(file.getvalue(), tmp_path)


@pytest.mark.parametrize("way", WAYS)
def test_few_bytes_that_become_many_are_refused(tmp_path: Path, way: str) -> None:
    bomb = WAYS[way]([("a/spec.json", b"\0" * 50_000_000)])
    with pytest.raises(ImportUnusable, match="unpacked it takes more than"):
        unpacked(bomb, tmp_path)
    written = sum(path.stat().st_size for path in (tmp_path / "box").rglob("*") if path.is_file())
    assert written <= SMALL.total_bytes


def test_a_zip_whose_files_lie_on_each_other_is_refused(tmp_path: Path) -> None:
    """As in the bombs without nesting: a thousand names for the same bytes."""
    one = zipped([("a", b"\0" * 9_000)])
    directory = one.index(b"PK\x01\x02")
    entry = one[directory : one.index(b"PK\x05\x06")]
    entries = b"".join(entry.replace(b"a", bytes([98 + n]), 1) if n else entry for n in range(20))
    end = bytearray(one[one.index(b"PK\x05\x06") :])
    struct.pack_into("<HHI", end, 8, 20, 20, len(entries))
    with pytest.raises(ImportUnusable):
        unpacked(one[:directory] + entries + bytes(end), tmp_path)


@pytest.mark.parametrize("way", WAYS)
def test_too_many_files_are_refused(tmp_path: Path, way: str) -> None:
    with pytest.raises(ImportUnusable, match="more than 50 files"):
        unpacked(WAYS[way]([(f"{number}", b"") for number in range(51)]), tmp_path)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("one", "other"),
    [("a/b", "a/b"), ("a/B", "A/b"), ("\u00e9", "e\u0301"), ("a", "a/b"), ("a/b", "a")],
)
def test_two_files_at_one_place_are_refused(tmp_path: Path, way: str, one: str, other: str) -> None:
    with pytest.raises(ImportUnusable, match="in it twice"):
        unpacked(WAYS[way]([(one, b"1"), (other, b"2")]), tmp_path)


def test_a_table_of_contents_that_fills_the_memory_is_refused(tmp_path: Path) -> None:
    content = bytearray(zipped([("a", b"1")]))
    struct.pack_into("<I", content, content.rindex(b"PK\x05\x06") + 12, 2**31)
    with pytest.raises(ImportUnusable, match="table of contents is too long"):
        unpacked(bytes(content), folder_in(tmp_path, "long"))
    end = content.rindex(b"PK\x05\x06")
    zip64 = bytes(content[:end]) + b"PK\x06\x07" + b"\0" * 16 + bytes(content[end:])
    with pytest.raises(ImportUnusable, match="ZIP64"):
        unpacked(zip64, folder_in(tmp_path, "zip64"))


def test_a_file_that_begins_before_its_archive_is_damage(tmp_path: Path) -> None:
    content = bytearray(zipped([("a", b"1")]))
    at = content.rindex(b"PK\x05\x06") + 16
    (offset,) = struct.unpack_from("<I", content, at)
    struct.pack_into("<I", content, at, offset + 1)
    with pytest.raises(ImportUnusable, match="it is damaged"):
        unpacked(bytes(content), tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_a_head_of_a_tar_that_says_it_is_huge_is_not_read(tmp_path: Path, packed: bool) -> None:
    head = tarfile.TarInfo("././@PaxHeader")
    head.type, head.size = tarfile.XHDTYPE, 2**33 - 1
    content = head.tobuf() + b"\0" * 4096
    with pytest.raises(ImportUnusable):
        unpacked(gzip.compress(content) if packed else content, tmp_path)


def test_an_encrypted_or_oddly_packed_zip_is_refused(tmp_path: Path) -> None:
    content = bytearray(zipped([("a", b"1")]))
    for at in (content.index(b"PK\x03\x04") + 6, content.index(b"PK\x01\x02") + 8):
        content[at] |= 1
    with pytest.raises(ImportUnusable, match="encrypted"):
        unpacked(bytes(content), folder_in(tmp_path, "encrypted"))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"1")
    with pytest.raises(ImportUnusable, match="not deflate"):
        unpacked(file.getvalue(), folder_in(tmp_path, "lzma"))


@pytest.mark.parametrize("content", [b"", b"PK", b"\x1f\x8b", b"hello", b"PK\x03\x04" * 99])
def test_what_is_no_archive_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ImportUnusable):
        unpacked(content, tmp_path)


NAMES = st.one_of(
    st.sampled_from([*REFUSED.values(), "a", "a/b", "A", "a/", "./a", "", ".", "/", "a//b"]),
    st.text(alphabet=st.characters(codec="utf-8"), max_size=20),
)


@settings(max_examples=60, deadline=None)
@given(entries=st.lists(st.tuples(NAMES, st.binary(max_size=40)), max_size=6),
       way=st.sampled_from(list(WAYS)), damage=st.lists(st.integers(0, 10_000), max_size=3),
       seed=st.integers(0, 2**16))  # fmt: skip
def test_nothing_leaves_the_box(entries: Entries, way: str, damage: list[int], seed: int) -> None:
    """Any names, and archives of which any bytes were changed."""
    try:
        content = bytearray(WAYS[way](entries))
    except (ValueError, UnicodeError, OverflowError):
        return  # Python itself writes no such archive.
    change = random.Random(seed)
    for at in damage:
        if content:
            content[at % len(content)] = change.randrange(256)
    with TemporaryDirectory() as name:
        folder = Path(name)
        try:
            unpacked(bytes(content), folder)
        except ImportUnusable as error:
            assert str(error).isprintable()
        outside = {path.name for path in folder.iterdir()} | set(os.listdir(folder / "box"))
        assert outside == {"archive", "box", "into"}
        assert not any(path.is_symlink() for path in folder.rglob("*"))
