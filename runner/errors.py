"""Errors a user can do something about.

    RunnerError
    ├── InvalidSpec         a field of a specification breaks its rule (also a ValueError)
    ├── InvalidRunFolder    a run folder holds something that cannot be read
    ├── UnknownExperiment   no experiment has this id
    ├── NotEnoughDisk       the data folder has no room for another experiment
    ├── NotWritable         the data folder cannot be written
    ├── ProbeFailed         torch could not be asked what this machine offers
    ├── UnusableData        a file of data is not there or cannot be read
    ├── SettingsUnusable    `breakeven.toml` holds something that is no setting
    ├── CodeNotAllowed      a Python file of one's own may not run here
    └── WorkloadError       the model, the data or the device cannot be used as asked
        └── NotLoaded       the model, the tokenizer or the data, which all runs share

Every message says what was wrong, with which value, and what to do.
"""

from pathlib import Path
from typing import Any

from breakeven.runner.texts import printable

LONGEST_SHOWN = 300
LONGEST_SHOWN_BITS = 200


class RunnerError(Exception):
    """Base of all errors that the runner raises on purpose."""


class InvalidSpec(RunnerError, ValueError):
    """A specification breaks a rule; names the field, the value and the rule."""

    def __init__(self, field: str, value: Any, rule: str) -> None:
        field = printable(field)  # a stranger's name of a field
        super().__init__(f"{field} = {shown(value)}: {rule}")
        self.field = field
        self.value = value
        self.rule = rule


def shown(value: Any) -> str:
    """A value as messages quote it: a number of 400 digits or a long text by its beginning."""
    if isinstance(value, int) and value.bit_length() > LONGEST_SHOWN_BITS:
        return f"a whole number of {value.bit_length():,} bits"
    written = repr(value)
    return written if len(written) <= LONGEST_SHOWN else f"{written[:LONGEST_SHOWN]} ..."


class InvalidRunFolder(RunnerError):
    """A file of a run folder is missing or cannot be read."""


class UnknownExperiment(RunnerError):
    """No experiment with this id is in the data folder."""


class NotEnoughDisk(RunnerError):
    """Less free disk space than an experiment needs to record itself."""


class NotWritable(RunnerError):
    """Something in the data folder cannot be written; says what, why, and what to do."""

    def __init__(self, folder: Path, error: OSError) -> None:
        what = printable(error.filename or folder)
        super().__init__(
            f"{what} cannot be written: {error.strerror or error}. Make {printable(folder)} "
            "writable, free some space, or choose another data folder (--data-folder, or the "
            "environment variable BREAKEVEN_DATA)"
        )


class ProbeFailed(RunnerError):
    """The subprocess that asks torch about this machine gave no answer."""


class UnusableData(RunnerError):
    """A file of data cannot be used; says why, to go on after the field and its value."""


class SettingsUnusable(RunnerError):
    """A setting of `breakeven.toml`, or of a variable that overrides the file, is wrong."""


class CodeNotAllowed(RunnerError):
    """A specification names a Python file that may not run here."""


class WorkloadError(RunnerError):
    """The model, data or device that a specification names cannot be used as asked."""


class NotLoaded(WorkloadError):
    """Loading what all runs of an experiment share failed: the model, the tokenizer or the data."""


OWN_ERRORS = frozenset(
    kind.__name__
    for kind in [*globals().values()]
    if isinstance(kind, type) and issubclass(kind, RunnerError)
)
"""Names of the classes above, as journals have them: their messages need no traceback."""
