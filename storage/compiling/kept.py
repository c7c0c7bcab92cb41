"""Reads stored compiler outputs of a run: graphs, generated code, torch's trace."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import unified_diff

import pandas as pd

from breakeven.runner.folders.run_dir import RunDir
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.queries import RunRecord

TRACE = "trace"
MAX_COMPARED_BYTES = 2_000_000
MAX_COMPARED_LINES = 20_000
"""Limit of a file: a comparison takes the square of the number of lines in the worst case."""
WORD = re.compile(r"[^\s'\"]+")
CACHE_FOLDER, TORCHS_OWN = "/compile_cache/", "/tmp/torchinductor_"
"""Parts of paths of compile caches, which differ in every run."""


@dataclass(frozen=True, kw_only=True)
class KeptFile:
    """One file of a run's artifacts."""

    folder: RunDir
    what: str
    compile_id: str | None
    file: str
    num_bytes: int | None
    """None if the file grew after its record was written."""

    @property
    def name(self) -> str:
        return self.file.rpartition("/")[2]

    def read(self, most: int) -> bytes:
        """The first `most` bytes; raises `InvalidRunFolder` or `OSError` if the folder has no such
        plain file."""
        with self.folder.open(self.file) as opened:
            return opened.read(most)


def kept_of(store: Store, record: RunRecord) -> list[KeptFile]:
    """The stored files of a run in the order of writing; the last one of a name counts."""
    kept = queries.kept_files(store, record.experiment_id)
    mine = kept[kept["run_id"] == record.run_id].drop_duplicates("file", keep="last")
    folder = RunDir(record.folder)
    return [
        KeptFile(
            folder=folder,
            what=str(row.what),
            compile_id=None if pd.isna(row.compile_id) else str(row.compile_id),
            file=str(row.file),
            num_bytes=None if pd.isna(row.bytes) else int(row.bytes),
        )
        for row in mine.itertuples()
    ]


def code_difference(one: Sequence[KeptFile], other: Sequence[KeptFile]) -> list[tuple[str, str]]:
    """Name and unified diff of each file that differs between two runs; a file of only one run
    differs in all lines. Raises the errors of `KeptFile.read`."""
    mine = {file.name: file for file in one if file.what != TRACE}
    its = {file.name: file for file in other if file.what != TRACE}
    found = []
    for name in dict.fromkeys([*mine, *its]):
        before, after = _lines(mine.get(name)), _lines(its.get(name))
        lines = unified_diff(before, after, "this run", "other run", lineterm="", n=2)
        difference = "\n".join(lines)
        if difference:
            found.append((name, difference))
    return found


def _lines(file: KeptFile | None) -> list[str]:
    if file is None:
        return []
    text = file.read(MAX_COMPARED_BYTES).decode(errors="replace")
    return WORD.sub(_without_cache, text).splitlines()[:MAX_COMPARED_LINES]


def _without_cache(word: re.Match[str]) -> str:
    """Replaces a path in a compile cache by a constant. It scans each word only once: texts are
    untrusted, and a regular expression for the path would retry at every slash of a long one."""
    text = word[0]
    at = text.find("/") if CACHE_FOLDER in text else text.find(TORCHS_OWN)
    return text if at < 0 else f"{text[:at]}<cache>"
