"""Lines of many journals, made ready for the database: some are, while it reads those before them.

Of a batch the most frequent kinds lie in files of their own, which the database can read with the
few columns of one kind. It works in one thread and this in another, so that a machine with two
processors does both at once.
"""

import tempfile
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

from storage.index.journal_lines import FREQUENT, split_by_kind, with_owner
from storage.index.journal_rows import Owner, write_files

BATCH_BYTES = 24_000_000
"""Of lines, after which a batch ends."""

OWN_FILE_BYTES = 200_000
"""Of a journal's lines of one kind, from which on they get a file of their own. Shorter ones go
into one together, because opening a file takes as long as hundreds of lines."""


@dataclass
class Batch:
    """Some journals' lines, taken apart."""

    folder: Path
    own_files: dict[str, list[str]] = field(default_factory=dict)
    """By kind: files of one journal each, named after their experiment and run."""
    shared_files: dict[str, list[str]] = field(default_factory=dict)
    """By kind: a file of several journals, whose lines say whose they are."""
    others: dict[Owner, bytes] = field(default_factory=dict)
    """The lines of all other kinds."""


def batches(slices: Mapping[Owner, bytes]) -> Generator[Batch]:
    """The lines in batches; the files of one are gone once the next is asked for."""
    with (
        tempfile.TemporaryDirectory(prefix="breakeven-") as folder,
        ThreadPoolExecutor(1) as beside,
    ):
        groups = list(_groups(slices))
        coming = beside.submit(_prepared, Path(folder, "0"), groups[0]) if groups else None
        for number in range(1, len(groups) + 1):
            assert coming is not None
            batch = coming.result()
            if number < len(groups):
                coming = beside.submit(_prepared, Path(folder, str(number)), groups[number])
            yield batch
            rmtree(batch.folder)


def together(slices: Mapping[Owner, bytes]) -> dict[Owner, bytes]:
    """The lines of several runs as of one file, each of which says whose it is."""
    return {(0, "all"): b"".join(with_owner(*owner, lines) for owner, lines in slices.items())}


def _groups(slices: Mapping[Owner, bytes]) -> Iterator[dict[Owner, bytes]]:
    group: dict[Owner, bytes] = {}
    num_bytes = 0
    for owner, lines in slices.items():
        group[owner] = lines
        num_bytes += len(lines)
        if num_bytes >= BATCH_BYTES:
            yield group
            group, num_bytes = {}, 0
    if group:
        yield group


def _prepared(folder: Path, slices: Mapping[Owner, bytes]) -> Batch:
    batch = Batch(folder)
    split = {owner: split_by_kind(lines, FREQUENT) for owner, lines in slices.items()}
    for kind in FREQUENT:
        mine = {owner: parts[kind] for owner, parts in split.items() if kind in parts}
        own = {owner: lines for owner, lines in mine.items() if len(lines) >= OWN_FILE_BYTES}
        short = {owner: lines for owner, lines in mine.items() if owner not in own}
        if own:
            batch.own_files[kind] = write_files(folder / kind / "own", own)
        if short:
            batch.shared_files[kind] = write_files(folder / kind / "shared", together(short))
    batch.others = {owner: parts[""] for owner, parts in split.items() if "" in parts}
    folder.mkdir(parents=True, exist_ok=True)
    return batch
