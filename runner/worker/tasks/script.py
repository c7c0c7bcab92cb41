"""A training script of a person's own: `runner/worker/script/` runs it, nothing is loaded here."""

from breakeven.runner.specs.workload import Task

TASK = Task(
    learns="what a training script of your own has it learn",
    samples="script",
)
