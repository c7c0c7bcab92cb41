"""The command `breakeven`: alone it serves the dashboard, with the name of a command it runs that.

Each part is imported on first use: a GPU machine may have neither DuckDB nor Streamlit.
"""

import sys

from breakeven import __version__
from breakeven.runner.commands.entry import (
    BAD_INPUT,
    ends_quietly,
    reads_database,
    tell,
    without_help,
)
from breakeven.runner.extras import missing_words


def main() -> int:
    """Runs what the command line asks for; returns the exit status."""
    arguments = sys.argv[1:]
    try:
        return _run(arguments)
    except ModuleNotFoundError as error:
        words = missing_words(error.name or "")
        if words is None:
            raise
        sys.stderr.write(f"`{' '.join(['breakeven', *arguments[:1]])}` {words}.\n")
        return BAD_INPUT


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        tell(f"breakeven {__version__}")
        return 0
    if not arguments:
        from breakeven.serve import main as serve

        serve()
        return 0
    arguments = without_help(arguments)
    if reads_database(arguments):
        from breakeven.storage.__main__ import main as read

        return read(arguments)
    from breakeven.runner.commands.cli import main as run

    return run(arguments)


def entry() -> None:
    """The console script."""
    sys.exit(ends_quietly(main))


if __name__ == "__main__":
    entry()
