"""Which changes of a training `breakeven run --family` accepts: honest ones, and ones that cheat.

Run from the project's root: `.venv/bin/python -m benchmarks.cheat_trials FOLDER [NAME ...]`

Each change of `benchmarks/cheats/changes.py` is a diff on train.py there, and an arm. An experiment
has eight of them; all are of one family. FOLDER keeps script, diffs and results; what has a result
is not measured again. A change is accepted if its speed is *faster* and its training the same, as
good or better. Prints Markdown; half an hour on two CPU cores.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any

from benchmarks.cheats.changes import CHEATS, HONEST, Change
from benchmarks.tables import markdown
from breakeven.runner.project import PROJECT_ROOT

SCRIPT = PROJECT_ROOT / "benchmarks" / "cheats" / "train.py"
TEXTS = ("metrics", "suites", "own-training", "operating")
"""The documents that the language model reads."""
FAMILY = "cheats"
TOGETHER = 8
GOOD = ("holds", "as good", "better")
CHANGES = {**HONEST, **CHEATS}


def prepare(folder: Path) -> None:
    """Makes a repository with the script and its text."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / ".git").exists():
        return
    (folder / "train.py").write_text(SCRIPT.read_text())
    texts = [(PROJECT_ROOT / "docs" / f"{name}.md").read_text() for name in TEXTS]
    (folder / "text.md").write_text("".join(texts))
    identity = ("-c", "user.name=trial", "-c", "user.email=trial@localhost")
    for words in (["init", "-q"], ["add", "train.py", "text.md"], ["commit", "-qm", "first"]):
        subprocess.run(["git", *identity, *words], cwd=folder, check=True)


def diff_of(name: str, change: Change) -> str:
    changed = script = SCRIPT.read_text()
    for old, new in change:
        if changed.count(old) != 1:
            raise ValueError(f"{name}: the script has {changed.count(old)} of {old!r}, not 1")
        changed = changed.replace(old, new)
    before, after = script.splitlines(keepends=True), changed.splitlines(keepends=True)
    return "".join(unified_diff(before, after, "a/train.py", "b/train.py"))


def measured(folder: Path, names: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """The results of an experiment with these changes as its arms."""
    labels = [label_of(name) for name in names]
    kept = folder / f"{labels[0]}.json"
    if not kept.exists():
        for name, label in zip(names, labels, strict=True):
            (folder / f"{label}.diff").write_text(diff_of(name, CHANGES[name]))
        command = [sys.executable, "-m", "breakeven", "run", "--json", f"--family={FAMILY}"]
        command += ["--margin=0.5%", "--cpu-threads=1", f"--data-folder={folder / 'data'}"]
        command += [f"--arm={label}=@{label}.diff" for label in labels]
        ended = subprocess.run(
            [*command, "--", "train.py"], cwd=folder, stdout=subprocess.PIPE, text=True
        )
        json.loads(ended.stdout)
        kept.write_text(ended.stdout)
    runs = {run["label"]: run for run in json.loads(kept.read_text())["runs"]}
    return [(name, runs[label_of(name)]) for name in names]


def label_of(name: str) -> str:
    return name.replace(" ", "-").replace(",", "")


def row(name: str, run: dict[str, Any]) -> dict[str, object]:
    speedup, parity, speed = run["speedup"], run["parity"], run["numbers"]["speed_verdict"]
    training = parity["verdict"] if parity else run["state"]
    is_accepted = speed == "faster" and training in GOOD
    return {
        "change": name,
        "speedup": f"{speedup['median']:.2f}" if speedup else "",
        "speed": speed,
        "training": training,
        "accepted": "**yes**" if is_accepted else "no",
    }


def main() -> None:
    folder, names = Path(sys.argv[1]).absolute(), sys.argv[2:]
    prepare(folder)
    for title, changes in (("cheats", CHEATS), ("honest", HONEST)):
        chosen = [name for name in changes if not names or name in names]
        rows = [
            row(name, run)
            for first in range(0, len(chosen), TOGETHER)
            for name, run in measured(folder, chosen[first : first + TOGETHER])
        ]
        if rows:
            sys.stdout.write(f"{title}\n\n{markdown(rows)}\n\n")


if __name__ == "__main__":
    main()
