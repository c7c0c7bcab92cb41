"""Writes a report: `python -m storage report`, which draws no charts itself, starts this."""

import argparse
import sys
from pathlib import Path

from runner.commands.terminal import ends_quietly
from runner.errors import RunnerError
from runner.folders.data_dir import DataDir
from storage.commands import BAD_INPUT, open_store
from storage.errors import StoreError
from views.report.files import report_file


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m storage report")
    parser.add_argument("experiments", nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data-folder", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        with open_store(DataDir(options.data_folder)) as store:
            content = report_file(store, options.experiments, options.output.suffix)
        options.output.write_bytes(content)
    except (StoreError, RunnerError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return BAD_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(ends_quietly(main))
