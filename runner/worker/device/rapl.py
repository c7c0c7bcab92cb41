"""Energy of the CPUs from the counters of RAPL (Running Average Power Limit), which Linux shows for
Intel and AMD in /sys/class/powercap. By default only root may read them.
"""

from collections.abc import Iterator
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


class PackageEnergy:
    """Energy of all CPU packages of the machine, without its memory and other devices."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        self._counters = list(_readable_counters(powercap))
        self._before: list[int] | None = None

    def begin(self) -> None:
        """Reads the counters before a block."""
        self._before = self._read()

    def joules(self) -> float | None:
        """Energy since `begin`; None without readable counters."""
        before, now = self._before, self._read()
        if not before or now is None:
            return None
        # A counter that reaches its end begins at 0 again, at full power every few minutes.
        ends = (end for _, end in self._counters)
        spent = (
            (after - earlier) % (end + 1)
            for end, earlier, after in zip(ends, before, now, strict=True)
        )
        return sum(spent) / 1e6

    def _read(self) -> list[int] | None:
        try:
            return [int(file.read_text()) for file, _ in self._counters]
        except (OSError, ValueError):
            return None


def _readable_counters(powercap: Path) -> Iterator[tuple[Path, int]]:
    """The counter of each package, in microjoules, and its largest value. Zones within a package
    (`intel-rapl:0:1`) count a part of its energy again."""
    for zone in sorted(powercap.glob("intel-rapl:*")):
        try:
            name = (zone / "name").read_text()
            counter, end = zone / "energy_uj", int((zone / "max_energy_range_uj").read_text())
            int(counter.read_text())
        except (OSError, ValueError):
            continue
        if name.startswith("package"):
            yield counter, end
