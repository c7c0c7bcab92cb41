"""The table of experiments: its columns and selected rows, and the filter, whose values the address
keeps. Intervals are small pictures, whose addresses contain the picture."""

import hashlib
import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import pandas as pd
import streamlit as st

from breakeven.runner.arguments.filters import (
    COMPUTED,
    FACETS,
    SORTS,
    Archived,
    Filter,
    filter_arguments,
    parse_terms,
)
from breakeven.runner.arguments.filters import NUMBERS as SEARCHED
from breakeven.runner.protocol.states import state_words
from breakeven.runner.texts import capital
from breakeven.storage.library.catalog import facet_counts
from breakeven.storage.numbers.formats import format_verdict
from breakeven.storage.numbers.metrics import NUMBERS
from breakeven.views.shared import words
from breakeven.views.shared.address import bound, value
from breakeven.views.shared.definition_links import explained
from breakeven.views.shared.inert import Markdown, inert, plain

MAX_ROWS = 1_000
"""Most rows that a browser gets; a filter finds the others."""
MAX_HEIGHT = 560
"""Pixels; a longer table scrolls."""
KEY = "experiments-table"
"""Key of the card that holds the table; opening.js looks for it."""
PENDING = "comparing …"
PICKED = "experiments picked"
"""Key in the session state: the ids of the selected rows."""
Config = Callable[..., Any]
_open_by_enter = st.components.v2.component(
    "open_by_enter", js=Path(__file__).with_name("opening.js").read_text()
)


@dataclass(frozen=True)
class Column:
    """One column: its title, and its value for a row of the catalog."""

    title: str
    value: Callable[[dict[str, Any]], Any]
    number: str = ""
    """Name in NUMBERS of the number that the column shows."""
    config: Config = st.column_config.TextColumn
    settings: tuple[tuple[str, Any], ...] = ()
    is_number: bool = False


