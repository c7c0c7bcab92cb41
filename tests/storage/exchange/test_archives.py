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


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.GNUTYPE_SPARSE,
    ],
)
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


@pytest.mark.parametrize("way", WAYS)
def test_too_many_files_are_refused(tmp_path: Path, way: str) -> None:
    with pytest.raises(ImportUnusable, match="more than 50 files"):
        unpacked(WAYS[way]([(f"{number}", b"") for number in range(51)]), tmp_path)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "same_place"),
    [("a/b", "a/b"), ("a/B", "A/b"), ("\u00e9", "e\u0301"), ("a", "a/b"), ("a/b", "a")],
)
def test_two_files_at_one_place_are_refused(
    tmp_path: Path, way: str, name: str, same_place: str
) -> None:
    with pytest.raises(ImportUnusable, match="in it twice"):
        unpacked(WAYS[way]([(name, b"1"), (same_place, b"2")]), tmp_path)


PLAIN = zipped([("a-b", b"1")])
ENTRY, DIRECTORY, END = (PLAIN.index(b"PK" + kind) for kind in (b"\3\4", b"\1\2", b"\5\6"))
"""Where the parts of the archive begin."""


def patched(*values: tuple[int, str, int]) -> bytes:
    """The plain archive with other numbers at these places."""
    content = bytearray(PLAIN)
    for at, layout, value in values:
        struct.pack_into(layout, content, at, value)
    return bytes(content)


def on_each_other() -> bytes:
    """As in the bombs without nesting: twenty names for the same bytes."""
    archive = zipped([("a", b"\0" * 9_000)])
    directory, end = archive.index(b"PK\1\2"), archive.index(b"PK\5\6")
    entries = b"".join(archive[directory:end].replace(b"a", bytes([97 + n]), 1) for n in range(20))
    return archive[:directory] + entries + patched_end(archive[end:], len(entries))


def patched_end(end: bytes, length: int) -> bytes:
    return end[:8] + struct.pack("<HHI", 20, 20, length) + end[16:]


def huge_head() -> bytes:
    head = tarfile.TarInfo("././@PaxHeader")
    head.type, head.size = tarfile.XHDTYPE, 2**33 - 1
    return head.tobuf() + b"\0" * 4096


def packed_with_lzma() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", b"1")
    return file.getvalue()


DAMAGED: dict[str, tuple[bytes, str | None]] = {
    "files on each other": (on_each_other(), None),
    "a table of contents that fills the memory": (
        patched((END + 12, "<I", 2**31)),
        "table of contents is too long",
    ),
    "ZIP64": (PLAIN[:END] + b"PK\6\7" + b"\0" * 16 + PLAIN[END:], "ZIP64"),
    "a file that begins before its archive": (
        patched((END + 16, "<I", DIRECTORY + 1)),
        "it is damaged",
    ),
    "encrypted": (patched((ENTRY + 6, "<H", 1), (DIRECTORY + 8, "<H", 1)), "encrypted"),
    "oddly packed": (packed_with_lzma(), "not deflate"),
    "NUL in a name": (PLAIN.replace(b"a-b", b"a\0b"), None),
    "half a character in a name": (PLAIN.replace(b"a-b", b"a\xffb"), None),
    "half a character in a name of a tar": (tarred([("a\udcffb", b"x")]), None),
    "a head of a tar that says it is huge": (huge_head(), None),
    "such a head, packed": (gzip.compress(huge_head()), None),
    **{
        f"no archive {content[:9]!r}": (content, None)
        for content in (b"", b"PK", b"\x1f\x8b", b"hello", b"PK\x03\x04" * 99)
    },
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_or_unusual_archive_is_refused(tmp_path: Path, case: str) -> None:
    content, said = DAMAGED[case]
    with pytest.raises(ImportUnusable, match=said):
        unpacked(content, tmp_path)


NAMES = st.one_of(
    st.sampled_from([*REFUSED.values(), "a", "a/b", "A", "a/", "./a", "", ".", "/", "a//b"]),
    st.text(alphabet=st.characters(codec="utf-8"), max_size=20),
)


@settings(max_examples=60, deadline=None)
@given(
    entries=st.lists(st.tuples(NAMES, st.binary(max_size=40)), max_size=6),
    way=st.sampled_from(list(WAYS)),
    damage=st.lists(st.integers(0, 10_000), max_size=3),
    seed=st.integers(0, 2**16),
)
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
