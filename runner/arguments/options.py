"""Reads fields of a specification from options of the command line, and writes them as options.

Names, types, choices and texts come from `runner/specs/`. Rare fields have no option of their own:
`--set training.last_batch=pad` sets one; `--help-fields` lists all fields.
"""

import argparse
import shlex
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from breakeven.runner.arguments.typed_commands import VISIBLE, TypedCommand, read_command
from breakeven.runner.errors import RunnerError
from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.machine.quick_race import QUICK_RACE
from breakeven.runner.revisions import Folders, resolved_arm, resolved_changes
from breakeven.runner.specs.arms import name_of_python
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import Field, fields_of, require
from breakeven.runner.specs.ladder import with_ladder
from breakeven.runner.specs.values import nearest
from breakeven.runner.specs.workload import SCRIPT_DATA, SCRIPT_PREFIX, SCRIPT_TASK, usual_name
from breakeven.runner.start_folders import path_from, start_folder
from breakeven.runner.texts import filled

FIELDS = {field.path: field for field in fields_of(ExperimentSpec)}
"""Every field that users can set, by path, those of the experiment itself first."""
SET = "--set"
SCRIPT_FIELDS = (
    "name",
    "backends",
    "named_arms",
    "baseline",
    "environments",
    "settings",
    "controls",
    "more_controls",
    "same",
    "margin",
    "devices",
    "cpus",
    "exclusive",
    "priority",
    "cpu_threads",
    "schedule",
    "compile",
    "block_steps",
    "profile_steps",
    "time_limit_seconds",
    "keep_code",
    "keep_trace",
    "family",
    "training.seed",
    "plan.steps",
    "plan.starts",
    "plan.max_seconds",
    "plan.target_width",
    "plan.parity",
    "script.folder",
    "script.module",
    "script.variables",
    "script.ranks",
    "script.steps",
    "script.patience_seconds",
)
"""Fields that options can set for a script; the script itself decides the others."""
THREADS = "OMP_NUM_THREADS"
NO_QUICK_RACE = ("model.source", "data.source", "task")
"""Who names one of these describes an experiment of their own."""
SCRIPT_FLAGS = {
    "script.steps": "--steps",
    "named_arms": "--arm",
    "baseline": "--baseline",
    "family": "--family",
    "same": "--same",
    "margin": "--margin",
}

Read = TypeVar("Read")


