"""The planned length of a training: in steps, epochs, samples, tokens or hours, and in how many
starts."""

import argparse
import re
from math import ceil
from typing import Literal, NamedTuple, get_args

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import MAX_STARTS

Unit = Literal["steps", "epochs", "samples", "tokens", "hours"]
LENGTHS = (
    "20000 steps, 10 epochs, 5000000 samples, 1e9 tokens, or 8 hours without a compiler; with "
    "interruptions 20000 steps in 10 starts"
)
_BUDGET = re.compile(r"(\d+(?:\.\d+)?)\s*([smh])")
SECONDS = {"s": 1, "m": 60, "h": 3600}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*([a-z]*?)(?:\s*\bin\s+(\d+)\s+starts?)?")


class Length(NamedTuple):
    amount: float
    unit: Unit
    starts: int = 1
    """Processes in which it is made, one after another."""


def read_length(text: str) -> Length:
    """Reads `20,000`, `10 epochs`, `8h` or `20000 steps in 10 starts`: a unit may be abbreviated,
    and steps need no unit. Raises `ArgumentTypeError`."""
    match = _LENGTH.fullmatch(text.replace(",", "").strip().lower())
    units: tuple[Unit, ...] = get_args(Unit)
    unit = match and next((known for known in units if known.startswith(match[2] or "steps")), None)
    starts = int(match[3] or 1) if match else 0
    if not match or not unit or not float(match[1]) or not 0 < starts <= MAX_STARTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of a training: write {LENGTHS}")
    return Length(float(match[1]), unit, starts)


def write_length(amount: float, starts: int, unit: Unit = "steps") -> str:
    """`20000 steps in 10 starts`, which `read_length` reads."""
    return f"{amount} {unit}" + (f" in {starts} starts" if starts > 1 else "")


def read_budget(text: str) -> float:
    """Reads seconds; raises `ValueError`."""
    amount = _BUDGET.fullmatch(text.strip().lower())
    if not amount:
        raise ValueError(f"{text!r} is not a time: write a number with s, m or h, such as 30m")
    return float(amount[1]) * SECONDS[amount[2]]


def steps_in(spec: ExperimentSpec, length: Length) -> int | None:
    """A length in steps; None if it depends on what is unknown before the first step: the speed, or
    the batches of a script."""
    samples = spec.training.batch_size * spec.batches_per_step
    sizes = {
        "epochs": float(spec.steps_per_epoch),
        "samples": 1 / samples,
        "tokens": 1 / (samples * spec.data.sequence_length),
    }
    known = {"steps": 1.0, **(sizes if spec.workload.is_specified else {})}
    return max(1, ceil(length.amount * known[length.unit])) if length.unit in known else None


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Adds `--plan` to a command; `plan` is then a `Length` or None."""
    text = f"planned length of the training: {LENGTHS}; the answer names the fastest backend for it"
    parser.add_argument("--plan", type=read_length, metavar="LENGTH", help=text)
