"""`breakeven token`: prints the secret link of the dashboard, or replaces it."""

import argparse

from breakeven.runner import secret_link
from breakeven.runner.commands.entry import tell
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.settings import read_settings


def add_token_options(command: argparse.ArgumentParser) -> None:
    text = "replace the link: the former one and all browsers that opened it only look from now on"
    command.add_argument("--new", action="store_true", help=text)


def print_link(data_dir: DataDir, options: argparse.Namespace) -> int:
    serving = read_settings(data_dir.path).serving
    token = secret_link.renew(data_dir) if options.new else secret_link.ensure(data_dir)
    for address in secret_link.addresses(serving, token):
        tell(address)
    return 0
