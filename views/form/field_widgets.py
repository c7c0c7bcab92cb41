"""The widgets of the launch form: one for each field of a specification, according to its type."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.fields import Field, fields_of
from breakeven.runner.specs.workload import SCRIPT_PREFIX
from breakeven.views.access.errors import error_words
from breakeven.views.shared.inert import Markdown, inert

STARTS = "values that fields started from"
"""Key in the session state."""
MARK: Markdown = ":red[:material/error: This value cannot run]"


@dataclass(frozen=True)
class Offer:
    """The choices of a field, if they differ from all that its type allows."""

    choices: Sequence[str] = ()
    typed: bool = False
    """Whether other values can be typed."""
    empty: str = ""
    """Text in the empty field."""


def fill(widget: str, value: Any) -> None:
    """Sets the value that a widget has when it is next shown."""
    st.session_state[widget] = value
    st.session_state[f"{widget} is filled"] = True


class Fields:
    """Widgets of one preset, bound to the address, and their values.

    A widget is identified by the path of its field, `training.batch_size`, and in the address by
    the name of its command-line option: `<preset>.batch_size`. The address omits it while it has
    the preset's value: a link or a reload restores exactly what was typed, the fields of one preset
    do not affect another's, and a new choice of preset starts from that preset.
    """

    def __init__(self, preset: str, start: ExperimentSpec) -> None:
        self._preset = preset
        self._start = start
        self._unfolded = f"{preset} unfolded"
        """Key in the session state: the subject whose tab is open."""
        self._fields = {field.path: field for field in fields_of(ExperimentSpec)}
        self._given: dict[str, Any] = {}
        self._unreadable: list[InvalidSpec] = []
        self._slots: dict[str, DeltaGenerator] = {}
        self._places: dict[str, tuple[str, str]] = {}
        """Label and subject by path."""
        self._subject = ""
        self._tabs: dict[str, DeltaGenerator] = {}
        self._derived: dict[str, Any] = {}

    @contextmanager
    def drawer(self, subjects: Sequence[Markdown]) -> Iterator[None]:
        """The folded part of the form, a tab for each subject; open if `unfold` or a search for a
        field leads into it. `subject` fills the tabs."""
        opened = st.session_state.get(self._unfolded)
        with st.expander("All other settings", icon=":material/tune:", expanded=bool(opened)):
            search = st.empty()
            first = opened if opened in subjects else subjects[0]
            # A new key each time, because existing tabs keep the reader's choice.
            tabs = st.tabs(subjects, default=first, key=f"{self._preset} subjects, {first} first")
            self._tabs = dict(zip(subjects, tabs, strict=True))
            yield
            self._ask_search(search)

    @contextmanager
    def subject(self, title: Markdown) -> Iterator[None]:
        """A tab of the drawer."""
        with self._tabs[title]:
            self._subject = title
            yield
            self._subject = ""

    def _ask_search(self, place: DeltaGenerator) -> None:
        """Finds a field in the drawer by its label, option or subject, and opens its tab."""
        paths = {
            f"{label} · {subject} · {self._fields[path].usage}": path
            for path, (label, subject) in self._places.items()
            if subject
        }
        key = f"{self._preset} search"

        def open_field() -> None:
            if chosen := st.session_state[key]:
                st.session_state[self._unfolded] = self._places[paths[chosen]][1]

        place.selectbox(
            "Find a setting",
            list(paths),
            index=None,
            key=key,
            on_change=open_field,
            placeholder="Find a setting: type part of its name",
            label_visibility="collapsed",
        )

    def ask(
        self,
        path: str,
        help: Markdown = "",
        *,
        label: Markdown = "",
        note: Markdown = "",
        offer: Offer = Offer(),
        value: Any = None,
        name: str = "",
        unless: Markdown = "",
        derived: bool = False,
    ) -> Any:
        """Shows the widget of a field and returns its value.  `help` and `label` replace the
        field's own texts; `note` follows the help. `value` is the first value instead of the
        preset's. `name` is another name in the address. `unless` is the reason why the field cannot
        change now; the field then has its default. `derived`: `value` follows from other fields,
        and does not count as a change.
        """
        field = self._fields[path]
        start = field.value_in(self._start) if value is None else value
        reason = f"{unless}. " if unless else ""
        label = label or field.label
        shared: dict[str, Any] = {
            "label": label,
            "help": reason + (help or field.prompt.help) + note,
            "disabled": bool(unless),
            "key": self._key(field, name),
            "bind": "query-params",
        }
        was_filled = st.session_state.pop(f"{shared['key']} is filled", False)
        follows = self._follow(shared["key"], start) or was_filled
        given: Any
        if field.is_options or field.prompt.words or field.kind in (int, float):
            given = self._ask_text(field, start, follows, shared)
        else:
            given = _ask_words(field, start, offer, follows, shared)
        if derived:
            self._derived[path] = value
        self.put(path, field.default if unless else given, label)
        return self._given[path]

    def ask_all(self, *paths: str) -> None:
        """Shows the widgets of several fields, one below the other."""
        for path in paths:
            self.ask(path)

    def given(self, path: str) -> Any:
        """The value of a field's widget, or the preset's value if the form does not show the
        field."""
        return self._given.get(path, self.start_of(path))

    def start_of(self, path: str) -> Any:
        """The preset's value of a field."""
        return self._fields[path].value_in(self._start)

    def value_in(self, spec: ExperimentSpec, path: str) -> Any:
        """A specification's value of a field."""
        return self._fields[path].value_in(spec)

    def ask_listed(self, path: str, choices: Sequence[str]) -> None:
        """A list that usually has one entry; several are typed with commas between them."""
        field = self._fields[path]
        start = field.written(field.value_in(self._start))
        options = [*choices] if start in choices else [start, *choices]
        chosen = st.selectbox(
            inert(field.label),
            options,
            options.index(start),
            help=field.prompt.help,
            key=self._key(field),
            bind="query-params",
            accept_new_options=True,
            filter_mode="contains",
        )
        self.put(path, field.read(chosen or start), field.label)

    def choose(self, name: str, label: str, options: Sequence[str], first: str) -> str:
        """Shows a choice, known by its name in the address, that is only a part of a field."""
        chosen = st.segmented_control(
            inert(label),
            options,
            default=first,
            required=True,
            format_func=inert,
            key=self.widget(name),
            bind="query-params",
        )
        return chosen or first

    def text(self, name: str, label: str, start: str, empty: str) -> str:
        """Shows a text, known by its name in the address, that is only a part of a field."""
        text: str = st.text_input(
            inert(label),
            start,
            placeholder=empty,
            label_visibility="collapsed",
            key=self.widget(name),
            bind="query-params",
        )
        return text.strip()

    def _key(self, field: Field, name: str = "") -> str:
        return self.widget(name or field.key)

    def fill(self, name: str, value: Any) -> None:
        """Sets the value that a widget, known by its name in the address, has when it is next
        shown: for clicks elsewhere in the form."""
        fill(self.widget(name), value)

    def widget(self, name: str) -> str:
        """The key of a widget, which is known by this name in the address."""
        return f"{self._preset}.{name}"

    def typed(self, name: str, otherwise: Any) -> Any:
        """A widget's value when the page was last shown, or that of the address, else `otherwise`,
        if it was not shown yet."""
        key = self.widget(name)
        return st.session_state.get(key, st.query_params.get(key, otherwise))

    def put(self, path: str, value: Any, label: str) -> None:
        """Stores the value of a field whose widgets are above; its errors appear below them."""
        self._given[path] = value
        self._slots[path] = st.empty()
        self._places[path] = (label, self._subject)

    def refuse(self, error: InvalidSpec) -> None:
        """Makes `spec` raise the error of what was typed."""
        self._unreadable.append(error)

    def spec(self) -> ExperimentSpec:
        """The form's specification; fields without a widget are as in the preset. Raises
        `InvalidSpec`."""
        if self._unreadable:
            raise self._unreadable[0]
        values = asdict(self._start)
        for path, value in self._given.items():
            section, _, name = path.rpartition(".")
            (values[section] if section else values)[name] = value
        return ExperimentSpec.from_dict(values)

    def changes(self, spec: ExperimentSpec) -> list[Markdown]:
        """Differences from the preset: `Batch size 16`."""
        changes = []
        for path, (label, _subject) in self._places.items():
            field = self._fields[path]
            value = field.value_in(spec)
            start = field.value_in(self._start)
            if value not in (start, self._derived.get(path, start)):
                text = field.written(value)
                changes.append(f"{inert(label)} {inert(text.removeprefix(SCRIPT_PREFIX))}")
        return changes

    def unfold(self, path: str) -> None:
        """Redraws the form with the tab of a field's subject open, unless it is open already."""
        _label, subject = self._places.get(path, ("", ""))
        if subject and st.session_state.get(self._unfolded) != subject:
            st.session_state[self._unfolded] = subject
            st.rerun()

    def show(self, error: InvalidSpec) -> Markdown:
        """Marks the field at fault, and returns the sentence of the error with the field's place.
        The sentence stands once, where it is seen even if the field is folded away."""
        if error.field not in self._slots:
            return error_words(error)
        self._slots[error.field].caption(MARK)
        label, subject = self._places[error.field]
        under = f" (under “{inert(subject)}”)" if subject else ""
        return error_words(error, inert(label), under)

    def _follow(self, key: str, start: Any) -> bool:
        """Updates a widget that the user did not change when its start value changes, for example
        by a data file. Returns whether the widget now has that start value."""
        # One entry for all: Streamlit looks through all entries for each text field.
        starts = st.session_state.setdefault(STARTS, {})
        before, now = starts.get(key), "" if start is None else str(start)
        starts[key] = now
        moved = before not in (None, now) and st.session_state.get(key) == before
        if moved:
            st.session_state[key] = now
        return moved

    def _ask_text(self, field: Field, start: Any, follows: bool, shared: dict[str, Any]) -> Any:
        """Asks for numbers, keyword arguments and words as text, because the browser's number
        fields silently change values that they cannot hold (1e20 becomes 1) or do not report them
        (-5)."""
        empty = "name=value, name=value" if field.is_options else field.prompt.empty
        is_number = field.kind in (int, float)
        may_be_empty = is_number and bool(empty)
        is_empty = start is None or follows or (may_be_empty and start == field.default)
        written = "" if is_empty else field.written(start)
        text = (st.text_input(value=written, placeholder=empty or None, **shared) or "").strip()
        if not text and may_be_empty:
            return field.default
        try:
            return field.read(text)
        except ValueError as error:
            rule = "must not be empty" if is_number and not text else str(error)
            self._unreadable.append(InvalidSpec(field.path, text, rule))
            return start if is_number else field.default


def _ask_words(
    field: Field, start: Any, offer: Offer, follows: bool, shared: dict[str, Any]
) -> Any:
    """The widget of a field that is a boolean, text, a choice or a list.

    `follows`: its value has just been set, and must not be set a second time.
    """
    if field.kind is bool:
        return st.toggle(value=start, **shared)
    known = offer.choices or field.choices
    if field.is_list:
        options = [*known, *(entry for entry in start if entry not in known)]
        return tuple(
            st.multiselect(
                options=options,
                default=None if follows else list(start),
                accept_new_options=offer.typed,
                filter_mode="prefix" if offer.typed else "fuzzy",  # Enter adds what was typed
                select_all=False,
                **shared,
            )
        )
    empty = offer.empty or field.prompt.empty or None
    if known:
        options = [*known] if start in (*known, "") else [start, *known]
        index = options.index(start) if start else None
        chosen = st.selectbox(
            options=options,
            index=0 if follows else index,
            accept_new_options=offer.typed,
            filter_mode="contains",
            placeholder=empty,
            **shared,
        )
        return chosen or start
    return st.text_input(value=start, placeholder=empty, **shared)
