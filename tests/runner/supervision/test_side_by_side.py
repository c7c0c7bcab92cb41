"""Several experiments at once, with real processes that speak the protocol without torch."""

import os
import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest

from breakeven.runner.commands import cli
from breakeven.runner.folders import queue_order
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import cancel, find_experiment, submit
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import RunState
from breakeven.runner.machine.capabilities import Device
from breakeven.runner.machine.cpus import CpuAllowance
from breakeven.runner.supervision.supervisor import supervise
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.machine import MACHINE, keep
from tests.helpers.waiting import wait_until
from tests.runner.supervision.supervised import impatience as impatience
from tests.runner.supervision.test_supervisor import (
    allow_cpus,
    events,
    experiment,
    queued,
    ran,
    run_dirs,
    states,
    states_of,
    supervised,
)

pytestmark = pytest.mark.heavy
CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
GPUS = [Device(id=f"cuda:{number}", name="Test GPU", memory_bytes=None) for number in (0, 1)]
WITH_GPUS = replace(MACHINE, devices=(*MACHINE.devices, *GPUS))
ANSWER = f"import json; print(json.dumps({asdict(WITH_GPUS)!r}))"
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


def answers(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """What torch is asked for the devices is told by a program."""
    command = (sys.executable, "-c", program)
    monkeypatch.setattr("breakeven.runner.machine.capabilities.PROBE_COMMAND", command)


def has_four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    four = CpuAllowance(in_machine=4, cpus=frozenset(range(4)), quota=None)
    monkeypatch.setattr("breakeven.runner.machine.occupancy.cpu_allowance", lambda: four)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: None)


def span(data_dir: DataDir, experiment_id: str) -> tuple[float, float]:
    """When its first run was claimed and its last one had ended."""
    runs = run_dirs(data_dir, experiment_id).values()
    claims, ends = [run.read_claim() for run in runs], [run.read_exit() for run in runs]
    assert all(claims) and all(ends)
    return min(one.time for one in claims if one), max(one.time for one in ends if one)


def blocks_of(run: RunDir) -> list[tuple[float, float]]:
    return [(block["began"], block["time"]) for block in events(run, "block")]


@two_cpus
def test_experiments_that_name_cpus_apart_run_at_the_same_time_and_keep_to_them(
    data_dir: DataDir,
) -> None:
    one, other = (str(number) for number in CPUS[:2])
    first = submit(data_dir, experiment("slow", steps=4, cpus=one))
    second = submit(data_dir, experiment("slow", steps=4, cpus=other))
    third = submit(data_dir, experiment("eager", cpus=other))
    supervise(data_dir, FAKE_WORKER)
    began = {key: span(data_dir, key)[0] for key in (first, second, third)}
    ended = {key: span(data_dir, key)[1] for key in (first, second, third)}
    assert began[second] < ended[first] and began[first] < ended[second]
    assert ended[second] <= began[third]
    for key, cpu in ((first, one), (second, other)):
        assert set(states(data_dir, key).values()) == {RunState.FINISHED}
        for run in run_dirs(data_dir, key).values():
            claim = run.read_claim()
            assert claim is not None and (claim.devices, claim.cpus) == (("cpu",), cpu)
            (said,) = (event["cpus"] for event in events(run, "phase")[:1])
            assert said == [int(cpu)], "what the process itself says"


