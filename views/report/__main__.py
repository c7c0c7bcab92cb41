"""Writes a report; `breakeven export`, which draws no charts itself, starts this module."""

import argparse
import sys
from pathlib import Path

from breakeven.runner.commands.entry import ends_quietly
from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.commands import BAD_INPUT, open_store
from breakeven.storage.errors import StoreError
from breakeven.storage.queries import id_named
from breakeven.views.report.report_files import report_of


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="breakeven export")
    parser.add_argument("experiments", nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data-folder", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        with open_store(DataDir(options.data_folder)) as store:
            experiments = [id_named(store, name) for name in options.experiments]
            page = report_of(store, experiments)
        options.output.write_bytes(page.encode(errors="replace"))
    except (StoreError, RunnerError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(ends_quietly(main))
