"""`breakeven audit`: who did what."""

import argparse
import json
import sys

from breakeven.runner.folders import audit
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.texts import printable

MAX_SHOWN = 50


def add_audit_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="a line of JSON for each, all of them")
    command.add_argument("--most", type=int, default=MAX_SHOWN, metavar="N",
                         help=f"so many, the latest first (default: {MAX_SHOWN})")  # fmt: skip


def show_audit(data_dir: DataDir, options: argparse.Namespace) -> int:
    found = audit.entries(data_dir, None if options.json else max(0, options.most))
    for entry in found:
        row = audit.flat(entry)
        whence = f" from {row['from']}" if row["from"] else ""
        head = f"{row['time']}  {row['who']}{whence} ({row['via']}): {row['action']} {row['about']}"
        told = json.dumps(entry) if options.json else printable(f"{head}  {row['details']}", 600)
        sys.stdout.write(f"{told.rstrip()}\n")
    return 0
