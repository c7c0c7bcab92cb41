"""Numbers of CPUs as a line of text: `0-3,8`."""

import re
from collections.abc import Collection
from itertools import groupby


def parse_cpus(text: str) -> frozenset[int]:
    """The numbers in a list such as `0-3,8`, as the kernel writes it (cpuset(7)); raises
    `ValueError` for anything else."""
    found: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip())
        if match is None:
            raise ValueError(f"{part!r} must be the number of a CPU or a range, such as 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{part!r} must begin with the lower number")
        found.update(range(first, last + 1))
    return frozenset(found)


def write_cpus(cpus: Collection[int]) -> str:
    """The list that `parse_cpus` reads."""
    parts = []
    for _, group in groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in group]
        parts.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return ",".join(parts)
