"""What can be asked of a team's store on the command line; `commands.py` does it."""

import argparse

DAYS = 7
"""That upkeep keeps earlier states: as long as a backup may take, and somebody may want to look back."""
ACTIONS = {
    "status": "what the store holds, and who feeds it",
    "ingest": "take in the run folders that are here; with --watch until it is stopped",
    "upkeep": "make files of rows and one of many, and let go of earlier states: daily, on one machine",
    "rebuild": "forget what this data folder told, and take it in again",
    "reset": "forget everything; each machine takes its run folders in again (needs --yes)",
}


def add_team_options(command: argparse.ArgumentParser) -> None:
    told = "; ".join(f"{name}: {text}" for name, text in ACTIONS.items())
    command.add_argument("action", choices=list(ACTIONS), help=told)
    command.add_argument("--watch", action="store_true", help="of ingest: go on")
    command.add_argument("--days", type=float, default=DAYS,
                         help=f"of upkeep: how long earlier states stay (default: {DAYS})")  # fmt: skip
    command.add_argument("--yes", action="store_true", help="of reset: really")
