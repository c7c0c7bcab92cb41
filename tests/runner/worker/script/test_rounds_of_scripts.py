"""Rounds that are added to a finished script: the script runs again, and only its blocks count."""

from pathlib import Path

import pytest

from breakeven.runner.errors import WorkloadError
from breakeven.runner.files import write_atomically
from breakeven.runner.folders.states import Claim, RunState
from breakeven.runner.specs.scenarios import AddedRounds
from breakeven.runner.supervision.exits import ExitRecords
from tests.helpers.journals import GONE
from tests.helpers.loop import TurnsOnPaper, of_kind
from tests.runner.worker.script.scripts import NET, Ended, Ran, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

SCRIPT = (
    NET
    + """
from pathlib import Path
model = breakeven.compile(model)
first = (breakeven.load("last.pt") or {"done": 0})["done"]
for number in range(first, 12):
    breakeven.step(made(torch.randn(8, 4)), samples=8)
    breakeven.record("number", number)
    if number == 5:
        breakeven.evaluated(loss=1.0)
        breakeven.save({"done": 6}, "last.pt")
with Path("seen.txt").open("a") as seen:
    seen.write("end ")
"""
)
"""Twelve steps in blocks of four, of which a checkpoint cuts the second one: 4, 2, 2 and 4."""


def add_rounds(ran: Ran, folder: Path, code: str, turns: TurnsOnPaper | None = None) -> Ran:
    ran.folder.write_claim(Claim.by(GONE))
    ExitRecords().write(ran.folder, RunState.FINISHED, "", 0)
    write_atomically(ran.folder.rounds_file, AddedRounds().to_json())
    return run(folder, code, turns=turns, again=True)


def places(events: list[dict[str, int]]) -> list[tuple[int, int]]:
    return [(one["first_step"], one["num_steps"]) for one in of_kind(events, "block")]


def test_a_script_runs_again_from_its_beginning_and_only_its_blocks_are_recorded(
    tmp_path: Path,
) -> None:
    ran = run(tmp_path, SCRIPT)
    checkpoint = (ran.folder.workplace / "last.pt").read_bytes()
    again = add_rounds(ran, tmp_path, SCRIPT)
    later = again.events[len(ran.events) :]
    assert places(ran.events) == [(0, 4), (4, 2), (6, 2), (8, 4)]
    assert places(later) == [(12, 4), (16, 2), (18, 2), (20, 4)]
    (resumed,) = of_kind(later, "resumed")
    assert (resumed["step"], resumed["file"], resumed["attempt"]) == (12, None, 2)
    assert not {one["kind"] for one in later} & {
        "step", "value", "evaluation", "checkpoint", "inputs", "workload", "stopped", "profile"
    }  # fmt: skip
    assert again.turns.said[-1] == "finished"
    # The finished training's files stay; those of the further process go with its caches.
    assert (ran.folder.workplace / "seen.txt").read_text() == "end "
    assert (ran.folder.workplace / "last.pt").read_bytes() == checkpoint
    ran.folder.drop_leftovers()
    assert not ran.folder.compile_cache.exists()


def test_a_script_that_adds_rounds_ends_with_the_last_turn(tmp_path: Path) -> None:
    ran = run(tmp_path, SCRIPT)
    again = add_rounds(ran, tmp_path, SCRIPT, Ended(1))
    assert places(again.events[len(ran.events) :]) == [(12, 4), (16, 2)]
    assert again.turns.said == ["ready", "done", "finished"]


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("Linear(4, 2)", "Linear(4, 2, False)",
         "train.py, the model, the data, the code are others"),
        ("torch.randn(8, 4)", "torch.randn(9, 4)", "train.py, the data, the code are others"),
        ("range(first, 12)", "range(first, 13)", "train.py, the code are others"),
    ],
)  # fmt: skip
def test_a_script_that_was_changed_since_adds_no_rounds(
    tmp_path: Path, old: str, new: str, changed: str
) -> None:
    ran = run(tmp_path, SCRIPT)
    assert old in SCRIPT
    with pytest.raises(WorkloadError, match=f"{changed} than in the first process"):
        add_rounds(ran, tmp_path, SCRIPT.replace(old, new))
