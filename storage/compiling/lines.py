"""Which line of one run's source is which line of another's, where somebody changed it between."""

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import PurePath

LINE = re.compile(r"(?P<file>.*):(?P<line>\d+)")
Sources = Mapping[str, Sequence[str]]
"""A person's own files as a run executed them: path to lines."""
NEW = "\N{NULL}"
"""Stands before a place that the other run does not have."""


class LineMap:
    """Places of `other` as `one` would name them; `file:line` texts."""

    def __init__(self, one: Sources, other: Sources) -> None:
        self._files = dict(_pairs(one, other))
        self._lines = {
            there: _same_lines(one[here], other[there]) for there, here in self._files.items()
        }

    def knows(self, place: str) -> bool:
        """Whether a place lies in a file that both runs keep."""
        found = LINE.fullmatch(place)
        return found is not None and self._file(found["file"]) is not None

    def __call__(self, place: str) -> str:
        """A line that only the other run has is one that no place of the first reads like."""
        found = LINE.fullmatch(place)
        file = None if found is None else self._file(found["file"])
        if found is None or file is None:
            return place
        line = self._lines[file].get(int(found["line"]))
        return f"{NEW}{place}" if line is None else f"{self._files[file]}:{line}"

    def _file(self, named: str) -> str | None:
        """The kept file that a place names, which may do so by the end of its path alone."""
        name = PurePath(named).name
        return next((file for file in self._files
                     if file == named or PurePath(file).name == name), None)  # fmt: skip


def _pairs(one: Sources, other: Sources) -> list[tuple[str, str]]:
    """Files of the other run, and which of the first they are: of the same name, and the rest in
    their order."""
    names = {PurePath(file).name: file for file in one}
    found = [(file, names[PurePath(file).name]) for file in other if PurePath(file).name in names]
    taken_there, taken_here = {there for there, _ in found}, {here for _, here in found}
    rest_there = [file for file in other if file not in taken_there]
    rest_here = [file for file in one if file not in taken_here]
    return found + list(zip(rest_there, rest_here, strict=False))


def _same_lines(one: Sequence[str], other: Sequence[str]) -> dict[int, int]:
    """Line of the other text to the line of the first that says the same, both counted from 1."""
    blocks = SequenceMatcher(None, other, one, autojunk=False).get_matching_blocks()
    return {
        block.a + offset + 1: block.b + offset + 1
        for block in blocks
        for offset in range(block.size)
    }
