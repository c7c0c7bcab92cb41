"""The planned length of a training: in steps, epochs, samples, tokens or hours."""

import argparse
import re
from typing import Literal, NamedTuple, get_args

Unit = Literal["steps", "epochs", "samples", "tokens", "hours"]
LENGTHS = "20000 steps, 10 epochs, 5000000 samples, 1e9 tokens, or 8 hours without a compiler"
_LENGTH = re.compile(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*([a-z]*)")


class Length(NamedTuple):
    amount: float
    unit: Unit


def read_length(text: str) -> Length:
    """Reads `20,000`, `10 epochs` or `8h`: a unit may be abbreviated, and steps need no unit.
    Raises `ArgumentTypeError`."""
    match = _LENGTH.fullmatch(text.replace(",", "").strip().lower())
    units: tuple[Unit, ...] = get_args(Unit)
    unit = match and next((known for known in units if known.startswith(match[2] or "steps")), None)
    if not match or not unit or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of a training: write {LENGTHS}")
    return Length(float(match[1]), unit)


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Adds `--plan` to a command; `plan` is then a `Length` or None."""
    text = f"planned length of the training: {LENGTHS}; the answer names the fastest backend for it"
    parser.add_argument("--plan", type=read_length, metavar="LENGTH", help=text)
