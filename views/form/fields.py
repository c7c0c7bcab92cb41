"""The widgets of the launch form: one for each field of a specification, by the type it has."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, get_args, get_origin

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from breakeven.runner.commands.options import NUMBERS, Option, spec_options
from breakeven.runner.errors import InvalidSpec, shown
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import Options
from breakeven.runner.specs.options import parse_options, split_at_commas, write_options
from breakeven.runner.specs.workload import SCRIPT_PREFIX
from breakeven.views.shared.inert import Markdown, code, inert


@dataclass(frozen=True)
class Offer:
    """What a field offers, where that is not all that its type allows."""

    choices: Sequence[str] = ()
    typed: bool = False
    """Whether anything else can be typed."""


class Fields:
    """Widgets of one preset, bound to the address, and what was typed in them.

    A widget is known by the path of its field, `training.batch_size`, and in the address by the
    name of its option on the command line: `<preset>.batch_size`. It is left out of the address
    while it has the preset's value: a link or a reload brings back exactly what was typed, one
    preset's fields do not disturb another's, and a new choice of preset starts from that preset.
    """

    def __init__(self, preset: str, start: ExperimentSpec) -> None:
        self._preset = preset
        self._start = start
        self._unfolded = f"{preset} unfolded"
        """In the session's state: the subject that is."""
        self._options = {option.path: option for option in spec_options()}
        self._given: dict[str, Any] = {}
        self._unreadable: list[InvalidSpec] = []
        self._slots: dict[str, DeltaGenerator] = {}
        self._places: dict[str, tuple[str, str]] = {}
        """Label and subject by path."""
        self._subject = ""
        self._derived: dict[str, Any] = {}

    @contextmanager
    def subject(self, title: Markdown, icon: str) -> Iterator[None]:
        """A folded part of the form; unfolded where `unfold` has found something to say."""
        is_open = st.session_state.get(self._unfolded) == title
        with st.expander(title, icon=f":material/{icon}:", expanded=is_open):
            self._subject = title
            yield
            self._subject = ""

    def ask(
        self,
        path: str,
        label: Markdown,
        help: Markdown = "",
        *,
        offer: Offer = Offer(),
        value: Any = None,
        name: str = "",
        empty: str | None = None,
        unless: Markdown = "",
        derived: bool = False,
    ) -> Any:
        """Shows the widget of a field and gives what it holds.

        `help`: a sentence, where the field's own text would not do. `value`: what it holds at first
        instead of the preset's. `name`: a name in the address of its own. `empty`: what it means to
        leave it empty. `unless`: why the field cannot be changed now; it then has its default.
        `derived`: `value` follows from what else was asked for, and is no change by itself.
        """
        option = self._options[path]
        start = option.value_in(self._start) if value is None else value
        reason = f"{unless}. " if unless else ""
        shared: dict[str, Any] = {
            "label": label,
            "help": reason + (help or option.text),
            "disabled": bool(unless),
            "key": f"{self._preset}.{name or option.flag.removeprefix('--').replace('-', '_')}",
            "bind": "query-params",
        }
        follows = self._follow(shared["key"], start) or self._was_filled(shared["key"])
        given: Any
        if get_origin(option.kind) is dict:
            given = self._ask_options(path, start, shared)
        elif option.kind in NUMBERS:
            given = self._ask_number(option, start, follows, shared | {"placeholder": empty})
        else:
            given = _ask_words(option.kind, start, offer, follows, shared | {"placeholder": empty})
        if derived:
            self._derived[path] = value
        self.put(path, option.default if unless else given, label)
        return self._given[path]

    def given(self, path: str) -> Any:
        """What the widget of a field holds."""
        return self._given[path]

    def given_or_start(self, path: str) -> Any:
        """What the widget of a field holds, or the preset has where it was not asked for."""
        return self._given.get(path, self.start_of(path))

    def start_of(self, path: str) -> Any:
        """What the preset has for a field."""
        return self._options[path].value_in(self._start)

    def value_in(self, spec: ExperimentSpec, path: str) -> Any:
        """What a specification has for a field."""
        return self._options[path].value_in(spec)

    def ask_listed(
        self, path: str, label: Markdown, help: Markdown, choices: Sequence[str]
    ) -> None:
        """A list of which one entry is mostly wanted; several are typed with commas between."""
        start = ",".join(self._options[path].value_in(self._start))
        options = [*choices] if start in choices else [start, *choices]
        key = f"{self._preset}.{self._options[path].flag.removeprefix('--')}"
        chosen = st.selectbox(
            label, options, options.index(start), help=help, key=key, bind="query-params",
            accept_new_options=True,
        )  # fmt: skip
        self.put(path, tuple(split_at_commas(chosen or start)), label)

    def ask_line(self, path: str, label: Markdown, help: Markdown, empty: str) -> None:
        """A list of words, typed as on a command line."""
        start = shlex.join(self.start_of(path))
        key = f"{self._preset}.{self._options[path].flag.removeprefix('--').replace('-', '_')}"
        text = st.text_input(
            label, value=start, help=help, key=key, placeholder=empty, bind="query-params"
        )
        try:
            self.put(path, tuple(shlex.split(text)), label)
        except ValueError as error:
            self.put(path, (), label)
            self._unreadable.append(InvalidSpec(path, text, f"cannot be read: {error}"))

    def fill(self, name: str, value: Any) -> None:
        """Has a widget, known by its name in the address, hold a value from the next time it is
        shown: what a click elsewhere in the form asks for."""
        key = f"{self._preset}.{name}"
        st.session_state[key] = value
        st.session_state[f"{key} is filled"] = True

    def typed(self, name: str, otherwise: Any) -> Any:
        """What a widget held when the page was last shown, or else before it was first shown."""
        return st.session_state.get(f"{self._preset}.{name}", otherwise)

    def _was_filled(self, key: str) -> bool:
        return bool(st.session_state.pop(f"{key} is filled", False))

    def put(self, path: str, value: Any, label: str) -> None:
        """Takes a value for a field whose widgets stand above; its errors appear below them."""
        self._given[path] = value
        self._slots[path] = st.empty()
        self._places[path] = (label, self._subject)

    def spec(self) -> ExperimentSpec:
        """What was typed; a field without a widget is as in the preset. Raises `InvalidSpec`."""
        if self._unreadable:
            raise self._unreadable[0]
        values = asdict(self._start)
        for path, value in self._given.items():
            section, _, name = path.rpartition(".")
            (values[section] if section else values)[name] = value
        return ExperimentSpec.from_dict(values)

    def changes(self, spec: ExperimentSpec) -> list[Markdown]:
        """What differs from the preset: `Batch size 16`."""
        told = []
        for path, (label, _subject) in self._places.items():
            option = self._options[path]
            value = option.value_in(spec)
            start = option.value_in(self._start)
            if value not in (start, self._derived.get(path, start)):
                text = "none" if value is None else option.text_of(value)
                told.append(f"{inert(label)} {inert(text.removeprefix(SCRIPT_PREFIX))}")
        return told

    def unfold(self, path: str) -> None:
        """Draws the form anew with the subject of a field unfolded, unless it is."""
        _label, subject = self._places.get(path, ("", ""))
        if subject and st.session_state.get(self._unfolded) != subject:
            st.session_state[self._unfolded] = subject
            st.rerun()

    def show(self, error: InvalidSpec) -> Markdown:
        """Says an error beside its field, and returns a sentence that tells where that is."""
        if error.field not in self._slots:
            return inert(error)
        self._slots[error.field].caption(f":red[:material/error: {inert(error.rule)}]")
        label, subject = self._places[error.field]
        under = f" (under “{inert(subject)}”)" if subject else ""
        value = code(f"{error.field} = {shown(error.value)}")
        return f"**{inert(label)}**{under}, {value}: {inert(error.rule)}"

    def _follow(self, key: str, start: Any) -> bool:
        """Has a widget that nobody changed go along with what it starts from, which a file of data
        may have moved; whether its value is set that way now."""
        kept = f"{key} started from"
        before, now = st.session_state.get(kept), _text_of(start)
        st.session_state[kept] = now
        moved = before not in (None, now) and st.session_state.get(key) == before
        if moved:
            st.session_state[key] = now
        return moved

    def _ask_number(self, option: Option, start: Any, follows: bool, shared: dict[str, Any]) -> Any:
        """A number is typed as text: what the browser's own fields for numbers cannot hold, they
        change without a word (1e20 becomes 1) or keep to themselves (-5)."""
        text = st.text_input(value="" if follows else _text_of(start), **shared).strip()
        if not text and option.default is None:
            return None
        try:
            return NUMBERS[option.kind](text)
        except ValueError as error:
            rule = str(error) if text else "must not be empty"
            self._unreadable.append(InvalidSpec(option.path, text, rule))
            return start

    def _ask_options(self, path: str, start: Options, shared: dict[str, Any]) -> Options:
        text = st.text_input(
            value=write_options(start), placeholder="name=value, name=value", **shared
        )
        try:
            return parse_options(text or "")
        except ValueError as error:
            self._unreadable.append(InvalidSpec(path, text, str(error)))
            return {}


def _text_of(value: Any) -> str:
    return "" if value is None else str(value)


def _ask_words(
    kind: Any,
    start: Any,
    offer: Offer,
    follows: bool,
    shared: dict[str, Any],
) -> Any:
    """The widget of a field that is true or false, text, one of several, or a list.

    `follows`: its value has just been set, so that it must not be set a second time.
    """
    placeholder = shared.pop("placeholder")
    if kind is bool:
        return st.toggle(value=start, **shared)
    if get_origin(kind) is tuple:
        known = offer.choices or get_args(get_args(kind)[0])
        options = [*known, *(entry for entry in start if entry not in known)]
        return tuple(
            st.multiselect(
                options=options,
                default=None if follows else list(start),
                accept_new_options=offer.typed,
                **shared,
            )
        )
    if known := offer.choices or get_args(kind):
        options = [*known] if start in (*known, "") else [start, *known]
        index = options.index(start) if start else None
        chosen = st.selectbox(
            options=options, index=0 if follows else index, accept_new_options=offer.typed,
            placeholder=placeholder, **shared
        )  # fmt: skip
        return chosen or start
    return st.text_input(value=start, placeholder=placeholder, **shared)
