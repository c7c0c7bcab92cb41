"""The widgets of a form, bound to the address, and what was typed wrongly in them."""

from typing import Any

import streamlit as st

from runner.errors import InvalidSpec
from runner.options import parse_options, write_options
from runner.validation import Options


class Fields:
    """Widgets of one preset, with their keys.

    Every widget is bound to the address under `<preset>.<field>` and left out of it while it has
    the preset's value: a link or a reload brings back exactly what was typed, one preset's fields
    do not disturb another's, and a new choice of preset starts from that preset.
    """

    def __init__(self, preset: str) -> None:
        self._preset = preset
        self._errors: list[InvalidSpec] = []

    def bound(self, name: str) -> dict[str, Any]:
        """Arguments that every widget shares."""
        return {"key": f"{self._preset}.{name}", "bind": "query-params"}

    def number(
        self, label: str, name: str, value: int | None, help: str, lowest: int = 1,
        empty: str | None = None,
    ) -> Any:  # fmt: skip
        """A whole number, or None where it is left empty, which `empty` explains."""
        return st.number_input(
            label, value=value, min_value=lowest, step=1, help=help, placeholder=empty,
            **self.bound(name),
        )  # fmt: skip

    def real(self, label: str, name: str, value: float | None, help: str, step: float,
             empty: str | None = None) -> Any:  # fmt: skip
        """A number with a fraction, or None where it is left empty."""
        return st.number_input(
            label, value=value, step=step, format="%g", help=help, placeholder=empty,
            **self.bound(name),
        )  # fmt: skip

    def text(self, label: str, name: str, value: str, help: str) -> str:
        return st.text_input(label, value, help=help, **self.bound(name)) or ""

    def switch(self, label: str, name: str, value: bool, help: str) -> bool:
        return bool(st.toggle(label, value, help=help, **self.bound(name)))

    def choice(
        self, label: str, name: str, value: str, options: list[str], help: str, typed: bool = False
    ) -> str:
        """One of `options`, or with `typed` anything that is typed."""
        options = options if value in options else [value, *options]
        chosen = st.selectbox(
            label, options, options.index(value), help=help, accept_new_options=typed,
            **self.bound(name),
        )  # fmt: skip
        return str(chosen or value)

    def choices(
        self, label: str, name: str, value: list[str], options: list[str], help: str
    ) -> list[str]:
        """Any number of `options`, or of what is typed."""
        missing = [entry for entry in value if entry not in options]
        return list(st.multiselect(
            label, [*options, *missing], value, help=help, accept_new_options=True,
            **self.bound(name),
        ))  # fmt: skip

    def options(self, label: str, name: str, value: Options, help: str) -> Options:
        """Keyword arguments, written `name=value, name=value`; an error stands beneath them."""
        text = st.text_input(
            label, write_options(value), help=help, placeholder="name=value, name=value",
            **self.bound(name),
        )  # fmt: skip
        try:
            return parse_options(text or "")
        except ValueError as error:
            st.caption(f":red[:material/error: {error}]")
            self._errors.append(InvalidSpec(f"training.{name}", text, str(error)))
            return {}

    def raise_errors(self) -> None:
        """Raises `InvalidSpec` if a field could not be read, now that all of them are shown."""
        if self._errors:
            raise self._errors[0]
