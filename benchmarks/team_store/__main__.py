"""What a team's store takes, beside the embedded one on the same work; makes the tables of
docs/team-store.md.

    python -m benchmarks.team_store --folder FOLDER [--writers 8] [--experiments 1667]

Starts a PostgreSQL server of its own; FOLDER keeps what was generated: about 10 GB for 1,667
experiments of six runs and 10,000 steps. Writing: as many processes as `--writers`, each with
run folders of its own. Reading: a store of `--experiments`, and what pages ask of some of them that
were not asked for before.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.team_store.reading import reading
from benchmarks.team_store.writing import writing
from tests.helpers.team.postgres import postgres_server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--experiments", type=int, default=1667)
    parser.add_argument(
        "--only",
        choices=("writing", "reading", "reading-team"),
        help="reading-team: without the embedded store, which takes long to make",
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with postgres_server() as server:
        if options.only in (None, "writing"):
            _say(writing(server, options.folder / "writing", options.writers))
        if options.only != "writing":
            is_compared = options.only != "reading-team"
            place = options.folder / "reading"
            _say(reading(server, place, options.experiments, is_compared=is_compared))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