def add_spec_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of all fields, `--spec` for a file, and `--ladder`."""
    text = "JSON file of a whole experiment; options given with it replace its values"
    parser.add_argument("--spec", type=Path, metavar="FILE", help=text)
    text = (
        "run the whole ladder: eager, aot_eager, aot_eager_decomp_partition, inductor, on CUDA "
        "inductor with CUDA graphs, inductor with max-autotune; then also the backends of "
        "--backends. `breakeven explain --ladder EXPERIMENT` then names the compiler stage that "
        "fails, computes wrong numbers or loses time"
    )
    parser.add_argument("--ladder", action="store_true", help=text)
    add_field_options(parser, FIELDS)


def add_field_options(
    parser: argparse.ArgumentParser,
    paths: Collection[str],
    flags: Mapping[str, str] | None = None,
) -> None:
    """Adds an option for each of these fields, in groups named after the parts of a specification,
    and `--set` for rare fields. `flags`: options of some fields, also of rare ones."""
    flags = flags or {}
    text = "set any field, also a rare one; can be given several times"
    parser.add_argument(
        SET,
        action="append",
        default=[],
        type=checked(lambda text: _read_setting(text, paths)),
        dest="settings_given",
        metavar="FIELD=VALUE",
        help=text,
    )
    text = "list all fields with type, range, default and text, and exit"
    parser.add_argument("--help-fields", action=_ListFields, nargs=0, help=text)
    groups: dict[str, argparse._ArgumentGroup] = {}
    for path in paths:
        field = FIELDS[path]
        if field.prompt.rare and path not in flags:
            parser.set_defaults(**{path: None})
            continue
        title = field.section or "experiment"
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        flag = flags.get(path, field.flag)
        groups[title].add_argument(flag, dest=path, help=help_of(field), **arguments_of(field))


def read_spec(given: argparse.Namespace, race: ExperimentSpec = QUICK_RACE) -> ExperimentSpec:
    """The experiment that parsed options describe; raises `RunnerError` if the options are invalid.
    `race`: the experiment that options change if they name no model, data, task or file; its device
    is that of all experiments that name none."""
    paths = {path for path in ("spec", *NO_QUICK_RACE) if getattr(given, path, None) is not None}
    paths.update(field.path for field, _ in given.settings_given if field.path in NO_QUICK_RACE)
    is_race = not paths
    values: dict[str, Any] = {"devices": race.devices}
    if given.spec is not None:
        values = asdict(_read_file(given.spec))
    elif is_race:
        values = asdict(race)
        del values["name"]
        if given.ladder:
            del values["backends"]
    read_fields(given, values)
    spec = _located(ExperimentSpec.from_dict({"name": race.name, **values}))
    if is_race and replace(spec, devices=race.devices) == race:
        return spec
    if given.ladder:
        named = spec.backends if "backends" in values else ()
        spec = replace(spec, backends=with_ladder(named, spec.device))
    if "name" in values:
        return spec
    name = usual_name(
        spec.model.source,
        spec.data.source,
        precision=spec.training.precision,
        batch_size=spec.training.batch_size,
        backends=spec.backends,
        device=spec.place,
    )
    return replace(spec, name=name)


def _located(spec: ExperimentSpec) -> ExperimentSpec:
    """The experiment with the full paths of data and model that were typed from the folder of the
    command; runs have another one."""
    data, model = Path(spec.data.source), Path(spec.model.source)
    if spec.data.is_file and data.exists():
        spec = replace(spec, data=replace(spec.data, source=str(data.absolute())))
    if spec.model.source.startswith(".") and model.is_dir():
        spec = replace(spec, model=replace(spec.model, source=str(model.absolute())))
    return spec


def read_fields(given: argparse.Namespace, values: dict[str, Any]) -> None:
    """Puts the fields of parsed options into `values`, fields of a section into its values."""
    for path, field in FIELDS.items():
        value = getattr(given, path, None)
        if value is not None:
            field.put_in(values, tuple(value) if isinstance(value, list) else value)
    entries: dict[str, tuple[Any, ...]] = {}
    for field, value in given.settings_given:
        if field.prompt.several:
            value = entries[field.path] = (*entries.get(field.path, ()), *value)
        field.put_in(values, value)


def write_spec(spec: ExperimentSpec, flags: Mapping[str, str | None] | None = None) -> list[str]:
    """The arguments from which `read_spec` makes the same experiment, without defaults except the
    device, whose default depends on the machine, and the model, without which it would be the quick
    race. `flags`: the fields to write, with options that
    replace theirs; by default all."""
    flags = flags or dict.fromkeys(FIELDS)
    return [
        argument
        for field in map(FIELDS.__getitem__, flags)
        if (value := field.value_in(spec)) != field.default
        or field.prompt.usual
        or field.path == "model.source"
        for argument in written(field, value, flags[field.path])
    ]


def written(field: Field, value: Any, flag: str | None = None) -> list[str]:
    """The arguments that set a field to a value. `flag` replaces its option."""
    if field.prompt.rare and flag is None:
        texts = value if field.prompt.several and not field.prompt.words else [field.written(value)]
        return [f"{SET}={field.path}={text}" for text in texts]
    flag = flag or field.flag
    if field.kind is bool:
        return [flag if value else flag.replace("--", "--no-", 1)]
    texts = value if field.prompt.several else [field.written(value)]
    return [f"{flag}={text}" for text in texts]


def add_script_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `SCRIPT_FIELDS`, and the command of a training."""
    add_field_options(parser, SCRIPT_FIELDS, SCRIPT_FLAGS)
    add_command(parser, "the command of your training, as you type it today")


def add_command(parser: argparse.ArgumentParser, text: str) -> None:
    """Adds the command of a training: all words from the first that is no option of ours."""
    python = "the Python, or the folder of the environment, in which your command runs (default: "
    python += "that of the command, or of the active environment)"
    parser.add_argument("--python", metavar="PATH", help=python)
    text += "; all that follows belongs to it"
    parser.add_argument("typed", nargs=argparse.REMAINDER, metavar="COMMAND", help=text)


