"""What can be asked of a team's store on the command line; `commands.py` does it."""

import argparse

DAYS = 7
"""That upkeep keeps earlier states: longer than a backup takes."""
ACTIONS = {
    "status": "what the store holds, and who feeds it",
    "ingest": "take in the run folders that are here; with --watch until it is stopped",
    "upkeep": "turn rows into files, many files into one, drop earlier states; daily",
    "rebuild": "forget what this data folder told, and take it in again",
    "reset": "forget all; machines take their folders in again (needs --yes)",
}


def add_team_options(command: argparse.ArgumentParser) -> None:
    told = "; ".join(f"{name}: {text}" for name, text in ACTIONS.items())
    command.add_argument("action", choices=list(ACTIONS), help=told)
    command.add_argument("--watch", action="store_true", help="of ingest: go on")
    text = f"of upkeep: how long earlier states stay (default: {DAYS})"
    command.add_argument("--days", type=float, default=DAYS, help=text)
    command.add_argument("--yes", action="store_true", help="of reset: really")
