"""Works off cells: several are prepared beside each other, and each is timed while all others stand
still.

Preparing takes minutes, most of it compiling, on a core or two; timing takes seconds and wants the
machine for itself. So whatever is being prepared is stopped (SIGSTOP) while something is timed.
"""

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.harness_figures.cells import Cell
from benchmarks.harness_figures.checkout import Checkout
from benchmarks.harness_figures.processes import Harness, Lost, Ours
from runner.folders.process import signal_group

POLL_SECONDS = 0.2
PREPARING_SECONDS = 420.0
SETTLING_SECONDS = 0.3
"""Until what the device was given by processes that stand still is worked off."""
DIGITS = 4

Say = Callable[[str], None]
Record = dict[str, Any]


class _Pair:
    """Both tools at one cell."""

    def __init__(
        self, cell: Cell, checkout: Checkout, device: str, folder: Path, *, apart: bool
    ) -> None:
        self.cell = cell
        self._apart = apart
        self.since = time.monotonic()
        self._checkout = checkout
        self._folder = folder
        self._harness = Harness(cell, checkout, device, folder)
        self._ours = Ours(cell, checkout, device, folder)
        self.timed: Record | None = None
        """What both took, as soon as that is known and while the step is still taken apart."""

    @property
    def is_ready(self) -> bool:
        """Raises `Lost`."""
        if self.timed is not None:
            return self._is_ready_again(self.timed)
        if time.monotonic() - self.since > PREPARING_SECONDS:
            raise Lost(f"preparing took more than {PREPARING_SECONDS:g} s")
        # Both are asked, so that whichever has failed is heard of.
        ready = [self._harness.is_ready, self._ours.is_ready]
        return all(ready)

    def measure(self) -> Record | None:
        """Both, the harness before and after ours; then, if asked for and when it is ready again,
        its step taken apart. None as long as that is to come. Raises `Lost`."""
        if self.timed is not None:
            return self._taken_apart(self.timed)
        if self.cell.checks:
            statuses = {"harness": self._harness.status(), "ours": self._ours.status()}
            found: Record = {who: status for who, (status, _) in statuses.items()}
            found["said"] = {who: words for who, (_, words) in statuses.items()}
            return self._with_environment(found)
        first = self._harness.time()
        ours = self._ours.time()
        self._ours.end()
        timed = self._with_environment(
            {"alternates": True, "harness": [first, self._harness.time()], "ours": ours}
        )
        if not self._apart:
            return timed
        self.timed = timed
        self.since = time.monotonic()
        self._harness.prepare_our_way()
        return None

    def _is_ready_again(self, timed: Record) -> bool:
        """What was timed is kept whatever becomes of the rest."""
        try:
            if time.monotonic() - self.since > PREPARING_SECONDS:
                raise Lost(f"preparing took more than {PREPARING_SECONDS:g} s")
            return self._harness.is_ready
        except Lost as reason:
            timed["not_apart"] = str(reason)
            return True

    def _taken_apart(self, timed: Record) -> Record:
        if "not_apart" not in timed:
            try:
                timed["apart"] = self._harness.take_apart()
            except Lost as reason:
                timed["not_apart"] = str(reason)
        return timed

    def _with_environment(self, found: Record) -> Record:
        environment = self._ours.environment()
        also = {"harness": self._checkout.version}
        with suppress(PackageNotFoundError):
            also["timm"] = version("timm")
        return {**found, "environment": {**environment, "versions": environment["versions"] | also}}

    def groups(self) -> Iterator[int]:
        yield from self._harness.groups()
        yield from self._ours.groups()

    def end(self) -> None:
        self._harness.end()
        self._ours.end()
        # Compiled code of every cell would fill a disk; logs and journals stay.
        for run in (self._folder / "ours" / "runs").glob("*"):
            for name in ("compile-cache", "artifacts"):
                shutil.rmtree(run / name, ignore_errors=True)


