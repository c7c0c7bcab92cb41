"""Figures that are written down at first, and made plotly's own once somebody asks for more.

plotly checks each property against its description whenever one is set, twice for a trace, and
copies all that was there before: half of the time that drawing a page's figures takes. What a page
sends is what was written down. Whoever asks for traces or axes (pictures, files, tests) gets them
from plotly, which then checks everything.
"""

import base64
import re
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Self

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from _plotly_utils.basevalidators import copy_to_readonly_numpy_array

WITH_LINES = {"error_x", "error_y", "paper_bgcolor", "plot_bgcolor"}
"""Properties with a line in their names; in others it stands between a property and one inside."""
PACKED = {"int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
          "float32": "f4", "float64": "f8"}  # fmt: skip
"""How plotly.js calls the numbers of an array that is sent packed."""
PLACED = {"row", "col", "rows", "cols", "secondary_y"}
"""What says where in a grid of figures something stands: that is left to plotly."""
Told = dict[str, Any]


class Figure(go.Figure):  # type: ignore[misc]
    """As `go.Figure`, which it is in all that is asked of it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._traces: list[Told] | None = None
        self._layouts: Told = {}
        self._is_being_checked = False
        if args or options:
            super().__init__(*args, **options)
        else:
            self._traces = []

    def __getattr__(self, name: str) -> Any:
        """Of what plotly keeps of a figure nothing is there until it is asked for."""
        with _one_at_a_time:
            if self.__dict__.get("_traces") is not None and not self._is_being_checked:
                self._check()
            if name not in self.__dict__:
                raise AttributeError(name)
        return self.__dict__[name]

    @property
    def is_written(self) -> bool:
        """Whether nobody asked for more yet."""
        return self._traces is not None

    def add_scatter(self, **told: Any) -> Self:
        return self._add("scatter", told)

    def add_bar(self, **told: Any) -> Self:
        return self._add("bar", told)

    def add_box(self, **told: Any) -> Self:
        return self._add("box", told)

    def add_shape(self, *args: Any, **told: Any) -> Self:
        return self._append("shapes", told, *args) or super().add_shape(*args, **told)

    def add_annotation(self, *args: Any, **told: Any) -> Self:
        return self._append("annotations", told, *args) or super().add_annotation(*args, **told)

    def add_vline(self, x: Any, **told: Any) -> Self:
        across = {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "xref": "x",
                  "yref": "y domain"}  # fmt: skip
        return self._append("shapes", told | across) or super().add_vline(x, **told)

    def add_hline(self, y: Any, **told: Any) -> Self:
        across = {"type": "line", "x0": 0, "x1": 1, "y0": y, "y1": y, "xref": "x domain",
                  "yref": "y"}  # fmt: skip
        return self._append("shapes", told | across) or super().add_hline(y, **told)

    def update_layout(self, *args: Any, **told: Any) -> Self:
        whole = {**args[0], **told} if args and isinstance(args[0], Mapping) else told
        if len(args) > 1 or not self._is_written(whole):
            return super().update_layout(*args, **told)  # type: ignore[no-any-return]
        self._layouts = over(self._layouts, nested(whole))
        return self

    def update_xaxes(self, *args: Any, **told: Any) -> Self:
        if args or not self._is_written(told):
            return super().update_xaxes(*args, **told)  # type: ignore[no-any-return]
        return self._update_axes("xaxis", told)

    def update_yaxes(self, *args: Any, **told: Any) -> Self:
        if args or not self._is_written(told):
            return super().update_yaxes(*args, **told)  # type: ignore[no-any-return]
        return self._update_axes("yaxis", told)

    def to_dict(self) -> dict[str, Any]:
        if self._traces is None:
            return super().to_dict()  # type: ignore[no-any-return]
        return {
            "data": [_sent(one) for one in self._traces],
            "layout": {"template": _template(), **_sent(self._layouts)},
        }

    def _add(self, kind: str, told: Told) -> Self:
        if not self._is_written(told, may_lack=True):
            add = getattr(super(), f"add_{kind}")
            return add(**told)  # type: ignore[no-any-return]
        assert self._traces is not None
        self._traces.append({**nested(told), "type": kind})
        return self

    def _append(self, name: str, told: Told, *args: Any) -> Self | None:
        """None if plotly has to do it: a line with words, or in a grid of figures."""
        if args or any(one.startswith("annotation") for one in told):
            self._check()
        if not self._is_written(told):
            return None
        self._layouts = {**self._layouts, name: [*self._layouts.get(name, ()), nested(told)]}
        return self

    def _update_axes(self, kind: str, told: Told) -> Self:
        names = {kind, *(one for one in self._layouts if re.fullmatch(rf"{kind}\d+", one))}
        self._layouts = over(self._layouts, {name: nested(told) for name in names})
        return self

    def _is_written(self, told: Mapping[str, Any], *, may_lack: bool = False) -> bool:
        """Whether this may be written down. Of a trace None is what is not told; elsewhere it takes
        something back, which is left to plotly, as is a place in a grid; then all is plotly's."""
        is_plain = not PLACED & told.keys() and (may_lack or None not in _values(told))
        if self._traces is not None and not is_plain:
            self._check()
        return self._traces is not None

    def _check(self) -> None:
        """Has plotly make of it what it is; raises what plotly does of what is no figure."""
        with _one_at_a_time:
            if self._traces is None or self._is_being_checked:
                return
            self._is_being_checked = True
            try:
                super().__init__(data=self._traces, layout=self._layouts)
            finally:
                self._is_being_checked = False
            self._traces = None  # At last: until then others get what was written down.


