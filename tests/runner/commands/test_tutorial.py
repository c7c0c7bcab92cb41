"""The tutorial about one's own script does what it says: its script, its command, its result."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from breakeven.runner.project import PROJECT_ROOT

pytestmark = pytest.mark.heavy
TUTORIAL = (PROJECT_ROOT / "docs" / "own-script.md").read_text()


def test_the_planted_slowdown_matches_and_the_planted_fault_is_caught(tmp_path: Path) -> None:
    (script,) = re.findall(r"```python\n# train.py\n(.*?)```", TUTORIAL, re.DOTALL)
    (tmp_path / "train.py").write_text(script)
    (command,) = re.findall(r"^breakeven (run --same .*)$", TUTORIAL, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-m", "breakeven", *shlex.split(command)],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": str(PROJECT_ROOT), "BREAKEVEN_DATA": str(tmp_path / "data")},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 3  # a training is broken
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert rows["slow"].endswith("matches")
    assert rows["wrong"].endswith(
        "broken at step 21"
    )  # the fault begins with the update of step 20
    assert "broken at step 21" in TUTORIAL
