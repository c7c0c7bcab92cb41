"""The command line: `python -m runner compare | submit | supervise | status | cancel`."""

import sys

from runner.commands.cli import main
from runner.commands.terminal import ends_quietly

if __name__ == "__main__":
    sys.exit(ends_quietly(main))
