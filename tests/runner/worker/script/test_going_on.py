"""Scripts that failed go on from their own checkpoints (killed ones: `test_libraries.py`), and
finished ones run again for more rounds."""

from pathlib import Path
from typing import Any

import pytest
import torch

import breakeven
from breakeven.runner.errors import WorkloadError
from breakeven.runner.files import write_atomically
from breakeven.runner.protocol.records import Claim
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.scenario_fields import PlanSpec
from breakeven.runner.supervision.exit_records import ExitRecords
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.script.script_checkpoints import SavedCheckpoint, ScriptCheckpoints
from tests.helpers.journals import GONE
from tests.helpers.loop import TurnsOnPaper, of_kind
from tests.runner.worker.script.scripts import NET, Ended, Ran, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

FAILING = (
    NET
    + """
from pathlib import Path
model = breakeven.compile(model)
first = 0
saved = breakeven.load("last.pt")
if saved is not None:
    model.load_state_dict(saved["model"])
    first = saved["done"]
for number in range(first, 12):
    torch.manual_seed(number)
    breakeven.step(made(torch.randn(8, 4)), samples=8)
    if number == 4:
        breakeven.save({"model": model.state_dict(), "done": 5}, "last.pt")
    if number == 9 and not Path("failed").exists():
        Path("failed").touch()
        raise ValueError("by chance")
"""
)
"""Fails once, in its tenth step; there is one checkpoint, in the middle of its second block."""


