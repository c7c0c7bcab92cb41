"""The table of the form in which people name the arms of a script, below its baseline."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import streamlit as st

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.revisions import Folders, resolved_arm, resolved_changes
from breakeven.runner.specs.arms import split_name
from breakeven.views.form.field_widgets import Fields

WIDTHS = (1, 3)
"""Of the columns with names and changes."""
HELP = (
    "Each row is one more way to run the script, in a run of its own. `--use-liger` or `lr=0.1` "
    "replaces or adds arguments, `OMP_NUM_THREADS=8` sets a variable, `@main` or `@fix.diff` takes "
    "the files of a revision or a diff, `python=/home/me/torch211` is a Python, "
    "`inductor:mode=max-autotune` a backend. Several words may come in any order, the arguments "
    "last. What the baseline changes, each arm changes, too: if you compile already, give it your "
    "backend. Then `none` is an arm without one."
)


def ask_arms(fields: Fields, script: Path | None) -> None:
    """Asks for baseline and arms of a script, whose repository has their revisions."""
    names, changes = st.columns(WIDTHS, vertical_alignment="bottom")
    names.text_input("Arm", "baseline", disabled=True, key=fields.widget("arm_0"))
    with changes:
        baseline = fields.ask("baseline", HELP, label="What it changes in the command")
    rows = [f"{name}={changes}" for name, changes in _rows(fields) if name or changes]
    try:
        if script is not None:
            folders = Folders(script=script.parent, start=script.parent, typed=script.parent)
            rows = [resolved_arm(text, folders) for text in rows]
            baseline = resolved_changes(baseline, folders, "baseline")
    except InvalidSpec as error:
        fields.refuse(error)
    fields.put("named_arms", tuple(rows), "Arms")
    fields.put("baseline", baseline, "Baseline")


def _rows(fields: Fields) -> Iterator[tuple[str, str]]:
    """Name and changes of each row; below the last one that says something there is an empty row
    for the next arm."""
    given = list(map(split_name, fields.start_of("named_arms")))
    for number in count(1):
        first = given[number - 1] if number <= len(given) else ("", "")
        left, right = st.columns(WIDTHS)
        with left:
            name = fields.text(f"arm_{number}", f"Name of arm {number}", first[0], "fp8")
        with right:
            title = f"What arm {number} changes"
            changes = fields.text(f"changes_{number}", title, first[1], "--precision fp8")
        yield name, changes
        if not (name or changes or number < len(given)):
            return
