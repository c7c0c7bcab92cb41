"""Several experiments at once, and one spread over devices, with real processes that speak the
protocol without torch."""

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest

from breakeven.runner.commands import cli
from breakeven.runner.experiments.queue import cancel, find_experiment, submit
from breakeven.runner.machine.capabilities import Device
from breakeven.runner.machine.cpus import CpuAllowance
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import TrainingSpec
from breakeven.runner.supervision.supervisor import supervise
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.machine import MACHINE
from tests.helpers.waiting import wait_until
from tests.runner.supervision import test_supervisor as fake
from tests.runner.supervision.supervised import impatience as impatience

CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
pytestmark = [pytest.mark.heavy, pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")]
GPUS = [Device(id=f"cuda:{number}", name="Test GPU", memory_bytes=None) for number in (0, 1)]
WITH_GPUS = replace(MACHINE, devices=(*MACHINE.devices, *GPUS))
ANSWER = f"import json; print(json.dumps({asdict(WITH_GPUS)!r}))"


def answers(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """A program answers in torch's place which devices there are."""
    command = (sys.executable, "-c", program)
    monkeypatch.setattr("breakeven.runner.machine.capabilities.PROBE_COMMAND", command)


def worked_off(data_dir: DataDir, *keys: str, exclusive: bool = False) -> None:
    """A supervisor finishes all runs of these experiments."""
    supervise(data_dir, FAKE_WORKER, exclusive=exclusive)
    assert {state for key in keys for state in fake.states(data_dir, key).values()} == {
        RunState.FINISHED
    }


def span(data_dir: DataDir, experiment_id: str) -> tuple[float, float]:
    """When its first run was claimed and its last one had ended."""
    runs = fake.run_dirs(data_dir, experiment_id).values()
    claims, ends = [run.read_claim() for run in runs], [run.read_exit() for run in runs]
    assert all(claims) and all(ends)
    return min(record.time for record in claims if record), max(
        record.time for record in ends if record
    )


def overlap(first: tuple[float, float], second: tuple[float, float]) -> bool:
    return first[0] < second[1] and second[0] < first[1]


def are_apart(spans: Iterable[tuple[float, float]]) -> bool:
    return all(ended <= began for (_, ended), (began, _) in pairwise(sorted(spans)))


def blocks_of(*runs: RunDir) -> list[tuple[float, float]]:
    return [(block["began"], block["time"]) for run in runs for block in fake.events(run, "block")]


def test_experiments_that_name_cpus_apart_run_at_the_same_time_and_keep_to_them(
    data_dir: DataDir,
) -> None:
    first_cpu, second_cpu = (str(number) for number in CPUS[:2])
    first = submit(data_dir, fake.experiment("slow", steps=4, cpus=first_cpu))
    second = submit(data_dir, fake.experiment("slow", steps=4, cpus=second_cpu))
    third = submit(data_dir, fake.experiment(cpus=second_cpu))
    worked_off(data_dir, first, second, third)
    spans = {key: span(data_dir, key) for key in (first, second, third)}
    assert overlap(spans[first], spans[second]) and are_apart([spans[second], spans[third]])
    for key, cpu in ((first, first_cpu), (second, second_cpu)):
        for run in fake.run_dirs(data_dir, key).values():
            claim = run.read_claim()
            assert claim is not None and (claim.devices, claim.cpus) == (("cpu",), cpu)
            said = fake.events(run, "phase")[0]["cpus"]
            assert said == [int(cpu)], "what the process itself says"


def test_each_of_two_devices_has_an_experiment_and_any_one_goes_where_there_is_room(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch was not asked for them, as when a user's script queues experiments."""
    answers(monkeypatch, ANSWER)
    four = CpuAllowance(num_in_machine=4, cpus=frozenset(range(4)), quota=None)
    monkeypatch.setattr("breakeven.runner.machine.occupancy.cpu_allowance", lambda: four)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: None)
    keys = [
        submit(data_dir, fake.experiment("slow", steps=4, devices=(device,)))
        for device in ("cuda:0", "cuda:1", "cuda")
    ]
    worked_off(data_dir, *keys)
    places: dict[str, list[tuple[float, float]]] = {}
    for key in keys:
        runs = fake.run_dirs(data_dir, key).values()
        (place,) = {(*claim.devices, claim.cpus) for run in runs if (claim := run.read_claim())}
        assert {tuple(fake.events(run, "phase")[0]["devices"]) for run in runs} == {place[:1]}
        places.setdefault(place[0], []).append(span(data_dir, key))
        assert place in (("cuda:0", "0-1"), ("cuda:1", "2-3"))
    assert set(places) == {"cuda:0", "cuda:1"} and all(map(are_apart, places.values()))
    assert overlap(places["cuda:0"][0], places["cuda:1"][0])


def test_a_torch_that_does_not_answer_is_asked_once(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    answers(monkeypatch, f"open({str(calls)!r}, 'a').write('once '); raise SystemExit(1)")
    worked_off(data_dir, *(submit(data_dir, fake.experiment(devices=("cuda:0",))) for _ in "ab"))
    assert calls.read_text() == "once "


def test_torch_is_not_called_before_an_experiment_that_has_it_called_while_its_runs_load(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    answers(monkeypatch, f"open({str(calls)!r}, 'a').write('called '); {ANSWER}")
    single = fake.experiment(devices=("cuda:0",))
    worked_off(data_dir, submit(data_dir, single, is_checked=False))
    assert not calls.exists()
    # Two devices cannot be given while one alone is likely to be there.
    double = fake.experiment(
        "eager", "late", devices=("cuda", "cuda"), training=TrainingSpec(batch_size=2)
    )
    worked_off(data_dir, submit(data_dir, double, is_checked=False))
    assert calls.read_text() == "called "


def test_what_is_submitted_meanwhile_begins_beside_what_runs_or_waits_and_each_can_be_stopped(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    first_cpu, second_cpu = (str(number) for number in CPUS[:2])
    hang = fake.queued(data_dir, "hang", name="long", cpus=first_cpu)["hang"]
    first = hang.read_spec().experiment_id
    with fake.supervised(data_dir, lambda: hang.state is RunState.RUNNING):
        second = submit(data_dir, fake.experiment(cpus=second_cpu))
        wait_until(lambda: set(fake.states(data_dir, second).values()) == {RunState.FINISHED})
        assert hang.state is RunState.RUNNING
        third = submit(data_dir, fake.experiment(name="short"))
        cli.main(["queue", f"--data-folder={data_dir.path}"])
        for experiment_id in (third, first):
            cancel(find_experiment(data_dir, experiment_id))
    assert hang.state is RunState.CANCELLED
    said = capsys.readouterr().out
    assert f"running: {first}  long  (cpu, CPUs {first_cpu})" in said
    assert f"1. {third}  short  (waits for {first})" in said


@pytest.mark.parametrize(
    "wish", ["of the experiment", pytest.param("of the supervisor", marks=pytest.mark.slow)]
)
def test_what_is_to_be_alone_runs_alone(data_dir: DataDir, wish: str) -> None:
    alone = wish == "of the experiment"
    keys = [
        submit(data_dir, fake.experiment(cpus=str(cpu), exclusive=alone and place == 1))
        for place, cpu in enumerate([CPUS[0], CPUS[1], CPUS[0]])
    ]
    worked_off(data_dir, *keys, exclusive=not alone)
    spans = [span(data_dir, key) for key in keys]
    assert are_apart(spans) and spans == sorted(spans)


def test_cpus_that_are_not_there_are_named_and_nothing_starts(data_dir: DataDir) -> None:
    (run,) = fake.ran(data_dir, cpus="4000").values()
    ended = run.read_exit()
    assert ended is not None and ended.state is RunState.FAILED
    assert "cpus = 4000: this machine has CPUs" in ended.reason
    assert run.read_claim() is None


@pytest.mark.parametrize("compile", ["alone", "together"])
def test_those_that_compile_do_so_side_by_side_only_if_asked_and_only_in_the_first_round(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, compile: str
) -> None:
    fake.allow_cpus(monkeypatch, *range(4))
    tuned = "inductor:mode=max-autotune-no-cudagraphs"
    runs = fake.ran(data_dir, "slow", "slower", tuned, steps=4, block_steps=2, compile=compile)
    assert set(fake.states_of(runs).values()) == {RunState.FINISHED}
    blocks_by_label = {label: blocks_of(run) for label, run in runs.items()}
    assert overlap(blocks_by_label["slow"][0], blocks_by_label["slower"][0]) == (
        compile == "together"
    )
    apart = [blocks[0] for label, blocks in blocks_by_label.items() if not label.startswith("slow")]
    apart += [blocks[1] for blocks in blocks_by_label.values()]
    every = [block for blocks in blocks_by_label.values() for block in blocks]
    assert not [
        (block, other)
        for block in apart
        for other in every
        if block != other and overlap(block, other)
    ]
