"""A script in a search: the supervisor ends it."""

from pathlib import Path

import pytest

from breakeven.runner.folders.events import read_events
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.scenarios import TuneSpec
from breakeven.runner.supervision.stopping_rule import Ending
from breakeven.runner.supervision.turns import Turn
from tests.helpers.loop import TurnsOnPaper
from tests.runner.worker.forked import fork
from tests.runner.worker.script.scripts import NET, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]

ENDING = Ending(cause="loses", target_width=0.02, budget=500, to="inductor")
SCRIPT = (
    NET
    + """
model = breakeven.compile(model)
for number in range(1000):
    breakeven.step(made(torch.randn(8, 4)))
print("after the training")
"""
)


class Ended(TurnsOnPaper):
    """Turns of which the fourth is the last."""

    def wait(self) -> Turn | None:
        turn = super().wait()
        is_last = turn is not None and turn.round == 3
        return Turn(round=turn.round, position=0, last=ENDING) if turn and is_last else turn


def test_a_script_that_lost_ends_at_its_next_step_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(tmp_path, SCRIPT, turns=Ended(), scenario="tune", tune=TuneSpec(steps=500))
    (stopped,) = ran.of("stopped")
    assert stopped["step"] == 16 and stopped["ending"]["cause"] == "loses"
    assert stopped["reason"] == "for 500 steps it surely takes longer than inductor"
    assert ran.turns.said[-1] == "finished" and "after" not in capsys.readouterr().out
    # The first turns warm up, as in every search.
    assert [block["warm_up"] for block in ran.of("block")] == [True, True, False, False]


def search_with_a_trainer(folder: str) -> None:
    code = (PROJECT_ROOT / "examples" / "scripts" / "trainer.py").read_text()
    run(Path(folder), code, turns=Ended(), scenario="tune", tune=TuneSpec(steps=500))


def test_a_trainer_that_lost_ends_without_its_evaluation_at_the_end(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    # In a process of its own: a Trainer follows one run, and keeps following this one.
    assert fork(printed, search_with_a_trainer, str(tmp_path)) == 0, printed.read_text()
    events, _ = read_events(tmp_path / "x.baseline" / "events.jsonl")
    (stopped,) = (event for event in events if event["kind"] == "stopped")
    # It evaluates after each 10 of its steps.
    assert stopped["step"] == 16
    assert [event["step"] for event in events if event["kind"] == "evaluation"] == [10]
