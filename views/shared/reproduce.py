"""The command that runs an experiment again, without the browser."""

import shlex

from runner.commands.options import write_spec
from runner.commands.script import write_script
from runner.specs.experiment import ExperimentSpec

COMMAND = "python -m runner compare"


def command(spec: ExperimentSpec) -> str:
    """`python -m runner compare ...` with every option that differs from its default; of a script
    `python -m runner script ...`.

    Own code runs only where it is allowed, which no specification can say.
    """
    words = [COMMAND, *map(shlex.quote, write_spec(spec))]
    if spec.is_script:
        words = ["python -m runner script", *map(shlex.quote, write_script(spec))]
    return " \\\n  ".join(words)
