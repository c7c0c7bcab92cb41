"""Starts the process of a run, `python -m breakeven.runner.worker RUN_FOLDER`."""

import sys

from breakeven.runner.worker.process import main

if __name__ == "__main__":
    sys.exit(main())