def read_script(given: argparse.Namespace, machine: Capabilities) -> ExperimentSpec:
    """The experiment that parsed options describe; raises `RunnerError` if the options are invalid.

    The default devices are those of the machine that the command would use: its first GPU, one for
    each rank, or the CPU.
    """
    options = {path: getattr(given, path, None) for path in (*FIELDS, "spec")}
    options |= {"ladder": getattr(given, "ladder", False) or None}
    options |= {field.path: value for field, value in given.settings_given}
    for path, value in options.items():
        rule = "must be left out: the script decides this itself"
        require(value is None or path in SCRIPT_FIELDS, path, value, rule)
    num_gpus = sum(device.id.startswith("cuda:") for device in machine.devices)
    command = read_command(given.typed, num_gpus, given.python)
    folder = options["script.folder"]
    if folder is None:
        folder = start_folder(command.file, is_module=bool(command.module))
    folder = folder and str(Path(folder).resolve())
    start = Path(folder or command.file.parent)
    folders = Folders(script=command.file.parent, start=start, typed=Path.cwd())
    values = _values_of(command, folders)
    if options["devices"] is None:
        visible = command.variables.get(VISIBLE)
        values["devices"] = devices_for(command.ranks, visible, machine)
    read_fields(given, values)
    values["script"]["folder"] = folder
    _read_arms(values, folders)
    return ExperimentSpec.from_dict(values)


def _read_arms(values: dict[str, Any], folders: Folders) -> None:
    """Finds the commits and files of arms and baseline. Named arms replace the usual backend."""
    arms, baseline = values.get("named_arms", ()), values.get("baseline", "")
    values["named_arms"] = tuple(resolved_arm(text, folders) for text in arms)
    values["baseline"] = resolved_changes(baseline, folders, "baseline")
    if arms:
        values.setdefault("backends", ())


def _values_of(command: TypedCommand, folders: Folders) -> dict[str, Any]:
    """What a command says of an experiment."""
    variables = {name: text for name, text in command.variables.items() if name != VISIBLE}
    threads = variables.get(THREADS, "")
    if threads.isdecimal() and int(threads):  # Runs set the variable from `cpu_threads`.
        del variables[THREADS]
    return {
        "name": command.module.partition("=")[0]
        or usual_name(f"{SCRIPT_PREFIX}{command.file}", SCRIPT_DATA),
        "task": SCRIPT_TASK,
        "model": {"source": f"{SCRIPT_PREFIX}{command.file}"},
        "data": {"source": SCRIPT_DATA},
        "script": {
            "arguments": tuple(
                path_from(text, folders.start, typed=folders.typed) for text in command.arguments
            ),
            "module": command.module,
            "variables": tuple(f"{name}={value}" for name, value in variables.items()),
            "ranks": command.ranks,
        },
        "environments": (environment_of(command.python),) if command.python else (),
        "cpu_threads": int(threads) if threads and THREADS not in variables else None,
    }


def devices_for(ranks: int, visible: str | None, machine: Capabilities) -> tuple[str, ...]:
    """The devices that a command uses by itself: those that its `CUDA_VISIBLE_DEVICES` names, or
    else the first ones, one for each rank."""
    usual = machine.usual_device
    if visible is not None:
        numbers = [number.strip() for number in visible.split(",") if number.strip()]
        if numbers in ([], ["-1"]):
            return ("cpu",) * ranks
        rule = "must be numbers of GPUs before a command; name other devices by --device"
        require(all(map(str.isdecimal, numbers)), VISIBLE, visible, rule)
        rule = f"must name a GPU for each of {ranks} processes"
        require(len(numbers) >= ranks, VISIBLE, visible, rule)
        return tuple(f"cuda:{number}" for number in numbers[:ranks])
    if not usual.startswith("cuda"):
        return (usual,) * ranks
    if (
        machine.is_guessed
    ):  # The number of GPUs is not known; the run refuses those that are missing.
        return tuple(f"cuda:{number}" for number in range(ranks))
    gpus = [device.id for device in machine.devices if device.id.startswith("cuda:")]
    rule = f"must be at most {len(gpus)}, the GPUs of this machine; or name devices by --device"
    require(ranks <= len(gpus), "script.ranks", ranks, rule)
    return tuple(gpus[:ranks])


