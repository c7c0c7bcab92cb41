"""The options of `compare` and `submit`, one for every field of a specification, there and back.

Names, types, choices and texts are those of the fields. What cannot be told from them stands in
the three tables below.
"""

import argparse
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from breakeven.runner.errors import RunnerError
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import Spec, field_texts, require
from breakeven.runner.specs.ladder import with_ladder
from breakeven.runner.specs.options import (
    parse_options,
    read_number,
    read_whole_number,
    split_at_commas,
    write_options,
)
from breakeven.runner.specs.workload import TASKS, usual_name

FLAGS = {
    "callbacks": "--callback",
    "devices": "--device",
    "nodes": "--nnodes",
    "time_limit_seconds": "--time-limit",
    "model.source": "--model",
    "data.source": "--data",
    "data.num_train_samples": "--train-samples",
    "data.num_eval_samples": "--eval-samples",
    "data.num_test_samples": "--test-samples",
    "training.losses": "--loss",
    "training.parameter_groups": "--parameter-group",
    "evaluation.when": "--evaluate",
    "evaluation.every": "--evaluate-every",
    "evaluation.splits": "--evaluate-splits",
    "evaluation.compiled": "--evaluate-compiled",
    "stopping.nonfinite": "--stop-nonfinite",
    "stopping.threshold": "--stop-at",
    "checkpoints.every": "--checkpoint-every",
    "checkpoints.unit": "--checkpoint-unit",
    "speed.part": "--speed-part",
    "speed.batches": "--speed-batches",
    "speed.repeats": "--speed-repeats",
    "cache.part": "--cache-part",
    "accuracy.iterations": "--accuracy-iterations",
    "accuracy.tolerance": "--accuracy-tolerance",
    "accuracy.parts": "--accuracy-parts",
    "accuracy.layers": "--accuracy-layers",
    "script.arguments": "--script-argument",
    "script.folder": "--script-folder",
    "script.steps": "--script-steps",
    "script.patience_seconds": "--patience-seconds",
}
"""Flags of fields whose own name would not do; the others' is `--field-name`."""
REPEATED = ("callbacks", "training.losses", "training.parameter_groups", "script.arguments")
"""Lists of which each entry takes an option of its own; those of other lists stand in one."""
CHOICES: dict[str, tuple[str, ...]] = {"task": TASKS}
"""What a field may be, where its type does not say so."""
NUMBERS: dict[Any, Callable[[str], float]] = {int: read_whole_number, float: read_number}
"""Readers of what is typed for a number, by its type."""
FORMER = {"--no-control": "--controls=0", "--control": "--controls=1"}
"""Options of the release before this one, and what they are called now."""
UNASKED = ("suite_run", "fallback_of", "replay_of")
"""What nobody asks for: the commands `suite` and `replay` set it, or the supervisor."""

Read = TypeVar("Read")


