"""Asks a process of its own what only it can tell: torch and storage are not imported here."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.texts import printable


def ask(who: str, command: Sequence[str], limit_seconds: float) -> dict[str, Any] | str:
    """The JSON object in the last line that the command prints, or why there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                              timeout=limit_seconds, cwd=PROJECT_ROOT)  # fmt: skip
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return f"{who} did not answer within {limit_seconds:.0f} s"
    except (ValueError, IndexError):
        said = "; ".join(done.stderr.strip().splitlines()[-2:])
        return printable(said) or f"{who} says nothing"
    return answer
