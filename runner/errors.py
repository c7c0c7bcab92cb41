"""Errors a user can do something about.

    RunnerError
    ├── InvalidSpec         a field of a specification breaks its rule (also a ValueError)
    ├── InvalidRunFolder    a run folder holds something that cannot be read
    ├── UnknownExperiment   no experiment has this id
    ├── NotEnoughDisk       the data folder has no room for another experiment
    ├── ProbeFailed         torch could not be asked what this machine offers
    └── WorkloadError       the model, the data or the device cannot be used as asked

Every message says what was wrong, with which value, and what to do.
"""

from typing import Any


class RunnerError(Exception):
    """Base of all errors that the runner raises on purpose."""


class InvalidSpec(RunnerError, ValueError):
    """A specification breaks a rule; names the field, the value and the rule."""

    def __init__(self, field: str, value: Any, rule: str) -> None:
        super().__init__(f"{field} = {value!r}: {rule}")
        self.field = field
        self.value = value
        self.rule = rule


class InvalidRunFolder(RunnerError):
    """A file of a run folder is missing or cannot be read."""


class UnknownExperiment(RunnerError):
    """No experiment with this id is in the data folder."""


class NotEnoughDisk(RunnerError):
    """Less free disk space than an experiment needs to record itself."""


class ProbeFailed(RunnerError):
    """The subprocess that asks torch about this machine gave no answer."""


class WorkloadError(RunnerError):
    """The model, data or device that a specification names cannot be used as asked."""
