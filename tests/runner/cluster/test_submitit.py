"""Experiments as jobs through submitit: of its local executor, or of the Slurm of this machine,
`BREAKEVEN_TEST_CLUSTER=slurm`.

Run by `make test-slow MARK=cluster`; docs/devices.md describes clusters.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.queue import cancel, find_experiment, submit
from breakeven.runner.machine.placement import Place
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from tests.helpers.waiting import wait_until
from tests.runner.cluster.test_ray import check_whole
from tests.runner.supervision.test_supervisor import events, experiment, run_dirs, states
from tests.runner.supervision.witness import Witness

pytestmark = [pytest.mark.cluster, pytest.mark.heavy]
DRIVE = """
import sys
from breakeven.runner.cluster.driver import drive
from breakeven.runner.cluster.submitit_engine import SubmititEngine
from breakeven.runner.protocol.data_dir import DataDir
home = DataDir(sys.argv[1])
engine = SubmititEngine(home, cluster=sys.argv[3], worker=("-m", "tests.helpers.fake_worker"),
                        patience_seconds=float(sys.argv[2]))
drive(home, engine, linger=3.0)
"""
MOST_SECONDS_TOLD_ALIVE = 90.0
"""After a job is killed: it counts as lost when it has shown no sign of life for a minute."""
CLUSTER = os.environ.get("BREAKEVEN_TEST_CLUSTER", "local")
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(data_dir: DataDir) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []
    data_dir.path.mkdir()

    def begin(patience: float = 600.0) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", DRIVE, str(data_dir.path), str(patience), CLUSTER]
        with data_dir.supervisor_log.open("ab") as log:
            started.append(subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=log, stderr=log))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()
    for pid in jobs_of(data_dir):
        os.kill(pid, signal.SIGKILL)


def jobs_of(data_dir: DataDir) -> list[int]:
    """Processes of submitit that work for this data folder."""
    pids = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            said = file.read_bytes()
            if b"submitit.core._submit" in said and str(data_dir.path).encode() in said:
                pids.append(int(file.parent.name))
    return pids


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The programs of Slurm that submitit calls, instead of a Slurm: `sbatch` keeps each job, and
    refuses those whose name says so. The folder of the jobs."""
    programs, jobs = tmp_path / "programs", tmp_path / "jobs"
    programs.mkdir()
    jobs.mkdir()
    for name, text in {
        "srun": "",
        "scancel": "",
        "sbatch": f'if grep -q refused "$1"; then echo "no such partition" >&2; exit 1; fi\n'
        f"number=$(ls {jobs} | wc -l)\n"
        f'cp "$1" {jobs}/$number\necho "Submitted batch job 10$number"\n',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return jobs


def test_each_job_asks_for_its_own_devices_and_a_refused_one_is_an_error_of_its_experiment(
    data_dir: DataDir, slurm: Path
) -> None:
    from breakeven.runner.cluster.submitit_engine import SubmititEngine

    engine = SubmititEngine(data_dir, cluster="slurm", parameters={"slurm_partition": "night"})

    def start(key: str, *devices: str) -> None:
        place = Place(devices=devices, cpus=frozenset({0}))
        engine.start(f"{key}.1", "job 1", place, {"run": {"spec.json": b"{}"}})

    start("four", *(f"cuda:{number}" for number in range(4)))
    with pytest.raises(RunnerError, match=r"Slurm refused the job: .*no such partition"):
        start("refused", "cuda:0")
    assert not (data_dir.path / "cluster" / "refused.1").exists()
    start("none", "cpu")
    options_of_jobs = [
        [
            line.removeprefix("#SBATCH --")
            for line in file.read_text().splitlines()
            if "--gpus" in line or "--job-name" in line or "--partition" in line
        ]
        for file in sorted(slurm.iterdir())
    ]
    assert [sorted(job) for job in options_of_jobs] == [
        ["gpus-per-node=4", "job-name=breakeven-four.1", "partition=night"],
        ["job-name=breakeven-none.1", "partition=night"],
    ]


def test_a_job_adds_no_control_which_home_would_refuse(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    from breakeven.runner.cluster import host, submitit_engine

    given: list[dict[str, object]] = []
    monkeypatch.setattr(host, "run_experiment", lambda *args, **options: given.append(options))
    submitit_engine.work(str(data_dir.path), submit(data_dir, experiment("slow")))
    assert given == [{"takes_controls": False}]
    assert (data_dir.path / "over").exists()


def test_a_job_whose_folder_is_gone_is_lost(data_dir: DataDir, slurm: Path) -> None:
    from breakeven.runner.cluster.driver import JobLost
    from breakeven.runner.cluster.submitit_engine import SubmititEngine

    engine = SubmititEngine(data_dir, cluster="slurm")
    place = Place(devices=("cpu",), cpus=frozenset({0}))
    job = engine.start("gone.1", "job 1", place, {"run": {"spec.json": b"{}"}})
    shutil.rmtree(data_dir.path / "cluster" / "gone.1")
    with pytest.raises(JobLost, match=r"gone\.1 is gone"):
        job.delivery({})


def test_jobs_come_home_whole_although_one_is_killed(data_dir: DataDir, start: Start) -> None:
    keys = [submit(data_dir, experiment("slow", steps=80)) for _ in range(3)]
    witness = Witness(data_dir, dict.fromkeys(keys, 80))
    driver = start()
    witness.start()
    runs = run_dirs(data_dir, keys[0])
    wait_until(lambda: bool(events(runs["slow"], "block")))
    job = (data_dir.path / "cluster" / f"{keys[0]}.1" / "job").read_text()
    variable = "SLURM_JOB_ID" if CLUSTER == "slurm" else "SUBMITIT_LOCAL_JOB_ID"
    mark = f"{variable}={job}\0".encode()
    doomed = [pid for pid in jobs_of(data_dir) if mark in Path(f"/proc/{pid}/environ").read_bytes()]
    assert doomed
    for pid in doomed:
        os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    driver.wait(timeout=240)
    witness.stop()
    alive = witness.seconds_shown_alive(keys[0], killed)
    sys.stdout.write(
        f"{witness.num_looks} looks; {time.monotonic() - killed:.0f} s from the kill to the end; "
        f"the runs of the lost job were shown as running for {alive:.1f} s longer\n"
    )
    assert witness.wrong == [] and witness.num_looks > 20
    assert alive < MOST_SECONDS_TOLD_ALIVE
    for key in keys:
        check_whole(data_dir, key, 80)
    attempts = {key: run_dirs(data_dir, key)["slow"].attempt for key in keys}
    assert attempts == {keys[0]: 2, keys[1]: 1, keys[2]: 1}
    assert not list((data_dir.path / "cluster").glob(f"{keys[1]}*")), "all of it is at home"


def test_a_new_driver_continues_jobs_and_stops_runs_on_request(
    data_dir: DataDir, start: Start
) -> None:
    key, long = submit(data_dir, experiment("slow", steps=80)), submit(data_dir, experiment("hang"))
    first = start()
    runs = run_dirs(data_dir, key)
    wait_until(lambda: bool(events(runs["slow"], "block")))
    wait_until(lambda: states(data_dir, long)["hang"] is RunState.RUNNING)
    first.kill()
    first.wait()
    assert runs["slow"].state is RunState.LOST
    before = runs["slow"].events_file.read_bytes()
    time.sleep(1)
    second = start()
    wait_until(lambda: runs["slow"].state is RunState.RUNNING)
    cancel(find_experiment(data_dir, long))
    second.wait(timeout=120)
    assert runs["slow"].events_file.read_bytes().startswith(before)
    check_whole(data_dir, key, 80)
    assert runs["slow"].attempt == 1
    assert states(data_dir, long)["hang"] is RunState.CANCELLED


def test_a_job_that_nobody_asks_for_ends(data_dir: DataDir, start: Start) -> None:
    key = submit(data_dir, experiment("hang"))
    driver = start(patience=3.0)
    wait_until(lambda: states(data_dir, key)["hang"] is RunState.RUNNING)
    driver.kill()
    driver.wait()
    wait_until(lambda: not jobs_of(data_dir))