def environment_of(python: str) -> str:
    """A Python that a command names as an environment of the experiment: `NAME=PYTHON`."""
    return f"{name_of_python(python)}={python}"


def write_script(spec: ExperimentSpec) -> list[str]:
    """The arguments of the command that makes the same experiment; defaults are left out."""
    file = spec.model.script
    assert file is not None
    flags = {path: SCRIPT_FLAGS.get(path) for path in SCRIPT_FIELDS}
    options = write_spec(spec, flags)
    if not spec.script.folder:  # Else it would be the folder in which the command is typed.
        options.append(f"{SET}=script.folder=")
    return [*options, file, *spec.script.arguments]


COMMAND = "breakeven compare"


def command_line(spec: ExperimentSpec, between: str = " \\\n  ") -> str:
    """`breakeven compare ...`, for a script `breakeven run ...`, with every option that differs
    from its default.

    The command cannot allow the user's own code: the machine that runs it must.
    """
    words = [COMMAND, *map(shlex.quote, write_spec(spec))]
    if spec.workload.is_own_program:
        words = ["breakeven run", *map(shlex.quote, write_script(spec))]
    return between.join(words)


def list_fields() -> str:
    """Every field: its path, option, type, range, default and text."""
    lines = []
    for field in FIELDS.values():
        option = "" if field.prompt.rare else f"  ({field.flag})"
        default = f"; default: {_default(field)}" if _has_default(field) else ""
        lines.append(f"{field.path}{option}")
        lines += [filled(text, "    ") for text in (field.allowed + default, field.prompt.help)]
    return "\n".join(lines)


def checked(read: Callable[[str], Read]) -> Callable[[str], Read]:
    """Makes argparse show the message of a reader's `ValueError`."""

    def reads(text: str) -> Read:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return reads


class _ListFields(argparse.Action):
    """`--help-fields`: prints and exits, as `--help` does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(list_fields() + "\n")
        parser.exit()


def _read_setting(text: str, paths: Collection[str]) -> tuple[Field, Any]:
    """A field and its value, as `--set` takes them."""
    path, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} must read FIELD=VALUE, such as training.last_batch=pad")
    if path not in paths:
        listed = "--help-fields lists all"
        raise ValueError(f"{path!r} is not a field here; {listed}{nearest(path, paths)}")
    try:
        return FIELDS[path], FIELDS[path].read(value)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _has_default(field: Field) -> bool:
    return field.path != "name" and field.default not in (None, (), {}, "")


def help_of(field: Field) -> str:
    """The help of a field's option."""
    text = field.prompt.help
    if field.prompt.several:
        text += " Can be given several times."
    if _has_default(field):
        text += f" (default: {_default(field)})"
    return text.replace("%", "%%")


def _default(field: Field) -> str:
    return field.prompt.usual or field.written(field.default)


def arguments_of(field: Field) -> dict[str, Any]:
    """How argparse reads a field. A missing option is None, so that the specification's default
    applies."""
    if field.kind is bool:
        return {"action": argparse.BooleanOptionalAction, "default": None}
    if field.prompt.several:
        return {"action": "append", "metavar": "TEXT"}
    return {"type": checked(field.read), "metavar": _metavar(field)}


def _metavar(field: Field) -> str:
    if field.is_options:
        return "NAME=VALUE,..."
    unit = field.bounds.unit if field.bounds else ""
    word = f"{{{','.join(field.choices)}}}" if field.choices else "TEXT"
    word = {int: "N", float: "SECONDS" if unit == "s" else "X"}.get(field.kind, word)
    return f"{word},..." if field.is_list else word


def _read_file(file: Path) -> ExperimentSpec:
    try:
        return ExperimentSpec.from_json(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise RunnerError(f"{file} cannot be read: {error}") from None