FINISHING = (
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


def failed_once(folder: Path, code: str = FAILING, label: str = "baseline", **changes: Any) -> Ran:
    """What another attempt left, after one that failed."""
    with pytest.raises(ValueError, match="by chance"):
        run(folder, code, label, **changes)
    return run(folder, code, label, again=True, **changes)


def test_blocks_end_where_checkpoints_are_written_so_that_no_step_before_is_lost(
    tmp_path: Path,
) -> None:
    ran = failed_once(tmp_path)
    places = [
        (event["kind"], event.get("first_step", event.get("step")), event.get("num_steps"))
        for event in ran.events
        if event["kind"] in ("block", "checkpoint", "resumed")
    ]
    assert places == [
        ("block", 0, 4),
        ("block", 4, 1),
        ("checkpoint", 5, None),
        ("block", 5, 3),
        ("block", 8, 2),
        ("resumed", 5, None),
        ("block", 5, 3),
        ("block", 8, 4),
    ]
    (checkpoint,) = ran.of_kind("checkpoint")
    assert checkpoint["file"] == "work/last.pt" and checkpoint["bytes"] > 500


def test_a_checkpoint_among_steps_that_are_profiled_leaves_their_profile_whole(
    tmp_path: Path,
) -> None:
    ran = run(
        tmp_path, FAILING.replace("== 4:", "== 10:").replace("== 9 and", "< 0 and"), profile_steps=3
    )
    blocks = [
        (block["first_step"], block["num_steps"])
        for block in ran.of_kind("block")
        if block["warm_up"]
    ]
    (profile,) = ran.of_kind("profile")
    assert blocks == [(8, 3), (11, 1)] and profile.get("failure") is None and profile["steps"] == 3


def test_a_control_that_goes_on_is_not_perturbed_once_more(tmp_path: Path) -> None:
    ran = failed_once(tmp_path, label="control")
    (tmp_path / "other").mkdir()
    undisturbed = run(tmp_path / "other", FAILING.replace("raise", "None and "), "control")
    assert ran.losses[-7:] == undisturbed.losses[-7:]


def test_a_script_that_asks_for_no_checkpoint_begins_anew_and_that_is_said(tmp_path: Path) -> None:
    ran = failed_once(tmp_path, FAILING.replace('breakeven.load("last.pt")', "None"))
    (resumed,) = ran.of_kind("resumed")
    assert (resumed["step"], resumed["file"], resumed["attempt"]) == (0, None, 2)
    assert ran.losses[10:] == pytest.approx(ran.losses[:10] + ran.losses[-2:])
    assert "Attempt 2 began anew" in ran.workload["notes"][-1]


def test_a_file_that_no_attempt_of_this_run_has_saved_is_no_checkpoint(tmp_path: Path) -> None:
    """As one of a training by hand, beside the script; or one that was written over since."""
    (tmp_path / "project").mkdir()
    torch.save({"done": 11, "model": {}}, tmp_path / "project" / "last.pt")
    assert len(run(tmp_path, FAILING.replace("raise", "None and ")).losses) == 12
    written_over = "if number == 8: torch.save(1, 'last.pt')\n    if number == 9"
    # The working folder goes with what is no checkpoint of its own, so the mark lies beside it.
    over = FAILING.replace("if number == 9", written_over).replace(
        'Path("failed")', f"Path({str(tmp_path / 'failed')!r})"
    )
    assert failed_once(tmp_path, over, "control").of_kind("resumed")[0]["step"] == 0


def test_by_hand_saving_and_loading_are_torchs(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    assert breakeven.load(file) is None
    breakeven.save({"weights": torch.ones(2)}, file)
    assert torch.equal(breakeven.load(file)["weights"], torch.ones(2))
    assert breakeven.load(file, weights_only=False).keys() == torch.load(file).keys()


def test_a_folder_that_a_library_overwrites_counts_no_more_and_others_still_do(
    tmp_path: Path,
) -> None:
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    checkpoints = ScriptCheckpoints(run, EventLog(run.events_file))
    for step, name in ((10, "first"), (20, "last")):
        folder = run.path / name
        folder.mkdir(parents=True)
        (folder / "weights").write_bytes(b"whole")
        saved = SavedCheckpoint(step=step, by="library", path=folder, random={})
        checkpoints.written(saved, seconds=0.1)
    # Nobody sees from outside that a file in the folder changes in its place.
    last = run.path / "last"
    checkpoints.forget(last)
    (last / "weights").write_bytes(b"half")
    latest = checkpoints.latest()
    assert latest is not None and (latest.step, latest.path.name) == (10, "first")


def continued(ran: Ran, folder: Path, code: str, turns: TurnsOnPaper | None = None) -> Ran:
    ran.folder.write_claim(Claim.by(GONE))
    ExitRecords().write(ran.folder, RunState.FINISHED, "", 0)
    write_atomically(ran.folder.plan_file, PlanSpec(steps=12).to_json())
    return run(folder, code, turns=turns, again=True)


def places(events: list[dict[str, int]]) -> list[tuple[int, int]]:
    return [(block["first_step"], block["num_steps"]) for block in of_kind(events, "block")]


def test_a_script_runs_again_from_its_beginning_and_only_its_blocks_are_recorded(
    tmp_path: Path,
) -> None:
    ran = run(tmp_path, FINISHING)
    checkpoint = (ran.folder.workplace / "last.pt").read_bytes()
    again = continued(ran, tmp_path, FINISHING)
    later = again.events[len(ran.events) :]
    assert places(ran.events) == [(0, 4), (4, 2), (6, 2), (8, 4)]
    assert places(later) == [(12, 4), (16, 2), (18, 2), (20, 4)]
    (resumed,) = of_kind(later, "resumed")
    assert (resumed["step"], resumed["file"], resumed["attempt"]) == (12, None, 2)
    assert not {event["kind"] for event in later} & {
        "step",
        "value",
        "evaluation",
        "checkpoint",
        "inputs",
        "workload",
        "stopped",
        "profile",
    }
    assert again.turns.said[-1] == "finished"
    # The finished training's files stay; those of the further process go with its caches.
    assert (ran.folder.workplace / "seen.txt").read_text() == "end "
    assert (ran.folder.workplace / "last.pt").read_bytes() == checkpoint
    ran.folder.drop_leftovers()
    assert not ran.folder.compile_cache.exists()


def test_a_script_that_is_timed_further_ends_with_the_last_turn(tmp_path: Path) -> None:
    ran = run(tmp_path, FINISHING)
    again = continued(ran, tmp_path, FINISHING, Ended(1))
    assert places(again.events[len(ran.events) :]) == [(12, 4), (16, 2)]
    assert again.turns.said == ["ready", "done", "finished"]


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        (
            "Linear(4, 2)",
            "Linear(4, 2, False)",
            "train.py, the model, the data, the code are others",
        ),
        ("torch.randn(8, 4)", "torch.randn(9, 4)", "train.py, the data, the code are others"),
        ("range(first, 12)", "range(first, 13)", "train.py, the code are others"),
    ],
)
def test_a_script_that_was_changed_since_is_not_timed_further(
    tmp_path: Path, old: str, new: str, changed: str
) -> None:
    ran = run(tmp_path, FINISHING)
    assert old in FINISHING
    with pytest.raises(WorkloadError, match=f"{changed} than in the first process"):
        continued(ran, tmp_path, FINISHING.replace(old, new))
