"""The command that runs an experiment again, without the browser."""

import shlex

from breakeven.runner.commands.options import write_script, write_spec
from breakeven.runner.specs.experiment import ExperimentSpec

COMMAND = "breakeven compare"


def command(spec: ExperimentSpec) -> str:
    """`breakeven compare ...` with every option that differs from its default; of a script
    `breakeven script ...`.

    Own code runs only where it is allowed, which no specification can say.
    """
    words = [COMMAND, *map(shlex.quote, write_spec(spec))]
    if spec.is_script:
        words = ["breakeven script", *map(shlex.quote, write_script(spec))]
    return " \\\n  ".join(words)
