"""The arms of an experiment: baseline, controls, backends, and those that people name (`--arm`) by
what differs from the baseline:

    liger=--use-liger                      arguments of the script
    threads=OMP_NUM_THREADS=8              environment variables, in capital letters
    pr=@HEAD                               a revision of the script's repository
    fix=@/home/me/fix.diff                 a diff on top of the baseline's revision
    torch211=python=/home/me/torch211/bin/python   a Python
    graphs=inductor:mode=reduce-overhead   a backend
    new=@feature inductor --use-liger      any of these; all after the first argument is arguments

An option replaces the one of the same name with as many values, or else is appended. What an arm
does not name is the baseline's, which may differ from the typed command in the same ways. Beside a
compiled baseline the backend `none` compiles nothing.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Protocol, get_args

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.arm_fields import (
    CHANGES,
    ENVIRONMENT_MARK,
    LABEL,
    NO_COMPILER,
    RESERVED_LABELS,
    Arm,
    CacheState,
    Role,
    Settings,
)
from breakeven.runner.specs.backends import parse_backend, parse_backends
from breakeven.runner.specs.fields import require
from breakeven.runner.specs.values import BY_PATH, Options

NAMED = re.compile(r"(?P<name>[^\s=:@]+)=(?P<changes>.*)", re.DOTALL)
VARIABLE = re.compile(r"(?P<name>[A-Z_][A-Z0-9_]*)=.*", re.DOTALL)
"""An environment variable; names in small letters are arguments, such as `lr=0.1`."""
BACKENDS = (
    NO_COMPILER,
    "aot_eager",
    "aot_eager_decomp_partition",
    "cudagraphs",
    "eager",
    "inductor",
    "onnxrt",
    "openxla",
    "tvm",
)
"""Words that name a backend by themselves; others have a path, `package.module:attribute`."""
DIFF_SUFFIXES = (".diff", ".patch")
REVISION_MARK = "@"
PYTHON_MARK = "python="
CHANGES_NOTHING = (
    "changes nothing: it is the baseline. Name another backend, or give an arm an argument, a "
    f"variable, a revision or a setting, such as {NO_COMPILER}:optimizer=fused"
)
ARGUMENTS_MARK = "--"
"""Behind it all words are arguments."""


class ArmTexts(Protocol):
    """What arms follow from (`ExperimentFields`)."""

    @property
    def backends(self) -> tuple[str, ...]: ...
    @property
    def named_arms(self) -> tuple[str, ...]: ...
    @property
    def baseline(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What the words of an arm change."""

    revision: str | None = None
    diff: str | None = None
    python: str | None = None
    variables: tuple[str, ...] = ()
    backend: str | None = None
    """With settings; None if no word names one."""
    arguments: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The words from which `read_changes` makes the same."""
        mark = (ARGUMENTS_MARK,) if self._needs_mark else ()
        words = (
            *(REVISION_MARK + where for where in (self.revision, self.diff) if where),
            *(PYTHON_MARK + path for path in (self.python,) if path),
            *self.variables,
            *filter(None, [self.backend]),
            *mark,
            *self.arguments,
        )
        return shlex.join(words)

    @property
    def _needs_mark(self) -> bool:
        return bool(self.arguments) and _is_change(self.arguments[0])

    def over(self, base: Arm, label: str, role: Role) -> Arm:
        """An arm that differs from `base` by these changes."""
        own = {variable.partition("=")[0] for variable in self.variables}
        kept = [text for text in base.variables if text.partition("=")[0] not in own]
        return replace(
            parse_backend(self.backend) if self.backend else base,
            label=label,
            role=role,
            revision=base.revision if self.revision is None else self.revision,
            diff=base.diff if self.diff is None else self.diff,
            python=base.python if self.python is None else self.python,
            variables=(*kept, *self.variables),
            arguments=(*base.arguments, *self.arguments),
        )


def read_changes(text: str, field: str) -> Changes:
    """The changes that the words of an arm describe; raises `InvalidSpec` for the field."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidSpec(field, text, f"has an open quotation: {error}") from None
    changes = Changes()
    while words and _is_change(words[0]):
        word = words.pop(0)
        if word == ARGUMENTS_MARK:
            break
        if word.startswith(REVISION_MARK):
            changes = _with_revision(changes, word.removeprefix(REVISION_MARK), field, text)
        elif word.startswith(PYTHON_MARK):
            python = word.removeprefix(PYTHON_MARK)
            require(bool(python) and changes.python is None, field, text, "must name one Python")
            changes = replace(changes, python=python)
        elif VARIABLE.fullmatch(word):
            changes = replace(changes, variables=(*changes.variables, word))
        else:
            require(changes.backend is None, field, text, "must name one backend")
            changes = replace(changes, backend=word)
    return replace(changes, arguments=tuple(words))


