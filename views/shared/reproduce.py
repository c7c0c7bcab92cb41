"""The command that runs an experiment again, without the browser."""

import shlex

from runner.commands.options import write_spec
from runner.specs.experiment import ExperimentSpec

COMMAND = "python -m runner compare"


def command(spec: ExperimentSpec) -> str:
    """`python -m runner compare ...` with every option that differs from its default.

    Own code runs only where it is allowed, which no specification can say.
    """
    return " \\\n  ".join([COMMAND, *map(shlex.quote, write_spec(spec))])
