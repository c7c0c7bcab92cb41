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
    # No `choices`: argparse of Python 3.11 takes the default, a list of them, for a wrong one.
    parser.add_argument("parts", nargs="*", type=_part, default=PARTS, metavar="PART",
                        help=f"of {', '.join(PARTS)} (all)")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--runs", type=int, default=1000, help="that wait, and that are there")
    parser.add_argument("--watching", type=int, default=10, help="readers of Live")
    parser.add_argument("--visiting", type=int, default=20, help="readers of other pages")
    parser.add_argument("--rates", type=float, nargs="+", default=[10_000, 30_000, 100_000])
    return parser.parse_args(arguments)


def _part(text: str) -> str:
    if text not in PARTS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(PARTS)}")
    return text


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