def _with_revision(changes: Changes, where: str, field: str, text: str) -> Changes:
    if where.endswith(DIFF_SUFFIXES):
        require(changes.diff is None, field, text, "must name one diff")
        return replace(changes, diff=where)
    require(bool(where) and changes.revision is None, field, text, "must name one revision")
    return replace(changes, revision=where)


def _is_change(word: str) -> bool:
    """Whether a word is no argument."""
    return (
        word == ARGUMENTS_MARK
        or word.startswith((REVISION_MARK, PYTHON_MARK))
        or bool(VARIABLE.fullmatch(word))
        or word.partition(":")[0] in BACKENDS
        or bool(BY_PATH.match(word) and not word.startswith("-"))
    )


def split_name(text: str) -> tuple[str, str]:
    """Name and changes of an arm; raises `InvalidSpec` for the field `arms`."""
    match = NAMED.fullmatch(text)
    rule = "must read NAME=CHANGES, such as fp8='--precision fp8', pr=@HEAD or threads=OMP_NUM_"
    rule += "THREADS=8"
    if match is None:
        raise InvalidSpec("named_arms", text, rule)
    name = match["name"]
    rule = "has a name with other characters than letters, digits, '.', '_' and '-', or one of "
    rule += "Breakeven's own: baseline, control"
    is_free = LABEL.fullmatch(name) and not RESERVED_LABELS.fullmatch(name)
    require(bool(is_free), "named_arms", text, rule)
    return name, match["changes"]


def baseline_of(spec: ArmTexts) -> Arm:
    """The arm with which all others are compared. Raises `InvalidSpec`."""
    command = Arm(label="baseline", role="baseline")
    return _changed(command, "baseline", spec.baseline, read_changes(spec.baseline, "baseline"))


def _changed(base: Arm, field: str, text: str, changes: Changes, name: str = "") -> Arm:
    """A baseline, or the arm of a name, with these changes; raises `InvalidSpec` for the field."""
    try:
        return changes.over(base, name or base.label, "backend" if name else base.role)
    except InvalidSpec as error:
        rule = error.rule if error.field == "backends" else f"{error.field} {error.rule}"
        raise InvalidSpec(field, text, rule) from None


def compared_arms(spec: ArmTexts) -> list[Arm]:
    """The arms that are compared with the baseline: backends, then those with names. Raises
    `InvalidSpec`."""
    base = baseline_of(spec)
    inherited = {name: getattr(base, name) for name in CHANGES}
    arms = [replace(arm, **inherited) for arm in parse_backends(spec.backends)]
    for text, arm in zip(spec.backends, arms, strict=True):
        require(arm.settings != base.settings, "backends", text, CHANGES_NOTHING)
    taken = {arm.label for arm in arms}
    for text in spec.named_arms:
        name, changes = split_name(text)
        require(name not in taken, "named_arms", text, f"has the name of another arm, {name!r}")
        taken.add(name)
        arm = _changed(base, "named_arms", text, read_changes(changes, "named_arms"), name)
        require(arm.settings != base.settings, "named_arms", text, CHANGES_NOTHING)
        arms.append(arm)
    return arms


def with_arguments(arguments: Sequence[str], changes: Iterable[str]) -> tuple[str, ...]:
    """A command's arguments with those of an arm: an option replaces the one of the same name and
    as many values behind it, or is appended; so does `key=value`."""
    merged = [*arguments]
    for name, words in _options(changes):
        place = _place(merged, name)
        if place is None:
            merged += words
        else:
            num_values = 1 if "=" in words[0] else len(words) - 1
            merged[place : place + _length(merged, place, num_values)] = words
    return tuple(merged)