@dataclass(frozen=True, kw_only=True)
class Option:
    """One field on the command line."""

    section: str
    """Field of the experiment that holds the field; empty for one of the experiment's own."""
    name: str
    kind: Any
    """Its type, without None."""
    default: Any
    text: str

    @property
    def path(self) -> str:
        """How error messages name the field: `training.batch_size`."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def flag(self) -> str:
        return FLAGS.get(self.path) or "--" + self.name.replace("_", "-")

    def value_in(self, spec: ExperimentSpec) -> Any:
        return getattr(getattr(spec, self.section) if self.section else spec, self.name)

    def written(self, value: Any) -> list[str]:
        """The arguments that set the field to a value."""
        if self.kind is bool:
            return [self.flag if value else self.flag.replace("--", "--no-", 1)]
        texts = value if self.path in REPEATED else [self.text_of(value)]
        return [f"{self.flag}={text}" for text in texts]

    def text_of(self, value: Any) -> str:
        """The value as an option takes it."""
        if self.kind is bool:
            return "yes" if value else "no"
        if self.path == "script.arguments":
            return shlex.join(value)
        if get_origin(self.kind) is dict:
            return write_options(value)
        return ",".join(value) if get_origin(self.kind) is tuple else str(value)

    def add_to(self, group: argparse._ArgumentGroup, flag: str | None = None) -> None:
        """`flag`: what it is called where its own name is longer than need be."""
        text = self.text
        if self.path in REPEATED:
            text += " Can be given several times."
        if self.default not in (MISSING, None, (), {}):
            text += f" (default: {self.text_of(self.default)})"
        help = text.replace("%", "%%")
        group.add_argument(flag or self.flag, dest=self.path, help=help, **self._arguments())

    def _arguments(self) -> dict[str, Any]:
        """How argparse is to read it. What is not given is None, so that defaults stay the
        specification's own.
        """
        choices = CHOICES.get(self.path) or get_args(self.kind)
        if self.kind is bool:
            return {"action": argparse.BooleanOptionalAction, "default": None}
        if get_origin(self.kind) is dict:
            return {"type": said(parse_options), "metavar": "NAME=VALUE,..."}
        if self.path in REPEATED:
            return {"action": "append", "metavar": "TEXT"}
        if get_origin(self.kind) is tuple:
            known = get_args(get_args(self.kind)[0])
            metavar = f"{{{','.join(known)}}},..." if known else "TEXT,..."
            return {"type": split_at_commas, "metavar": metavar}
        if choices:
            return {"choices": choices}
        if self.kind in NUMBERS:
            return {"type": said(NUMBERS[self.kind]), "metavar": "N" if self.kind is int else "X"}
        return {"type": self.kind, "metavar": "TEXT"}


def spec_options() -> Iterator[Option]:
    """All options, those of the experiment itself first."""
    kinds = get_type_hints(ExperimentSpec)
    sections = [(name, kind) for name, kind in kinds.items() if _is_spec(kind)]
    for section, kind in [("", ExperimentSpec), *sections]:
        hints, texts = get_type_hints(kind), field_texts(kind)
        for field in fields(kind):
            if _is_spec(hints[field.name]) or field.name in UNASKED:
                continue
            makes = field.default_factory
            yield Option(
                section=section,
                name=field.name,
                kind=_without_none(hints[field.name]),
                default=field.default if makes is MISSING else makes(),
                text=texts.get(field.name, ""),
            )


def add_spec_options(parser: argparse.ArgumentParser) -> None:
    """Adds all options to a command, one for a file of them, and one for the whole ladder."""
    text = "JSON file of a whole experiment; options given beside it replace its values"
    parser.add_argument("--spec", type=Path, metavar="FILE", help=text)
    text = (
        "run the whole ladder: eager, aot_eager, aot_eager_decomp_partition, inductor, on CUDA "
        "inductor with CUDA graphs, inductor with max-autotune; and behind it what --backends "
        "names. `breakeven ladder EXPERIMENT` then says which stage of the compiler fails, "
        "computes wrongly or loses time"
    )
    parser.add_argument("--ladder", action="store_true", help=text)
    add_field_options(parser)


def add_field_options(
    parser: argparse.ArgumentParser,
    without: Collection[str] = (),
    flags: Mapping[str, str] | None = None,
) -> None:
    """Adds an option for every field but those at the paths `without`, in groups named after the
    parts of a specification. `flags` are other ones for some of them."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in spec_options():
        if option.path in without:
            continue
        title = option.section or "experiment"
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        option.add_to(groups[title], (flags or {}).get(option.path))


def renamed(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments with former options by their new names, and a hint for each that was there."""
    hints = [f"{one} is now {FORMER[one]}; the next release no longer takes it"
             for one in dict.fromkeys(arguments) if one in FORMER]  # fmt: skip
    return [FORMER.get(one, one) for one in arguments], hints


def read_spec(given: argparse.Namespace) -> ExperimentSpec:
    """The experiment that parsed options describe; raises `RunnerError` if they cannot be."""
    values = asdict(_read_file(given.spec)) if given.spec is not None else {}
    read_fields(given, values)
    spec = ExperimentSpec.from_dict({"name": "unnamed", **values})
    if given.ladder:
        rule = "must not be 'spread': each rung is compared with the one below it, on one device"
        require(spec.num_places == 1, "parallel", spec.parallel, rule)
        named = spec.backends if "backends" in values else ()
        spec = replace(spec, backends=with_ladder(named, spec.device))
    return (
        spec
        if "name" in values
        else replace(spec, name=usual_name(spec.model.source, spec.data.source))
    )


def read_fields(given: argparse.Namespace, values: dict[str, Any]) -> None:
    """Puts the fields that parsed options name into `values`, those of sections into theirs."""
    for option in spec_options():
        value = getattr(given, option.path, None)
        if value is not None:
            holder = values.setdefault(option.section, {}) if option.section else values
            holder[option.name] = tuple(value) if isinstance(value, list) else value


def write_spec(spec: ExperimentSpec) -> list[str]:
    """The arguments that `read_spec` makes the same experiment of; defaults are left out."""
    return [
        argument
        for option in spec_options()
        if (value := option.value_in(spec)) != option.default
        for argument in option.written(value)
    ]


def _read_file(file: Path) -> ExperimentSpec:
    try:
        return ExperimentSpec.from_json(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise RunnerError(f"{file} cannot be read: {error}") from None


def said(read: Callable[[str], Read]) -> Callable[[str], Read]:
    """Lets argparse say what the ValueError of a reader says."""

    def reads(text: str) -> Read:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return reads


def _is_spec(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Spec)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (UnionType, Union):
        (kind,) = (option for option in get_args(kind) if option is not NoneType)
    return kind
