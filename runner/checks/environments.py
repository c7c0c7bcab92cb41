"""Checks that each environment of an experiment can execute its runs: its Python, its torch and the
packages that the task needs."""

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from breakeven.runner.checks.allowed_code import allowed
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.machine.run_variables import without_own_python
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.arms import PYTHON_MARK, pythons
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.suites import SUITES

LEAST_PYTHON, LEAST_TORCH = (3, 10), (2, 6)
LIMIT_SECONDS = 120.0
KEPT_ANSWERS = 64
ASK = """
import gc, importlib.util, json, os, sys
gc.disable()
found = {"python": sys.version_info[:3]}
try:
    import torch
    found["torch"] = torch.__version__
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
found["missing"] = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
print(json.dumps(found), flush=True)
os._exit(0)
"""
"""Without garbage collection, which takes a third of the time of importing torch."""


def check_environments(spec: ExperimentSpec, data_dir: DataDir) -> None:
    """Raises `CodeNotAllowed` for an environment whose Python may not run here, and `InvalidSpec`
    for one that cannot execute the runs, with the reason."""
    names = {python: name for name, python in pythons(spec.environments).items()}
    for python in spec.other_pythons:
        check_allowed(python, data_dir)
        if why := why_unfit(python, packages_needed(spec)):
            if python in names:
                raise InvalidSpec("environments", f"{names[python]}={python}", why)
            raise InvalidSpec("named_arms", f"{PYTHON_MARK}{python}", why)


def check_allowed(python: str, data_dir: DataDir) -> None:
    """Raises `CodeNotAllowed` for a Python that is neither Breakeven's own, nor in an environment
    of the data folder, nor in a folder that the administrator allows: a specification may come from
    anybody, and names a program."""
    if not is_own(python, data_dir):
        allowed(python, Path(python).parent)


def is_own(python: str, data_dir: DataDir) -> bool:
    """Whether a Python is Breakeven's own, or that of an environment of the data folder."""
    path = Path(os.path.normpath(python))
    return path == Path(sys.executable) or path.is_relative_to(data_dir.environments)


def packages_needed(spec: ExperimentSpec) -> tuple[str, ...]:
    """Names of the modules that the runs import besides torch. A script imports what it likes."""
    if spec.workload.is_own_program:
        return ()
    suite = spec.model.from_suite
    needed = {
        "transformers": spec.task not in ("custom", "suite") or spec.training.warmup_steps > 0,
        "torchmetrics": spec.evaluates != "never",
        "pyarrow": bool(spec.evaluation.predictions) and spec.kind.trains_fully,
        (suite and SUITES[suite.suite].package) or "": True,
    }
    return tuple(name for name, is_needed in needed.items() if name and is_needed)


def why_unfit(python: str, needed: tuple[str, ...]) -> str | None:
    """Why a Python cannot execute runs that need these modules; None if it can."""
    try:
        answer = _answer(python, needed)
    except subprocess.TimeoutExpired:
        return f"did not import torch within {LIMIT_SECONDS:.0f} s"
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    except ValueError:
        return "is no Python: it did not answer a question in Python"
    version = tuple(answer["python"])
    if version < LEAST_PYTHON:
        return f"is Python {_dotted(version)}; runs need {_dotted(LEAST_PYTHON)} or newer"
    if "error" in answer:
        return f"cannot import torch: {answer['error']}"
    torch = tuple(int(number) for number in answer["torch"].split(".")[:2])
    if torch < LEAST_TORCH:
        return f"has torch {answer['torch']}; runs need {_dotted(LEAST_TORCH)} or newer"
    if answer["missing"]:
        return (
            f"lacks {', '.join(answer['missing'])}, which this experiment needs; install it there"
        )
    return None


@lru_cache(KEPT_ANSWERS)
def _answer(python: str, needed: tuple[str, ...]) -> dict[str, Any]:
    command = [python, "-W", "ignore", "-c", ASK, *needed]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env=without_own_python(os.environ),
        cwd="/",
    )
    lines = done.stdout.splitlines()
    if not lines:
        raise ValueError(done.stderr)
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
