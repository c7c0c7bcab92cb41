"""A small part of `benchmarks.breaking`: each fault without torch, once, at its own moment."""

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.breaking.faults import FAULTS, lacks
from benchmarks.breaking.records import Record, read
from benchmarks.breaking.side_by_side import FORK, Trial, outcomes
from benchmarks.breaking.slow_disk import Disk
from benchmarks.breaking.table import BEGIN, END, is_well, summary
from benchmarks.breaking.trials import Break, Fault
from benchmarks.breaking.world import FAKE, Outcome, World, lines_of
from benchmarks.tables import write
from breakeven.runner.protocol.data_dir import DataDir
from tests.helpers.journals import EXPERIMENT_ID, record_experiment
from tests.helpers.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.heavy

RARELY = {
    "SIGKILL of the dashboard",  # browser/test_journey.py, storage/index/test_ingest.py
    "SIGSTOP of the dashboard for a while",  # as SIGKILL of it
    "a run deaf to SIGTERM, then stop",  # test_supervisor.py
    "SIGKILL of a run",  # test_supervisor.py
    "SIGKILL of the supervisor",  # as SIGKILL of everything; test_supervisor.py
    "two supervisors at once",  # as in a folder with a strange name
    "a disk that is slow for a while",  # as one that is slow, then stop
}
"""Faults that the tests above show every day, themselves or a similar fault."""


def quick(rarely: bool) -> list[Fault]:
    """Full disks need root, and have their own tests."""
    return [
        fault
        for fault in FAULTS
        if not fault.is_real and fault.needs != "mounting" and (fault.name in RARELY) == rarely
    ]


def trial(act: Break, number: int = 0) -> Trial:
    return Trial(fault=Fault(name="a fault", act=act), number=number, seed=1, device="cpu")


@pytest.mark.parametrize("rarely", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_nothing_is_lost_doubled_or_left(rarely: bool) -> None:
    """Several at a time, because each mostly waits."""
    trials = [Trial(fault=fault, number=0, seed=1, device="cpu") for fault in quick(rarely)]
    ends = list(outcomes(trials, 3, yes))
    assert len(ends) == len(trials) > 0
    assert [(trial.fault.name, came) for trial, _, came in ends if not is_well(came)] == []


def test_trials_side_by_side_have_folders_and_sessions_of_their_own() -> None:
    both = FORK.Barrier(2)

    def meets(world: World, chance: random.Random) -> Outcome:
        both.wait(PATIENCE_SECONDS)  # fails unless both exist at the same time
        return Outcome(problems=[str(world.data_dir.path), str(os.getsid(0))])

    problems = [
        outcome.problems for _, _, outcome in outcomes(map(partial(trial, meets), range(2)), 2, yes)
    ]
    (folder, session), (other_folder, other_session) = problems
    assert folder != other_folder and len({session, other_session, str(os.getsid(0))}) == 3


def test_a_trial_that_dies_is_told_and_the_next_one_is_begun() -> None:
    def dies(world: World, chance: random.Random) -> Outcome:
        os._exit(3)

    ends = [
        (finished.number, is_well(outcome))
        for finished, _, outcome in outcomes(
            [trial(dies), trial(lambda *given: Outcome(), 1)], 1, yes
        )
    ]
    assert ends == [(0, False), (1, True)]


def test_once_the_budget_is_spent_no_trial_begins() -> None:
    left = iter([True, False])
    ends = outcomes([trial(lambda *given: Outcome(), n) for n in range(3)], 1, lambda: next(left))
    assert len(list(ends)) == 1


def test_the_table_puts_files_of_several_machines_together_and_counts_no_trial_twice(
    tmp_path: Path,
) -> None:
    first, real = FAULTS[0], next(fault for fault in FAULTS if fault.is_real)

    def record(number: int, machine: str, device: str = "", **outcome: Any) -> str:
        fault = (real if device else first).name
        record = Record(
            fault=fault,
            number=number,
            seed=7,
            device=device,
            machine=machine,
            began=1.7e9,
            took=60.0,
            outcome=Outcome(**outcome),
        )
        return json.dumps(asdict(record)) + "\n"

    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    here.write_text(record(0, "a laptop", seconds=1) + record(1, "a laptop", seconds=3, lost=2))
    there.write_text(
        record(1, "a big one", seconds=2, was_late=True)
        + record(0, "a big one", "cuda:0", left=4)
        + '{"fault": "to'
    )
    document = tmp_path / "page.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write(document, BEGIN, END, summary(read([here, there])))
    text = document.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert f"| {first.name} | 2 (1 too late) | 0 | 0 | 0 | 2.0, 2.0 | - |" in text
    assert f"| {real.name}, on cuda:0 | 1 | 0 | 0 | 4 | 0.0, 0.0 | - |" in text
    assert "* 2023-11-14, a big one: 2 trials, seed 7, 2 minutes" in text
    assert "a laptop: 1 trials" in text


def test_the_hindered_disk_refuses_and_delays_what_lies_below_the_data_folder_alone(
    tmp_path: Path,
) -> None:
    world = World(tmp_path / "data")
    disk = Disk(world)

    def refused(file: Path) -> bool:
        program = f"import pathlib; pathlib.Path({str(file)!r}).write_text('x')"
        answer = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env={**os.environ, **disk.environment},
        )
        return "Disk quota exceeded" in answer.stderr

    inside, outside = world.data_dir.path / "file", tmp_path / "file"
    assert not refused(inside) and not refused(outside)
    disk.takes(milliseconds=0, is_used_up=True)
    assert refused(inside) and not refused(outside)
    disk.takes(milliseconds=600)
    begun = time.monotonic()
    assert not refused(inside) and time.monotonic() - begun > 0.6


def test_every_need_of_a_fault_is_known() -> None:
    for fault in FAULTS:
        assert lacks(fault.needs, "cpu") in (True, False)
    assert [fault for fault in FAULTS if lacks(fault.needs, "cpu") != lacks(fault.needs, "cuda:0")]


def yes() -> bool:
    return True


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
    step = next(event for event in map(json.loads, lines) if event["kind"] == "step")
    # A repeated line of the journal, of which the index takes one, and a step under two numbers.
    for again in (step, {**step, "seq": 10**6}):
        run.events_file.write_text("\n".join([*lines, json.dumps(again)]) + "\n")
        assert world.judge(before, Outcome()).doubled == 1