def _options(words: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Each option with its values; a word without an option has an empty name."""
    options: list[tuple[str, list[str]]] = []
    for word in words:
        name = _name(word)
        if name or not options or not options[-1][0].startswith("-") or "=" in options[-1][1][0]:
            options.append((name, [word]))
        else:
            options[-1][1].append(word)
    return options


def _name(word: str) -> str:
    """The name of an option, or the key of `key=value`; empty for other words and for numbers such
    as `-1`."""
    is_number = re.fullmatch(r"-[\d.][\d.e+-]*", word)
    name, equals, _ = word.partition("=")
    is_option = word.startswith("-") and word.strip("-") and not is_number
    is_key = equals and re.fullmatch(r"[+~]*[A-Za-z_][\w.@/-]*", name)
    return name if is_option or is_key else ""


def _place(words: Sequence[str], name: str) -> int | None:
    """Where the last option of this name stands."""
    places = [place for place, word in enumerate(words) if name and _name(word) == name]
    return places[-1] if places else None


def _length(words: Sequence[str], place: int, num_values: int) -> int:
    """Number of words of an option with its values, of which it has at most so many; one word
    `--name=value` has its value within."""
    if "=" in words[place]:
        return 1
    end = place + 1
    while end < len(words) and end - place <= num_values and not _name(words[end]):
        end += 1
    return end - place


def short_revision(arm: Arm) -> str:
    """The revision and diff of an arm for people: `3f2a1bc + fix.diff`."""
    return " + ".join(filter(None, [arm.revision[:7], arm.diff and PurePath(arm.diff).name]))


def name_of_python(python: str) -> str:
    """The name of the project whose `.venv` has a Python, or of its environment's folder."""
    folder = PurePath(python).parent.parent
    usual = folder.name.lstrip(".") in ("venv", "env")
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", folder.parent.name if usual else folder.name)
    return name.strip(".-")[:40] or "python"


def change_words(arm: Arm) -> str:
    """`commit 3f2a1bc + fix.diff; Python of torch211; OMP_NUM_THREADS=8; --precision fp8`; empty
    for an arm that changes its compiler alone."""
    revision = short_revision(arm)
    files = f"commit {revision}" if arm.revision else revision
    python = f"Python of {name_of_python(arm.python)}" if arm.python else ""
    parts = [files, python, *arm.variables, shlex.join(arm.arguments)]
    return "; ".join(filter(None, parts))


def words_of_arm(spec: ArmTexts, arm: Arm) -> str:
    """As `change_words`, after the backend of an arm whose label does not name it."""
    names = {split_name(text)[0] for text in spec.named_arms}
    is_named = arm.role != "backend" or arm.label.partition(ENVIRONMENT_MARK)[0] in names
    backend = arm.text if is_named and arm.backend else ""
    return "; ".join(filter(None, [backend, change_words(arm)]))


def apply_settings(settings: Settings, arm: Arm, *, on_cuda: bool, draws_freely: bool) -> Arm:
    """The arm with the defaults of `settings`. `draws_freely`: whether a compiler may draw
    random numbers of its own."""
    if settings == "plain":
        return arm
    by_settings: Options = {}
    if arm.backend == "inductor":
        if on_cuda and arm.mode is None:
            by_settings["triton.cudagraphs"] = True
        if draws_freely:
            by_settings["fallback_random"] = False
    return replace(arm, math_attention="reduced", options={**by_settings, **arm.options})


def control(baseline: Arm, number: int) -> Arm:
    """One of an experiment's controls, counted from 1: `control`, `control-2`, `control-3`. It is
    the baseline with other initial weights."""
    label = "control" if number == 1 else f"control-{number}"
    return replace(baseline, label=label, role="control", perturbation_seed=number - 1)


def cold_and_warm(arm: Arm, repeats: int) -> Iterator[tuple[Arm, Arm]]:
    """For each repeat an arm with empty caches, and one with the caches of the first."""
    for repeat in range(1, repeats + 1):
        cold, warm = (
            replace(arm, label=f"{arm.label}-{state}-{repeat}", cache=state, repeat=repeat)
            for state in get_args(CacheState)
        )
        yield cold, warm


def expanded(compared: Sequence[Arm], repeats: int) -> Iterator[tuple[str, Arm]]:
    """All runs, repeat by repeat, each with the label of its backend.

    Repeats are labelled `inductor-1`, `inductor-2`; a single one has no number.
    """
    for repeat in range(1, repeats + 1):
        for arm in compared:
            label = arm.label if repeats == 1 else f"{arm.label}-{repeat}"
            yield arm.label, replace(arm, label=label, repeat=repeat)


def pythons(environments: Iterable[str]) -> dict[str, str]:
    """The path of each environment's Python, by name, from texts such as
    `torch211=/home/me/torch211/bin/python`."""
    return {name: python for name, _, python in (text.partition("=") for text in environments)}


def in_each(environments: Iterable[str], arms: Sequence[Arm]) -> list[Arm]:
    """The arms in every environment: of several, each has a baseline and controls of its own, such
    as `baseline@torch211`. Without environments, the arms as they are."""
    names = list(pythons(environments))
    if not names:
        return [*arms]
    if len(names) == 1:
        return [replace(arm, environment=names[0]) for arm in arms]
    return [
        replace(arm, label=f"{arm.label}{ENVIRONMENT_MARK}{name}", environment=name)
        for name in names
        for arm in arms
    ]
