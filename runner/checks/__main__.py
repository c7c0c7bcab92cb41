"""Checks a queued experiment with torch while its runs load: `python -m breakeven.runner.checks
RUN_FOLDER` prints the reason for a refusal, or nothing.

The process of the baseline starts this check before it changes its own environment.
"""

import os
import sys
from pathlib import Path

from breakeven.runner.checks.experiment import check_with_torch
from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.moved import spec_in_use
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.machine.placement import placed


def main() -> None:
    run = RunDir(Path(sys.argv[1]))
    try:
        spec = placed(spec_in_use(run), os.environ)
        check_with_torch(spec.experiment, DataDir(run.path.parent.parent))
    except RunnerError as error:
        sys.stdout.write(str(error))


if __name__ == "__main__":
    main()
