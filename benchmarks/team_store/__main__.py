"""What a team's store takes, beside the embedded one on the same work; makes the tables of
docs/team-store.md.

    python -m benchmarks.team_store --folder FOLDER [--writers 8] [--experiments 1667]

Starts PostgreSQL servers of its own. FOLDER keeps what was generated, PostgreSQL's data included,
for the next time: about 5 GB for 1,667 experiments of six runs and 10,000 steps. Writing: as many
processes as `--writers`, each with run folders of its own. Reading: stores of `--experiments`, and
what pages ask of some of them that were not asked for before.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.team_store.making import embedded_store, team_store
from benchmarks.team_store.reading import STORES, reading
from benchmarks.team_store.writing import writing
from tests.helpers.team.postgres import postgres_server

ONLY = ("writing", "making", "reading", *(f"reading-{name}" for name in STORES))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--experiments", type=int, default=1667)
    parser.add_argument(
        "--only", choices=ONLY, help="making: the stores to read; reading makes those that are not"
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.only in (None, "writing"):
        with postgres_server() as server:
            _say(writing(server, options.folder / "writing", options.writers))
    place, count = options.folder / "reading", options.experiments
    if options.only == "making":
        team_store(place, count)[0].stop()
        embedded_store(place, count)
    elif options.only != "writing":
        one = (options.only or "").removeprefix("reading-")
        _say(reading(place, count, [one] if one in STORES else list(STORES)))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
