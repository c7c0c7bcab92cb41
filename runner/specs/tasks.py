"""Which tasks there are, and what fits each of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from breakeven.runner.specs.training import Metric
from breakeven.runner.specs.validation import require

TASKS = tuple(
    sorted(
        file.stem
        for file in (Path(__file__).parents[1] / "worker" / "tasks").glob("*.py")
        if not file.stem.startswith("_")
    )
)
"""A task is a module in `runner/worker/tasks/`, named after its file."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What fits a task; its module says it in `TASK`, and the probe tells the launch form."""

    learns: str
    """What the model learns, to go on after these words."""
    samples: Literal["texts", "images", "random", "functions", "script"]
    """What it learns from: texts or images from anywhere, random numbers, what functions of one's
    own return, or what a script reads."""
    labels: Literal["sample", "token"] | None = None
    """What has a label each; None where model and samples decide."""
    models: tuple[str, ...] = ()
    """Those that need no download."""
    data: tuple[str, ...] = ()
    """That which needs no download."""
    metrics: tuple[Metric, ...] = ()
    """What it is judged by, beside the loss; empty where model and samples decide."""

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Task":
        lists = {name: tuple(content[name]) for name in ("models", "data", "metrics")}
        return cls(**{**content, **lists})


def check_task(task: str) -> None:
    """Raises `InvalidSpec` unless there is such a task."""
    require(task in TASKS, "task", task, f"must be one of {', '.join(TASKS)}")