def test_each_of_two_devices_has_an_experiment_and_any_one_goes_where_there_is_room(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir.path.mkdir()
    keep(data_dir, WITH_GPUS)
    keys = [submit(data_dir, experiment("slow", steps=4, devices=("cuda",))) for _ in range(3)]
    has_four_cpus(monkeypatch)
    supervise(data_dir, FAKE_WORKER)
    places: dict[str, list[tuple[float, float]]] = {}
    for key in keys:
        assert set(states(data_dir, key).values()) == {RunState.FINISHED}
        runs = run_dirs(data_dir, key).values()
        (place,) = {one.devices for run in runs if (one := run.read_claim())}
        assert {tuple(events(run, "phase")[0]["devices"]) for run in runs} == {place}
        places.setdefault(place[0], []).append(span(data_dir, key))
    assert set(places) == {"cuda:0", "cuda:1"}
    for spans in places.values():
        assert all(ended <= began for (_, ended), (began, _) in pairwise(sorted(spans)))
    (one, *_), (other, *_) = places.values()
    assert one[0] < other[1] and other[0] < one[1]


def test_devices_that_nobody_asked_torch_for_yet_work_at_the_same_time_too(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was queued without page or command line, such as by a script of one's own."""
    answers(monkeypatch, ANSWER)
    has_four_cpus(monkeypatch)
    first, second = (
        submit(data_dir, experiment("slow", steps=4, devices=(gpu.id,))) for gpu in GPUS
    )
    supervise(data_dir, FAKE_WORKER)
    (began, ended), (other_began, other_ended) = span(data_dir, first), span(data_dir, second)
    assert began < other_ended and other_began < ended
    claims = [next(iter(run_dirs(data_dir, key).values())).read_claim() for key in (first, second)]
    assert [claim.cpus for claim in claims if claim] == ["0-1", "2-3"]


def test_a_torch_that_does_not_answer_is_asked_once(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    answers(monkeypatch, f"open({str(asked)!r}, 'a').write('once '); raise SystemExit(1)")
    keys = [submit(data_dir, experiment("eager", devices=("cuda:0",))) for _ in range(2)]
    supervise(data_dir, FAKE_WORKER)
    assert asked.read_text() == "once "
    assert {state for key in keys for state in states(data_dir, key).values()} == {
        RunState.FINISHED
    }


def test_torch_is_not_called_before_an_experiment_that_has_it_called_while_its_runs_load(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    answers(monkeypatch, f"open({str(asked)!r}, 'a').write('called '); {ANSWER}")
    one = submit(data_dir, experiment("eager", devices=("cuda:0",)), is_checked=False)
    supervise(data_dir, FAKE_WORKER)
    assert set(states(data_dir, one).values()) == {RunState.FINISHED} and not asked.exists()
    # Two devices cannot be given while one alone is likely to be there.
    spread = experiment("eager", "late", devices=("cuda", "cuda"), parallel="spread")
    two = submit(data_dir, spread, is_checked=False)
    supervise(data_dir, FAKE_WORKER)
    assert set(states(data_dir, two).values()) == {RunState.FINISHED}
    assert asked.read_text() == "called "


@two_cpus
def test_what_is_submitted_meanwhile_begins_beside_what_runs_or_waits_and_each_can_be_stopped(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (str(number) for number in CPUS[:2])
    hang = queued(data_dir, "hang", name="long", cpus=one)["hang"]
    first = hang.read_spec().experiment_id
    with supervised(data_dir, lambda: hang.state is RunState.RUNNING):
        second = submit(data_dir, experiment("eager", cpus=other))
        wait_until(lambda: set(states(data_dir, second).values()) == {RunState.FINISHED})
        assert hang.state is RunState.RUNNING
        third = submit(data_dir, experiment("eager", name="short"))
        cli.main(["queue", f"--data-folder={data_dir.path}"])
        for experiment_id in (third, first):
            cancel(find_experiment(data_dir, experiment_id))
    assert hang.state is RunState.CANCELLED
    said = capsys.readouterr().out
    assert f"running: {first}  long  (cpu, CPUs {one})" in said
    assert f"1. {third}  short  (waits for {first})" in said


@two_cpus
@pytest.mark.parametrize("asked", ["of the experiment", "of the supervisor"])
def test_what_is_to_be_alone_runs_alone(data_dir: DataDir, asked: str) -> None:
    alone = asked == "of the experiment"
    keys = [
        submit(data_dir, experiment(cpus=str(cpu), exclusive=alone and place == 1))
        for place, cpu in enumerate([CPUS[0], CPUS[1], CPUS[0]])
    ]
    supervise(data_dir, FAKE_WORKER, exclusive=not alone)
    spans = [span(data_dir, key) for key in keys]
    assert all(ended <= began for (_, ended), (began, _) in pairwise(spans))


def test_cpus_that_are_not_there_are_named_and_nothing_starts(data_dir: DataDir) -> None:
    (run, *_) = ran(data_dir, "eager", cpus="4000").values()
    ended = run.read_exit()
    assert ended is not None and ended.state is RunState.FAILED
    assert "cpus = 4000: this machine has CPUs" in ended.reason
    assert run.read_claim() is None


def test_a_higher_priority_comes_first_and_a_move_by_hand_before_it(data_dir: DataDir) -> None:
    low, high = (submit(data_dir, experiment(name=name, priority=priority))
                 for name, priority in (("low", 0), ("high", 5)))  # fmt: skip
    assert [one.spec.name for one in queue_order.waiting(data_dir)] == ["high", "low"]
    moved = submit(data_dir, experiment(name="moved", priority=-5))
    queue_order.move(data_dir, moved)
    supervise(data_dir, FAKE_WORKER)
    began = [span(data_dir, key)[0] for key in (moved, high, low)]
    assert began == sorted(began)


@pytest.mark.parametrize("compile", ["alone", "together"])
def test_those_that_compile_do_so_side_by_side_only_if_asked_and_only_in_the_first_round(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, compile: str
) -> None:
    allow_cpus(monkeypatch, *range(4))
    tuned = "inductor:mode=max-autotune-no-cudagraphs"
    runs = ran(data_dir, "slow", "slower", tuned, steps=4, block_steps=2, compile=compile)
    assert set(states_of(runs).values()) == {RunState.FINISHED}
    found = {label: blocks_of(run) for label, run in runs.items()}
    (one, other) = (found[label][0] for label in ("slow", "slower"))
    assert (one[0] < other[1] and other[0] < one[1]) == (compile == "together")
    apart = [blocks[0] for label, blocks in found.items() if not label.startswith("slow")]
    apart += [blocks[1] for blocks in found.values()]
    every = sorted(block for blocks in found.values() for block in blocks)
    for began, ended in apart:
        assert all(end <= began or start >= ended for start, end in every
                   if (start, end) != (began, ended))  # fmt: skip
