"""The part of the form that is about a training script of one's own."""

from pathlib import Path

import streamlit as st

from breakeven.runner.checks.user_code import allowed_folders
from breakeven.runner.specs.workload import SCRIPT_PREFIX
from breakeven.views.access import files
from breakeven.views.form.fields import Fields, Offer
from breakeven.views.form.presets import SCRIPT_TO_BE_NAMED
from breakeven.views.shared.own_code import show_permission

MAX_DEPTH, MAX_OFFERED, MAX_LOOKED_AT = 3, 200, 5_000
"""Of folders below one that may run, files that are offered, and entries of a depth that are looked
at."""


LENGTH = (("script.steps",), ())
HOW = (("training.seed",), ("script.folder",), ("script.patience_seconds",))
"""Where it runs, and for how long Breakeven waits for it."""


def ask_script(fields: Fields) -> None:
    """Which script, and what it is called with."""
    named = str(fields.start_of("model.source")).removeprefix(SCRIPT_PREFIX)
    left, right = st.columns(2)
    with left:
        typed = fields.ask(
            "model.source",
            "A Python file that trains: one of the folders from which files may run, or type its "
            "path. It runs as `python train.py` would, in a copy of its folder.",
            label="Script", value="" if named == SCRIPT_TO_BE_NAMED else named, name="script",
            offer=Offer(list(map(str, python_files())), typed=True,
                        empty="Choose a file, or type its path"),
        )  # fmt: skip
        path = str(found(typed)) if typed else ""
        fields.put("model.source", path and f"{SCRIPT_PREFIX}{path}", "Script")
    with right:
        fields.ask("script.arguments")
    is_allowed = show_permission()
    files.ask_script_upload()
    if is_allowed and not typed:
        st.info("**Choose your script** above, or type its path.", icon=":material/code:")


def found(typed: str) -> Path:
    """The path of a script: as it was typed, or in the first folder of those that may run that has
    such a file, or of the only file there that is called so, with or without its ending."""
    path = Path(typed).expanduser()
    there = [folder / path for folder in map(Path, allowed_folders())]
    there = [one for one in there if one.is_file()]
    if there or path.exists():
        return there[0] if there else path
    called = [one for one in python_files() if typed in (one.name, one.stem)]
    return called[0] if len(called) == 1 else path


def python_files() -> list[Path]:
    """What may run, of each folder those nearest to it first. What is hidden, and environments with
    their packages, are passed by, and so is what lies deep."""
    files: list[Path] = []
    for folder in allowed_folders():
        level = [Path(folder).expanduser().resolve()]
        for _ in range(MAX_DEPTH):
            entries = sorted(entry for one in level for entry in _entries(one))
            files += [one for one in entries if one.suffix == ".py" and one.is_file()]
            level = [one for one in entries if one.is_dir() and not one.is_symlink()]
            if len(files) >= MAX_OFFERED or len(entries) > MAX_LOOKED_AT:
                break
    return list(dict.fromkeys(files))[:MAX_OFFERED]


def _entries(folder: Path) -> list[Path]:
    try:
        if (folder / "pyvenv.cfg").exists():
            return []
        return [one for one in folder.iterdir() if not one.name.startswith((".", "__"))]
    except OSError:
        return []