_one_at_a_time = threading.RLock()


def traces_of(figure: go.Figure) -> list[Told]:
    """What was told of each line, bar or box of a figure."""
    if isinstance(figure, Figure) and figure.is_written:
        return list(figure._traces or ())
    return [one.to_plotly_json() for one in figure.data]


def nested(told: Mapping[str, Any]) -> Told:
    """`title_text="x"` as `title={"text": "x"}`, at every depth, without what is None."""
    found: Told = {}
    for name, value in told.items():
        if value is None:
            continue
        first, _, rest = (name, "", "") if name in WITH_LINES else name.partition("_")
        value = {rest: value} if rest else value
        inside = nested(value) if isinstance(value, Mapping) else value
        found = over(found, {first: inside})
    return found


def over(old: Mapping[str, Any], new: Mapping[str, Any]) -> Told:
    """What is old under what is new, at every depth."""
    both = {name: over(old[name], value) for name, value in new.items()
            if isinstance(value, Mapping) and isinstance(old.get(name), Mapping)}  # fmt: skip
    return {**old, **new, **both}


def _values(told: Mapping[str, Any]) -> Iterator[Any]:
    """Whether each is None; at every depth."""
    for value in told.values():
        if isinstance(value, Mapping):
            yield from _values(value)
        elif value is None:
            yield None


@cache
def _template() -> Told:
    """What plotly lays under every figure."""
    found: Told = go.Figure().to_dict()["layout"]["template"]
    return found


def _sent(value: Any, name: str = "") -> Any:
    """As plotly.js reads it: arrays of numbers packed, but for the ends of an axis."""
    if isinstance(value, dict):
        return {key: _sent(one, key) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_sent(one) for one in value] if name in ("shapes", "annotations") else value
    if not isinstance(value, np.ndarray | pd.Series | pd.Index):
        return value
    array = np.asarray(value) if getattr(value.dtype, "kind", "") in "iuf" else None
    if array is None or not array.size or name == "range":
        return copy_to_readonly_numpy_array(value)
    return _packed(array)


def _packed(array: np.ndarray[Any, Any]) -> Any:
    """With whole numbers as short as they may be."""
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        least, most, sign = int(array.min()), int(array.max()), array.dtype.kind
        kinds = [np.dtype(f"{sign}{size}") for size in (1, 2, 4)]
        fitting = (one for one in kinds
                   if np.iinfo(one).min <= least and most <= np.iinfo(one).max)  # fmt: skip
        array = array.astype(next(fitting, array.dtype))
    if str(array.dtype) not in PACKED:
        return array
    packed = base64.b64encode(array.tobytes()).decode("ascii")
    told = {"dtype": PACKED[str(array.dtype)], "bdata": packed}
    return told if array.ndim == 1 else told | {"shape": str(array.shape)[1:-1]}
