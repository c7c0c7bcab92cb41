"""A small part of `make faults`: each fault that needs no torch, once, at a moment of its own."""

from pathlib import Path

import pytest

from benchmarks.breaking.__main__ import BEGIN, END, attempt, is_well, row, write
from benchmarks.breaking.faults import FAULTS
from benchmarks.breaking.trials import Fault
from benchmarks.breaking.world import FAKE, Outcome, World, lines_of
from runner.folders.run_dir import DataDir
from tests.helpers.journals import EXPERIMENT_ID, record_experiment

pytestmark = pytest.mark.heavy

QUICK = [fault for fault in FAULTS if not fault.is_real and "disk" not in fault.name]
"""Full disks need root, and have tests of their own."""


@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.name)
def test_nothing_is_lost_doubled_or_left(fault: Fault) -> None:
    outcome = attempt(fault, f"test/{fault.name}")
    assert is_well(outcome), outcome


def test_rows_of_faults_that_were_tried_again_replace_theirs_and_no_others(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    first, second = (fault.name for fault in FAULTS[:2])
    once, twice = row(first, [Outcome()]), row(first, [Outcome(), Outcome(lost=7)])
    other = row(second, [Outcome()])
    write(document, {second: other, first: once}, 1, 60.0)
    assert once + other in document.read_text()
    write(document, {first: twice}, 2, 60.0)
    text = document.read_text()
    assert twice + other in text and once not in text
    assert "seed 1" in text and "seed 2" in text
    assert text.startswith("before\n") and text.endswith("\nafter\n")


def test_the_judge_sees_a_line_that_is_gone_one_that_is_there_twice_and_a_step_counted_twice(
    data_dir: DataDir,
) -> None:
    world = World(data_dir.path, FAKE)
    record_experiment(data_dir.runs)
    before = world.acknowledged()
    assert is_well(world.judge(before, Outcome()))
    run = data_dir.run_dir(f"{EXPERIMENT_ID}.baseline")
    lines = lines_of(run)
    run.events_file.write_text("\n".join(lines[:-1]) + "\n")
    assert world.judge(before, Outcome()).lost == 1
    (step,) = [line for line in lines if '"kind": "step"' in line or '"kind":"step"' in line][:1]
    run.events_file.write_text("\n".join([*lines, step]) + "\n")
    # Once as a line of the journal, and once as a step in the index.
    assert world.judge(before, Outcome()).doubled == 2
