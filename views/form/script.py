"""The part of the form that is about a training script of one's own."""

from pathlib import Path

import streamlit as st

from runner.specs.script import SCRIPT_PREFIX
from views.form.fields import Fields
from views.form.presets import SCRIPT_TO_BE_NAMED
from views.shared.own_code import show_permission


def ask_script(fields: Fields) -> None:
    """Which script, and what it is called with."""
    named = str(fields.start_of("model.source")).removeprefix(SCRIPT_PREFIX)
    left, right = st.columns(2)
    with left:
        typed = fields.ask(
            "model.source", "Script",
            "The full path of a Python file that trains. It runs as `python train.py` would, in a "
            "copy of its folder.",
            value="" if named == SCRIPT_TO_BE_NAMED else named, name="script",
            empty="/home/me/project/train.py",
        )  # fmt: skip
        path = str(Path(typed).expanduser()) if typed else ""
        fields.put("model.source", path and f"{SCRIPT_PREFIX}{path}", "Script")
    with right:
        fields.ask_line(
            "script.arguments", "Arguments",
            "What the script is called with, as on a command line. Paths are best given in full.",
            empty="--epochs 3 --lr 1e-4",
        )  # fmt: skip
    show_permission()


def ask_how(fields: Fields) -> None:
    """How long it runs, and where."""
    left, middle, right = st.columns(3)
    with left:
        fields.ask(
            "script.steps", "Steps",
            "A run ends after so many, though the script would go on; 0 for as many as it makes.",
        )  # fmt: skip
        fields.ask("training.seed", "Seed", "Of all generators, set before the script begins.")
    with middle:
        fields.ask(
            "script.folder", "Folder",
            "The one that the script expects to be started in, by its full path. Each run works in "
            "a copy of it, so that runs do not overwrite each other's files.",
            empty="The script's own",
        )  # fmt: skip
    with right:
        fields.ask("script.patience_seconds", "Patience (s)")
