"""A training script of a person's own: what it is called with, and how far it goes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from breakeven.runner.specs.bounds import EVERY_STEP_IS_KEPT, MAX_STEPS, Bounds
from breakeven.runner.specs.validation import Spec, require

SCRIPT_TASK = "script"
"""The task of scripts: what they learn is up to them."""
SCRIPT_PREFIX = "script:"
"""Begins the source of a model that a script makes; what follows is the script's path."""
SCRIPT_DATA = "script"
"""Stands for the samples that a script reads itself."""
A_DAY = 86_400.0


@dataclass(frozen=True, kw_only=True)
class ScriptSpec(Spec, path="script."):
    """How a script is run; which one it is says `model.source`, `script:` and its path."""

    arguments: tuple[str, ...] = ()
    """What the script is called with, one word each."""
    folder: str = ""
    """Folder that the script expects to be started in: each run works in a copy of it, so that runs
    do not overwrite each other's files. Empty for the script's own."""
    steps: Annotated[int, Bounds(0, MAX_STEPS, EVERY_STEP_IS_KEPT)] = 0
    """Steps after which a run ends, though the script would go on; 0 for as many as it makes."""
    patience_seconds: Annotated[float, Bounds(0, A_DAY, "that is a day", above=True)] = 900.0
    """Longest that a script may go on without a step, setting up included; compiling and waiting
    for its turn do not count."""

    def check_rules(self) -> None:
        rule = "must be the full path of a folder"
        is_full = not self.folder or Path(self.folder).is_absolute()
        require(is_full, "script.folder", self.folder, rule)
