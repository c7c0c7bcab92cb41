"""Whether model, data and metric of an experiment fit its task, as far as their names tell."""

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.tasks import Task
from breakeven.runner.specs.workload import BUILTIN, BUILTIN_DATA, BUILTIN_MODELS


def check_task_fits(spec: ExperimentSpec, task: Task) -> None:
    """Raises `InvalidSpec` for a source or a metric that the task cannot use."""
    if task.samples == "functions":
        _check_functions(spec)
    elif task.samples != "random":  # benchmark suites: the specification's own rules
        check_sources(spec, task)
    metric, known = spec.evaluation.metric, ("loss", *task.metrics)
    if task.metrics and metric not in known:
        rule = f"is not measured by task = {spec.task!r}; choose {' or '.join(known)}"
        raise InvalidSpec("evaluation.metric", metric, rule)


def check_sources(spec: ExperimentSpec, task: Task) -> None:
    """Raises `InvalidSpec` for a source that the task cannot use.

    Beside what it names itself it takes files and names of the hub, but no functions, which are
    for the task `custom`.
    """
    known = BUILTIN_MODELS | BUILTIN_DATA
    for field, part, usable in (
        ("model.source", spec.model, task.models),
        ("data.source", spec.data, task.data),
    ):
        is_foreign = part.source.startswith(BUILTIN) and part.source not in usable
        if is_foreign or part.is_user_code:
            what = known.get(part.source, "a function of one's own, for the task 'custom'")
            rule = (
                f"({what}) does not fit task = {spec.task!r}, which takes {', '.join(usable)}, "
                "local files and names of the hub. Choose one of these, or another task"
            )
            raise InvalidSpec(field, part.source, rule)


def _check_functions(spec: ExperimentSpec) -> None:
    for field, part in (("model.source", spec.model), ("data.source", spec.data)):
        if not part.is_user_code:
            rule = (
                f"does not fit task = {spec.task!r}, which takes functions in Python files, "
                "path.py:function. Name one, or choose another task"
            )
            raise InvalidSpec(field, part.source, rule)
