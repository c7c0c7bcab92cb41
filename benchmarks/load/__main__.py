"""Many at once: `make load`.

python -m benchmarks.load [queue] [readers] [events] [--seconds 60] [--rates 100000 ...]
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.load import events, queued, readers

PARTS = ("queue", "readers", "events")


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Of the command line unless others are given."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    # A list of choices is no choice, to argparse of Python 3.11: so no default here.
    parser.add_argument("parts", nargs="*", choices=PARTS, default=None, help="all of them")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--runs", type=int, default=1000, help="that wait, and that are there")
    parser.add_argument("--watching", type=int, default=10, help="readers of Live")
    parser.add_argument("--visiting", type=int, default=20, help="readers of other pages")
    parser.add_argument("--rates", type=float, nargs="+", default=[10_000, 30_000, 100_000])
    options = parser.parse_args(arguments)
    options.parts = options.parts or PARTS
    return options


def main() -> None:
    options = options_of()
    with tempfile.TemporaryDirectory(prefix="breakeven-load-") as name:
        folder = Path(name)
        if "queue" in options.parts:
            _tell("queue", queued.measure(folder / "queue", options.runs))
        if "readers" in options.parts:
            readers_are = options.watching, options.visiting, options.seconds, options.runs
            _tell("readers", readers.measure(folder / "readers", *readers_are))
        if "events" in options.parts:
            for rate in options.rates:
                _tell("events", events.measure(folder / f"{rate:.0f}", rate, options.seconds))


def _tell(part: str, figures: object) -> None:
    def rounded(value: float) -> float:
        return float(f"{value:.4g}")

    plain = json.loads(json.dumps(figures), parse_float=lambda text: rounded(float(text)))
    print(json.dumps({part: plain}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
