"""What is known, before anything starts, not to work here."""

from importlib.util import find_spec
from pathlib import Path

from runner.capabilities import Capabilities
from runner.errors import InvalidSpec
from runner.queue import PROJECT_ROOT
from runner.spec import ExperimentSpec
from runner.user_code import locate

SUITE_PACKAGES = {
    "timm": ("timm", "pip install timm torchvision, in versions that fit this torch"),
    "torchbench": (
        "torchbenchmark",
        "clone https://github.com/pytorch/benchmark, run python install.py MODEL in it and put its "
        "folder on PYTHONPATH",
    ),
}
"""Suite to the package that its models come from, and how to get it."""


def check(spec: ExperimentSpec, machine: Capabilities) -> None:
    """Raises `InvalidSpec` for what this machine lacks and for data that is not there."""
    machine.check(spec)
    _check_suite_package(spec)
    source = spec.data.source
    if spec.data.is_file and not (PROJECT_ROOT / Path(source).expanduser()).exists():
        raise InvalidSpec("data.source", source, "no such file or folder; give its full path")


def _check_suite_package(spec: ExperimentSpec) -> None:
    """Runs start with the interpreter and the path of this process, so it knows."""
    model = spec.model.from_suite
    package, remedy = SUITE_PACKAGES.get(model.suite if model else "", (None, ""))
    if package is not None and find_spec(package) is None:
        rule = f"needs the package {package}, which is not installed here: {remedy}"
        raise InvalidSpec("model.source", spec.model.source, rule)


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
