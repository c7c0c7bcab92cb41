"""Counts the comparisons of a family, such as the proposals of a program, and controls the false
discovery rate over all of them, online: LORD++ (Ramdas, Yang, Wainwright and Jordan 2017).

`families/NAME` of the data folder has a line for each comparison, its id, in the order in which
they were queued, and a line `accepted ID` for each one that found something faster. Lines are only
added, also when experiments are deleted. The lines in front of a comparison give its place and its
level, which are written into its specification, so that neither changes later: an acceptance counts
for comparisons that are queued after it was known (Zrnic, Ramdas and Jordan 2021).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from breakeven.runner.errors import RunnerError
from breakeven.runner.files import FileLock
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec

ERROR_RATE = 0.05
FIRST_WEALTH = ERROR_RATE / 2
"""What all comparisons before the first acceptance share; the first acceptance gives the rest."""
DECLINE = 1.6
"""Ramdas, Zrnic, Wainwright and Jordan (2018) use it: much goes to the next few comparisons."""
SUM_OF_POWERS = 2.2857656
"""The sum of n^-1.6 over all n, rounded up: Riemann's zeta function at 1.6."""
ACCEPTED = "accepted "
PATIENCE_SECONDS = 10.0


def level_of(place: int, acceptances: Sequence[int]) -> float:
    """The level at a place, from 1 on; `acceptances`: for each acceptance that is known, the number
    of comparisons that were queued before it was."""
    level = FIRST_WEALTH * share(place)
    for number, known in enumerate(acceptances):
        gain = ERROR_RATE - FIRST_WEALTH if number == 0 else ERROR_RATE
        level += gain * share(place - known)
    return level


def share(number: int) -> float:
    """The share of an amount that the comparison of this number gets; all shares are 1 together."""
    return float(number**-DECLINE / SUM_OF_POWERS)


def enter(data_dir: DataDir, spec: ExperimentSpec, experiment_id: str) -> ExperimentSpec:
    """Gives an experiment that is about to be queued the next place of its family. A repetition run
    by run keeps the place; what compares no speeds by itself takes none. Raises `OSError`."""
    takes_part = spec.kind.has_speedups and not spec.kind.has_candidates
    if spec.family is None or not takes_part:
        return replace(spec, family_place=None, family_level=None)
    if spec.fallback_of is not None and spec.family_level is not None:
        return spec
    with _locked(data_dir, spec.family) as file:
        lines = _lines(file)
        place, acceptances = 1, list[int]()
        for line in lines:
            if line.startswith(ACCEPTED):
                acceptances.append(place - 1)
            else:
                place += 1
        _add(file, experiment_id)
    return replace(spec, family_place=place, family_level=level_of(place, acceptances))


def accept(data_dir: DataDir, spec: ExperimentSpec, experiment_id: str) -> None:
    """Records, once, that a comparison of this data folder found something faster. Raises
    `OSError`."""
    if spec.family is None or spec.family_level is None:
        return
    entered = spec.fallback_of or experiment_id
    if not (data_dir.families / spec.family).exists():  # It was copied from another folder.
        return
    with _locked(data_dir, spec.family) as file:
        lines = _lines(file)
        if entered in lines and ACCEPTED + entered not in lines:
            _add(file, ACCEPTED + entered)


@contextmanager
def _locked(data_dir: DataDir, family: str) -> Iterator[Path]:
    file = data_dir.families / family
    lock = FileLock(file)
    if not lock.acquire(PATIENCE_SECONDS):
        raise RunnerError(f"{file} is locked by another process; try again")
    with lock:
        yield file


def _lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines()


def _add(file: Path, line: str) -> None:
    # A process that was killed may have left half a line, which counts as a comparison.
    start = "\n" if not file.read_text(errors="replace").endswith(("\n", "")) else ""
    with file.open("a") as family:
        family.write(f"{start}{line}\n")
