"""What is known, before anything starts, not to work here."""

from pathlib import Path

from runner.capabilities import Capabilities
from runner.errors import InvalidSpec
from runner.queue import PROJECT_ROOT
from runner.spec import ExperimentSpec
from runner.user_code import locate


def check(spec: ExperimentSpec, machine: Capabilities) -> None:
    """Raises `InvalidSpec` for what this machine lacks and for data that is not there."""
    machine.check(spec)
    source = spec.data.source
    if spec.data.is_file and not (PROJECT_ROOT / Path(source).expanduser()).exists():
        raise InvalidSpec("data.source", source, "no such file or folder; give its full path")


def check_user_code(spec: ExperimentSpec) -> None:
    """Raises `CodeNotAllowed` or `InvalidSpec` for a Python file that a supervisor which this
    process starts could not run.
    """
    named = {"model.source": (spec.model.source,) if spec.model.is_user_code else (),
             "data.source": (spec.data.source,) if spec.data.is_user_code else (),
             "callbacks": spec.callbacks}  # fmt: skip
    for field, sources in named.items():
        for source in sources:
            file, _name = locate(source)
            if not file.is_file():
                raise InvalidSpec(field, source, f"there is no file {file}")
