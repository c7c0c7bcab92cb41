"""The command `breakeven`: alone it serves the dashboard, with the name of a command it runs that.

Each part is imported on first use: a GPU machine may have neither DuckDB nor Streamlit.
"""

import sys
from importlib.util import find_spec

from breakeven.runner.commands.entry import ends_quietly, reads_database

NEEDS_DUCKDB = (
    "`breakeven {0}` needs duckdb, which is not installed here: install duckdb, or copy the run "
    "folders into `runs/` of a data folder on a machine that has it; `breakeven list --runs` does "
    "without"
)
BAD_INPUT = 2


def main() -> int:
    """Runs what the command line asks for; returns the exit status."""
    if len(sys.argv) == 1:
        from breakeven.serve import main as serve

        serve()
        return 0
    arguments = sys.argv[1:]
    if reads_database(arguments):
        if find_spec("duckdb") is None:
            sys.stderr.write(f"{NEEDS_DUCKDB.format(arguments[0])}.\n")
            return BAD_INPUT
        from breakeven.storage.__main__ import main as read

        return read(arguments)
    from breakeven.runner.commands.cli import main as run

    return run()


def entry() -> None:
    """The console script."""
    sys.exit(ends_quietly(main))


if __name__ == "__main__":
    entry()
