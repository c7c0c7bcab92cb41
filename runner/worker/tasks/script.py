"""A user's training script: `runner/worker/script/` runs it; this module loads nothing."""

from breakeven.runner.specs.workload import Task

TASK = Task(learns="what a training script of your own has it learn", samples="script")
