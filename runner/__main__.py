"""The command line: `python -m runner compare | submit | supervise | status | cancel`."""

import sys

from runner.cli import main

if __name__ == "__main__":
    sys.exit(main())