class Recording:
    """Works off cells, one record each. Trainings take much of a device's memory: of them only so
    many at once. What fails beside others, as where they do not fit together, is tried again with
    one fewer at once, however many failed together; what fails once more, at the end by itself."""

    def __init__(
        self,
        cells: Iterable[Cell],
        begin: Callable[[Cell], _Pair],
        write: Callable[[Record], None],
        say: Say,
        *,
        at_once: int,
        training_at_once: int,
    ) -> None:
        self._waiting = list(cells)
        self._failed: set[Cell] = set()
        self._alone: set[Cell] = set()
        """What is tried by itself, after all others."""
        self._pairs: list[_Pair] = []
        self._begin = begin
        self._write = write
        self._tell = say
        self._at_once = at_once
        self._training_at_once = training_at_once
        self._since = self._shrunk = time.monotonic()

    def run(self, seconds: float) -> None:
        """What is not timed when the seconds are over is given up without a record."""
        try:
            while (self._waiting or self._pairs) and time.monotonic() - self._since < seconds:
                for cell in list(self._waiting):
                    if self._has_room_for(cell):
                        self._waiting.remove(cell)
                        self._say(f"{cell.name}: begun")
                        self._pairs.append(self._begin(cell))
                for pair in list(self._pairs):
                    found = _look(pair, [other for other in self._pairs if other is not pair])
                    if found is not None:
                        self._end(pair, found)
                time.sleep(POLL_SECONDS)
        finally:
            for pair in self._pairs:
                self._say(f"{pair.cell.name}: given up")
                pair.end()
                if pair.timed is not None:
                    self._write(_about(pair.cell, pair.timed | {"not_apart": "no time was left"}))

    def _has_room_for(self, cell: Cell) -> bool:
        if cell in self._alone:
            return not self._pairs and self._alone.issuperset(self._waiting)
        trainings = sum(pair.cell.part == "training" for pair in self._pairs)
        is_full = cell.part == "training" and trainings >= self._training_at_once
        return len(self._pairs) < self._at_once and not is_full

    def _end(self, pair: _Pair, found: Record) -> None:
        cell = pair.cell
        self._pairs.remove(pair)
        pair.end()
        self._say(f"{cell.name}: {_told(found)}, {time.monotonic() - pair.since:.0f} s in all")
        if "lost" not in found or cell in self._alone:
            self._write(found)
        elif cell in self._failed:
            self._alone.add(cell)
            self._waiting.append(cell)
        else:
            self._failed.add(cell)
            self._waiting.append(cell)
            if pair.since >= self._shrunk:  # Not one of those that failed together with the last.
                self._shrunk = time.monotonic()
                self._at_once = max(1, self._at_once - 1)
                self._training_at_once = max(1, self._training_at_once - 1)

    def _say(self, text: str) -> None:
        self._tell(f"{time.monotonic() - self._since:5.0f} s  {text}")


def pairs_in(
    folder: Path, checkout: Checkout, device: str, *, apart: bool
) -> Callable[[Cell], "_Pair"]:
    """Begins a cell in a folder of its own. `apart`: the harness's step is taken apart, too."""

    def begin(cell: Cell) -> _Pair:
        place = tempfile.mkdtemp(prefix=f"{cell.model}-{cell.part}-", dir=folder)
        return _Pair(cell, checkout, device, Path(place), apart=apart)

    return begin


def _look(pair: _Pair, others: Iterable[_Pair]) -> Record | None:
    """What became of a cell, None as long as it is being prepared."""
    try:
        if not pair.is_ready:
            return None
        with _standing_still(others):
            found = pair.measure()
    except Lost as reason:
        found = {"lost": str(reason)}
    if found is None:
        return None
    return _about(pair.cell, found)


def _about(cell: Cell, found: Record) -> Record:
    about = {"suite": cell.suite, "model": cell.model, "part": cell.part, "checks": cell.checks}
    return {**about, "date": date.today().isoformat(), **_rounded(found)}


@contextmanager
def _standing_still(pairs: Iterable[_Pair]) -> Iterator[None]:
    groups = [group for pair in pairs for group in pair.groups()]
    for group in groups:
        signal_group(group, signal.SIGSTOP)
    time.sleep(SETTLING_SECONDS)
    try:
        yield
    finally:
        for group in groups:
            signal_group(group, signal.SIGCONT)


def _told(found: Record) -> str:
    if "lost" in found:
        return str(found["lost"])
    return "measured" if not found["checks"] else f"{found['harness']}, ours {found['ours']}"


def _rounded(found: Any) -> Any:
    """Times to four digits: no clock here knows more."""
    if isinstance(found, dict):
        return {name: _rounded(value) for name, value in found.items()}
    if isinstance(found, list):
        return [_rounded(value) for value in found]
    return float(f"{found:.{DIGITS}g}") if isinstance(found, float) else found


def append_to(file: Path) -> Callable[[Record], None]:
    """Writes records as lines of a file, each as soon as it is there."""

    def write(found: Record) -> None:
        with file.open("a") as records:
            records.write(json.dumps(found) + "\n")

    return write


def read(file: Path) -> list[Record]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines()]
