"""Runs that continue after the planned trainings: the verdict so far stays, with a line about
them."""

import os

import pytest

from breakeven.runner.experiments.continuing import continue_experiment
from breakeven.runner.experiments.queue import find_experiment
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.scenario_fields import PlanSpec
from breakeven.storage.index.store import Store
from breakeven.views.comparison import finishing
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses
from tests.helpers.pages import opened, text, without_links

ME = ProcessIdentity.from_pid(os.getpid())
SPEC = experiment_spec(num_steps=80)
LOSSES = falling_losses(80)
APART = [loss + (0.2 if step >= 40 else 0.0) for step, loss in enumerate(LOSSES)]
"""From the middle of the training on, losses are 0.2 above all others, of 0.93 that was learned:
the median of the first five steps is 1.97, of the last eight 1.04."""


def trained(folder: DataDir, label: str, num_steps: int = 80, phase: str = "") -> Recording:
    """A run of this process after so many steps, in that phase."""
    run = Recording(folder.runs, label, SPEC).claim(ME).start()
    seconds = 0.05 if label == "inductor" else 0.1
    losses = APART if label == "inductor" else LOSSES
    run.blocks([seconds] * (num_steps // 10), losses)
    if phase:
        run.log.append("phase", phase=phase)
        run.log.flush()
    return run


def rest(folder: DataDir) -> str:
    with Store.in_memory(folder) as store:
        return without_links(finishing.what_still_runs(store, EXPERIMENT_ID))


def test_a_further_control_is_named_with_its_reason_and_what_it_may_change(
    data_dir: DataDir,
) -> None:
    for label in ("baseline", "control", "inductor"):
        trained(data_dir, label).end()
    assert rest(data_dir) == "", "nothing runs"
    Recording(data_dir.runs, "control-2", SPEC)
    assert rest(data_dir) == (
        "**control-2** still trains, alone: the losses of a backend lie 21 % of what was learned "
        "from those of 2 equal trainings. Only parity may change."
    )
    trained(data_dir, "control-2").end()
    Recording(data_dir.runs, "control-3", SPEC)
    assert rest(data_dir).startswith("**control-3** still trains, alone: the losses")


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("evaluating", "**inductor** is evaluated. Its scores and parity may change."),
        ("profiling", "**inductor** is profiled in a few extra steps. Only *Why* changes."),
        ("checking", "**inductor** is checked for its random numbers. Only parity may change."),
        ("done", "**inductor** is ended. Nothing changes any more."),
        ("waiting", "evaluation, profiles and checks may change parity and *Why*."),
    ],
)
def test_after_the_last_step_it_is_said_what_a_process_still_does(
    data_dir: DataDir, phase: str, said: str
) -> None:
    trained(data_dir, "baseline").end()
    trained(data_dir, "control", phase="waiting")
    trained(data_dir, "inductor", phase=phase)
    assert rest(data_dir).endswith(said)
    assert rest(data_dir).startswith("All steps are done; ")


def test_while_a_planned_run_trains_or_waits_to_train_there_is_no_such_line(
    data_dir: DataDir,
) -> None:
    trained(data_dir, "baseline").end()
    trained(data_dir, "control", phase="waiting")
    trained(data_dir, "inductor", 70, phase="evaluating")
    assert rest(data_dir) == ""


def test_what_is_continued_keeps_its_verdict_beside_the_plan(data_dir: DataDir) -> None:
    for label in ("baseline", "control", "inductor"):
        trained(data_dir, label).end()
    plan = PlanSpec(steps=500, max_seconds=60.0)
    continue_experiment(find_experiment(data_dir, EXPERIMENT_ID), plan)
    said = rest(data_dir)
    assert said.startswith("Is timed further, in a new process of each run, until it is decided")
    assert "500 steps" in said and "1 min" in said
    assert said.endswith("Only speed and break-even may change.")


@pytest.mark.heavy
def test_the_verdict_stays_on_the_page_while_a_further_control_trains(folder: DataDir) -> None:
    for label in ("baseline", "control"):
        trained(folder, label).end()
    last = trained(folder, "inductor", 70)
    app = opened()
    assert "###" not in text(app), "it is still a race"
    last.blocks([0.05], APART[70:])
    last.end(RunState.FINISHED)
    trained(folder, "control-2", 10)
    said = text(app.run())
    assert "**control-2** still trains, alone: the losses of a backend lie 21 %" in said
    assert "### " in said and 'class="backend-card' in said
    assert 'class="run-row"' in said, "its progress is shown, too"
    assert said.count("Only parity may change") == 1