def _text(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda row: plain(row[name]) if isinstance(row[name], str) else row[name]


def _verdict(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda row: row[name] and format_verdict(row[name])


def _number(
    title: str,
    name: str,
    form: str,
    number: str = "",
    factor: float = 1.0,
    width: int | None = None,
) -> Column:
    def value(row: dict[str, Any]) -> float | None:
        content = row[name]
        return None if content is None or not math.isfinite(content) else content * factor

    settings = (("format", form), *([("width", width)] if width else []))
    return Column(title, value, number, st.column_config.NumberColumn, settings, True)


VERDICT_COLORS = {"faster": "green", "slower": "red", "same": "gray", "unsure": "orange"}


COLUMNS = {
    "name": Column(
        "Name",
        _text("name"),
        config=st.column_config.ButtonColumn,
        settings=(("pinned", True), ("width", 250), ("type", "tertiary"), ("alignment", "left")),
    ),
    "state": Column("State", lambda row: words.STATES[row["state"]][0], settings=(("width", 90),)),
    "answer": Column(
        "Answer",
        lambda row: capital(plain(row["answer"] or "")) or None,
        settings=(("width", 200),),
    ),
    "best": Column(
        "Best arm",
        lambda row: _text("best")(row) if row["known"] else PENDING,
        settings=(("width", 190),),
    ),
    "speedup": _number("Speedup", "speedup", "%.2fx", "speedup", width=70),
    "interval": Column(
        "Interval", lambda row: None, "speedup_low", st.column_config.ImageColumn, (("width", 130),)
    ),
    "verdict": Column(
        "Verdict",
        lambda row: [_verdict("verdict")(row)] if row["verdict"] else [],
        "speed_verdict",
        st.column_config.MultiselectColumn,
        (
            ("width", 95),
            ("options", [format_verdict(verdict) for verdict in VERDICT_COLORS]),
            ("color", list(VERDICT_COLORS.values())),
        ),
    ),
    "parity": Column("Parity", _verdict("parity"), "parity", settings=(("width", 112),)),
    "compile": _number("Compile latency", "compile_seconds", "%.1f s", "compile_seconds"),
    "steps": _number(
        "Break-even", "break_even_steps", "%,.0f steps", "break_even_steps", width=105
    ),
    "pays": Column("Pays off after", _verdict("break_even_verdict"), "break_even_verdict"),
    "losses": Column(
        "Loss", _text("losses"), "loss", st.column_config.LineChartColumn, (("width", 110),)
    ),
    "model": Column("Model", _text("model"), settings=(("width", 130),)),
    "data": Column("Data", _text("data"), settings=(("width", 110),)),
    "task": Column("Task", lambda row: (row["task"] or "").replace("_", " ")),
    "scenario": Column("Scenario", _text("scenario"), settings=(("width", 90),)),
    "device": Column("Device", _text("device"), settings=(("width", 150),)),
    "host": Column("Machine", _text("host")),
    "torch": Column("torch", _text("torch"), "facts", settings=(("width", 80),)),
    "transformers": Column("transformers", _text("transformers"), "facts"),
    "precision": Column("Precision", _text("precision"), settings=(("width", 80),)),
    "batch": _number("Batch size", "batch", "%d", "batch_size"),
    "backends": Column("Backends", lambda row: ", ".join(row["backends"] or ())),
    "when": Column(
        "When",
        _text("submitted"),
        config=st.column_config.DatetimeColumn,
        settings=(("format", "D MMM YYYY, HH:mm"), ("width", 135)),
    ),
    "duration": _number("Duration", "duration", "%.1f min", "elapsed_seconds", 1 / 60),
    "tags": Column("Tags", lambda row: list(row["tags"]), config=st.column_config.ListColumn),
    "warnings": _number("Warnings", "warnings", "%d", "warnings"),
    "disk": _number("On disk", "total_bytes", "%.1f MB", "disk_bytes", 1e-6),
    "checkpoints": _number("Checkpoints", "checkpoint_bytes", "%.1f MB", "disk_bytes", 1e-6),
    "artifacts": _number("Other artifacts", "artifact_bytes", "%.1f MB", "disk_bytes", 1e-6),
    "notes": Column("Notes", _text("notes")),
    "suite": Column("Suite run", _text("suite_run")),
    "origin": Column("Origin", _text("origin"), settings=(("width", 90),)),
    "id": Column("Id", _text("experiment_id")),
}
USUAL = (
    "name",
    "when",
    "best",
    "verdict",
    "speedup",
    "interval",
    "steps",
    "parity",
    "answer",
    "state",
    "compile",
    "losses",
    "device",
    "torch",
    "tags",
)


def ask_columns() -> list[str]:
    """The columns that the reader chose, in the order of the choice."""
    names = list(COLUMNS)
    chosen = st.multiselect(
        "Columns",
        names,
        **bound("columns", list(USUAL), names),
        select_all=False,
        format_func=lambda name: COLUMNS[name].title,
    )
    return chosen or list(USUAL)


def show(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Draws the rows of a catalog; returns the ids of selected rows. A click on a name, or Enter on
    its row, opens the experiment."""
    shown = frame.head(MAX_ROWS)
    ids = [str(experiment_id or "") for experiment_id in shown["experiment_id"]]
    # A selection consists of row positions, so other rows need another key.
    key = "experiments-" + hashlib.sha256("\n".join([*ids, *columns]).encode()).hexdigest()[:12]
    before = set(st.session_state.get(PICKED, ()))
    opening = f"{key}-open"
    places = [
        place
        for place, experiment_id in enumerate(ids)
        if experiment_id and experiment_id in before
    ]
    picked = st.dataframe(
        written(shown, columns),
        key=key,
        hide_index=True,
        on_select="rerun",
        selection_mode="multi-row",
        selection_default={"selection": {"rows": places}},
        column_config={name: _config(name, opening) for name in columns},
        placeholder="",
        height=min(38 + 35 * max(1, len(shown)), MAX_HEIGHT),
    )
    _open_by_enter()
    if (click := st.session_state.get(opening)) and ids[click["row"]]:
        st.switch_page("views/experiment.py", query_params={"experiment": ids[click["row"]]})
    rows = [row for row in picked["selection"]["rows"] if row < len(ids)]
    picked_ids = [ids[row] for row in rows if ids[row]]
    st.session_state[PICKED] = picked_ids
    return picked_ids


def explanation(columns: Sequence[str]) -> Markdown:
    """Explains the numbers of these columns, each with the link to its definition."""
    return explained(COLUMNS[name].number for name in columns if COLUMNS[name].number)


def written(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The cells for the browser."""
    rows = frame.to_dict("records")
    cells = {name: [COLUMNS[name].value(row) for row in rows] for name in columns}
    if "interval" in cells:
        widest = reach(row[end] for row in rows for end in ("speedup_low", "speedup_high"))
        cells["interval"] = [
            interval(
                row["speedup_low"], row["speedup"], row["speedup_high"], row["verdict"], widest
            )
            for row in rows
        ]
    table = pd.DataFrame(cells, dtype=object)
    for name in columns:
        if COLUMNS[name].is_number:
            table[name] = table[name].astype(float)
    if "when" in cells:
        table["when"] = pd.to_datetime(table["when"], utc=True)
    return table


def _config(name: str, opening: str) -> Any:
    """`opening`: key in the session state for the name that was clicked."""
    column = COLUMNS[name]
    help = NUMBERS[column.number].definition if column.number else None
    if name == "interval":
        help = "The speedup's 95 % interval; the dashed line is 1, as fast as the baseline."
    settings = dict(column.settings)
    if name == "name":
        settings["key"] = opening
    if name == "when":
        settings["timezone"] = words.timezone()
    return column.config(column.title, help=help, **settings)


WIDTH, HEIGHT, EDGE = 120, 24, 7
COLORS = {"faster": "#0f9d74", "slower": "#d9485a"}
OTHER_COLOR = "#8a919c"
"""For verdicts without a colour; all colours are visible on white and on black."""
PLAIN = " =:/.;-,()"
LEAST_REACH = math.log(1.25)
"""Smallest range that a picture shows on each side of 1, even if all intervals are closer to 1."""


def reach(ends: Iterable[float | None]) -> float:
    """Range from 1, as a logarithm, that pictures side by side need to contain all intervals."""
    logs = [abs(math.log(end)) for end in ends if end is not None and 0 < end < math.inf]
    return max([LEAST_REACH, *logs])


def interval(
    low: float | None, middle: float | None, high: float | None, verdict: str | None, reach: float
) -> str | None:
    """A bar from `low` to `high` on a logarithmic axis around 1; None without an interval."""
    if low is None or middle is None or high is None or min(low, middle, high) <= 0:
        return None
    left, dot, right = (_place(math.log(value), reach) for value in (low, middle, high))
    color = COLORS.get(verdict or "", OTHER_COLOR)
    width = max(2.0, right - left)
    center = WIDTH / 2
    drawn = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">'
        f'<path d="M{center} 2V22" stroke="{OTHER_COLOR}" stroke-dasharray="2 2"/>'
        f'<rect x="{left:.1f}" y="8" width="{width:.1f}" height="8" rx="3" fill="{color}" '
        f'fill-opacity=".5"/><circle cx="{dot:.1f}" cy="12" r="4" fill="{color}"/></svg>'
    )
    return f"data:image/svg+xml,{quote(drawn, safe=PLAIN)}"


def _place(log: float, reach: float) -> float:
    half = WIDTH / 2 - EDGE
    return WIDTH / 2 + half * max(-1.0, min(1.0, log / reach))


TITLES = {
    "state": "State",
    "scenario": "Scenario",
    "task": "Task",
    "model": "Model",
    "data": "Data",
    "device": "Device",
    "torch": "torch",
    "transformers": "transformers",
    "precision": "Precision",
    "batch": "Batch size",
    "backend": "Backend",
    "environment": "Environment",
    "verdict": "Speed of the best backend",
    "parity": "Parity",
    "tag": "Tag",
    "origin": "Origin",
}
SORT_TITLES = {
    "when": "When",
    "name": "Name",
    "state": "State",
    "model": "Model",
    "device": "Device",
    "torch": "torch",
    "speedup": "Speedup",
    "compile": "Compile latency",
    "steps": "Break-even",
    "duration": "Duration",
    "warnings": "Warnings",
    "mb": "Size on disk",
}
ARCHIVED_TITLES: dict[Archived, str] = {
    "no": "Not archived",
    "yes": "With archived",
    "only": "Archived only",
}

ORDERS = [sign + name for name in SORTS for sign in ("-", "")]
MAX_SEARCH = 500
SEARCH_HELP = (
    "In the search field: words that must all be found in name, model, data, device, versions, "
    'backends, tags and notes; `-word` for one that must not; `"two words"`; and numbers: '
    f"{', '.join(f'`{name}>1`' for name in SEARCHED)}."
)


def ask_filter(frame: pd.DataFrame) -> Filter:
    """The search field and the popover of facets; returns the filter."""
    field = st.container(key="search")
    text = field.text_input(
        "Search",
        **bound("q", ""),
        label_visibility="collapsed",
        icon=":material/search:",
        placeholder="Search: bert h100 -old speedup>1.2",
    )
    with field:  # Beside the field, an error would leave no room for its text.
        text = _readable(text)
    facets = {name: tuple(values) for name in FACETS if (values := value(name, []))}
    ways: Any = get_args(Archived)
    wanted = Filter(
        text=text,
        facets=facets,
        archived=_one_of(ways, "archived", "no"),
        sort=str(_one_of(ORDERS, "sort", "-when")),
    )
    chosen = sum(bool(values) for values in wanted.facets.values())
    many = f" ({chosen})" if chosen else ""
    with st.popover(f"Filters{many}", icon=":material/filter_alt:", width="content"):
        counts = facet_counts(frame, wanted)
        st.caption(SEARCH_HELP)
        columns = st.columns(3)
        for number, (name, title) in enumerate(TITLES.items()):
            with columns[number % 3]:
                _ask_facet(name, title, counts[name], wanted.facets.get(name, ()))
        with columns[len(TITLES) % 3]:
            st.selectbox(
                "Archived",
                ways,
                **bound("archived", "no", ways),
                format_func=ARCHIVED_TITLES.__getitem__,
            )
    return wanted


def ask_sort() -> None:
    """Asks for the order, which the address keeps; a click on a column's title sorts, too."""
    st.selectbox("Sorted by", ORDERS, **bound("sort", "-when", ORDERS), format_func=_sort_title)


def facet_title(name: str) -> Markdown:
    """The title of a facet or of the host."""
    return "Host" if name == "host" else TITLES[name]


def list_command(wanted: Filter) -> str:
    """The command that prints the same list."""
    return shlex.join(["breakeven", "list", *filter_arguments(wanted)])


def _readable(text: str) -> str:
    """The text, or nothing if it is invalid; then shows the error."""
    try:
        if len(text) > MAX_SEARCH:  # The cost is words times experiments.
            raise ValueError(f"a search has at most {MAX_SEARCH} characters")
        parse_terms(text)
    except ValueError as error:
        st.warning(f"{inert(error)}, so the search is ignored.", icon=":material/search_off:")
        return ""
    return text


def _ask_facet(name: str, title: Markdown, counts: Counter[str], chosen: tuple[str, ...]) -> None:
    options = [option for option, _ in counts.most_common()]
    options += [option for option in chosen if option not in counts]

    def written(option: str) -> str:
        word = format_verdict(option) if name in COMPUTED else state_words(option)
        return f"{word} ({counts[option]})"

    st.multiselect(
        title,
        options,
        **bound(name, [], options),
        format_func=written,
        placeholder="any",
        select_all=False,
    )


def _one_of(options: Sequence[str], name: str, default: str) -> Any:
    """The value in the address, if it is one of the options."""
    given = value(name, default)
    return given if given in options else default


def _sort_title(sort: str) -> str:
    name = SORT_TITLES[sort.removeprefix("-")]
    return f"{name}, largest first" if sort.startswith("-") else name
