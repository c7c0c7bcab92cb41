"""The doctor: each ailment is built for real, and found; what is healthy is said to be."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch._inductor import config as inductor_config

from breakeven.runner import notifications
from breakeven.runner.commands.cli import main
from breakeven.runner.commands.doctor import write_bundle
from breakeven.runner.doctor import data_folder_checks, machine_checks, process_checks
from breakeven.runner.doctor.examination import quick_findings
from breakeven.runner.doctor.health_finding import Finding, Health, worst
from breakeven.runner.doctor.process_checks import check_supervisor
from breakeven.runner.experiments.queue import submit
from breakeven.runner.processes import RUN_VARIABLE, ProcessIdentity
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Claim
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.worker.probe import try_devices
from tests.helpers.journals import EXPERIMENT_ID, GONE, record_experiment
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.heavy
CANARY = "canary-0f9e8d7c6b5a"
STEP = json.dumps({"v": 1, "seq": 0, "kind": "step", "time": 1.0}) + "\n"
HOLDER = """
import sys, time
from pathlib import Path
from breakeven.runner.files import FileLock
assert FileLock(Path(sys.argv[1])).try_acquire()
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(data_dir: DataDir) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds the supervisor's lock, as one at work does."""
    data_dir.path.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(data_dir.supervisor_lock)],
        cwd=PROJECT_ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def claimed(data_dir: DataDir, process: ProcessIdentity = GONE, ahead: float = 0.0) -> str:
    """Queues an experiment of one run that some process claimed, whose supervisor is gone."""
    experiment_id = submit(data_dir, ExperimentSpec(name="orphan", backends=(), controls=0))
    run = data_dir.run_dir(f"{experiment_id}.baseline")
    run.write_claim(
        Claim(host=socket.gethostname(), process=process, supervisor=GONE, time=time.time() + ahead)
    )
    return run.run_id


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_torch")
def test_a_healthy_machine_and_folder_say_so_and_the_status_is_0(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The devices are tried in this process, which has torch; those of the command are a process
    for all and one for torch."""
    record_experiment(data_dir.runs)
    monkeypatch.setattr(
        machine_checks, "ask_torch", lambda *_: json.loads(json.dumps(try_devices()))
    )
    with inductor_config.patch(fx_graph_cache=False, cpp_cache_precompile_headers=False):
        assert main(["doctor", "--json", f"--data-folder={data_dir.path}"]) == 0
    findings = {
        finding["subject"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]
    }
    unwell = [
        finding
        for finding in findings.values()
        if finding["health"] != "ok" and finding["subject"] != "Disk"
    ]
    assert not unwell
    assert {
        "Python",
        "Packages",
        "Notifications",
        "torch",
        "Device cpu",
        "GPU driver",
        "Disk",
        "Data folder",
        "Settings",
        "Supervisor",
        "Dashboard",
        "Orphaned runs",
        "Orphaned processes",
        "Run folders",
        "Journals",
    } <= findings.keys()
    assert "code of inductor computes the same" in findings["Device cpu"]["evidence"]
    assert findings["Run folders"]["evidence"] == "3 can be read"


def test_a_package_of_another_version_and_one_that_is_missing_are_told_apart() -> None:
    other = machine_checks.check_packages(["pytest==0.1", "torch>=2.6"], "pip install this")
    assert other.health is Health.DOUBTFUL and "torch" not in other.evidence
    assert "pytest" in other.evidence and "instead of ==0.1" in other.evidence
    assert other.remedy == "`pip install this`"
    missing = machine_checks.check_packages(["nobody-made-this==1.0"], "pip install this")
    assert missing.health is Health.WRONG
    assert missing.evidence == "not installed: nobody-made-this"
    of_extra = machine_checks.check_packages(["torch", 'nobody-made-this; extra == "ui"'], "")
    assert of_extra.health is Health.OK and "without extras: nobody-made-this" in of_extra.evidence
    assert machine_checks.check_packages(*machine_checks.required_packages()).health is Health.OK


def test_a_gpu_that_the_driver_has_and_torch_does_not_see_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 470.57'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    unseen = machine_checks.check_driver(sees_gpu=False, torch_version="2.13.0+cpu")
    assert unseen.health is Health.WRONG and "470.57" in unseen.evidence
    assert (
        machine_checks.check_driver(sees_gpu=True, torch_version="2.13.0+cu130").health is Health.OK
    )
    tool.write_text("#!/bin/sh\necho 'Driver/library version mismatch'\nexit 18\n")
    mismatch = machine_checks.check_driver(sees_gpu=True, torch_version="2.13.0+cu130")
    assert mismatch.health is Health.WRONG and "mismatch" in mismatch.evidence


def test_a_torch_that_cannot_be_imported_is_reported_and_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13 is missing')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (finding,) = machine_checks.check_devices()
    assert finding.health is Health.WRONG and "libcudart.so.13 is missing" in finding.evidence


def test_a_disk_without_room_or_without_inodes_is_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3g,nr_inodes=50", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a file system of its own")
    try:
        (few,) = [
            finding
            for finding in data_folder_checks.check_disk(DataDir(folder))
            if finding.subject == "Disk"
        ]
        assert few.health is Health.WRONG and "more files" in few.evidence
        subprocess.run(["mount", "-o", "remount,size=100m,nr_inodes=9000", str(folder)], check=True)
        (full,) = [
            finding
            for finding in data_folder_checks.check_disk(DataDir(folder))
            if finding.subject == "Disk"
        ]
        assert full.health is Health.WRONG and "0.1 GB free" in full.evidence
        assert "clean --budget" in full.remedy
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        sealed = data_folder_checks.check_writable(DataDir(folder))
        assert sealed.health is Health.WRONG and "Read-only file system" in sealed.evidence
        assert data_folder_checks.check_writable(DataDir(folder / "new")).health is Health.WRONG
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_what_waits_without_a_supervisor_is_wrong_unless_the_queue_is_paused(
    data_dir: DataDir,
) -> None:
    submit(data_dir, ExperimentSpec(name="waits"))
    finding = check_supervisor(data_dir)
    assert finding.health is Health.WRONG and "1 experiment waiting" in finding.evidence
    assert "`breakeven queue start`" in finding.remedy and finding.repair is None
    assert main(["queue", "pause", f"--data-folder={data_dir.path}"]) == 0
    assert check_supervisor(data_dir).health is Health.OK


def test_a_supervisor_that_was_stopped_or_hangs_is_wrong_though_it_holds_the_lock(
    data_dir: DataDir, holder: "subprocess.Popen[str]"
) -> None:
    assert check_supervisor(data_dir).health is Health.OK
    long_ago = time.time() - 100
    os.utime(data_dir.supervisor_lock, (long_ago, long_ago))
    hangs = check_supervisor(data_dir)
    assert hangs.health is Health.WRONG and f"`kill -9 {holder.pid}`" in hangs.remedy
    os.kill(holder.pid, signal.SIGSTOP)
    wait_until(lambda: f"`kill -CONT {holder.pid}`" in check_supervisor(data_dir).remedy)
    assert check_supervisor(data_dir).health is Health.WRONG


@pytest.mark.parametrize("stopped", [False, True])
def test_a_run_that_vanished_is_found_and_repaired(data_dir: DataDir, stopped: bool) -> None:
    run = data_dir.run_dir(claimed(data_dir))
    run.events_file.write_text(STEP)
    if stopped:
        run.request_cancel()
    finding = process_checks.check_orphaned_runs(data_dir)
    assert finding.health is Health.WRONG and run.run_id in finding.evidence
    said = finding.repair()
    assert said.startswith("1 recorded as ended" if stopped else "0 recorded as ended, 1 queued")
    assert run.state is (RunState.CANCELLED if stopped else RunState.QUEUED)
    assert run.is_recorded is stopped
    assert process_checks.check_orphaned_runs(data_dir).health is Health.OK


def test_a_process_that_outlived_its_run_is_found_and_ended_and_no_other(data_dir: DataDir) -> None:
    run = data_dir.run_dir(claimed(data_dir))
    sleep = ["sleep", "600"]
    left = subprocess.Popen(
        sleep, env={**os.environ, RUN_VARIABLE: str(run.path)}, start_new_session=True
    )
    elsewhere = subprocess.Popen(sleep, env={**os.environ, RUN_VARIABLE: f"{run.path}-other"})
    try:
        # `Popen` returns a little before the process has its variables.
        wait_until(lambda: Path(f"/proc/{left.pid}/environ").read_bytes() != b"")
        finding = process_checks.check_orphaned_processes(data_dir)
        assert finding.health is Health.WRONG and f" {left.pid} " in finding.evidence
        assert str(elsewhere.pid) not in finding.evidence and finding.repair is not None
        assert finding.repair() == "1 processes ended"
        assert left.wait(PATIENCE_SECONDS) == -signal.SIGKILL and elsewhere.poll() is None
        assert process_checks.check_orphaned_processes(data_dir).health is Health.OK
    finally:
        for process in (left, elsewhere):
            process.kill()
            process.wait()


def test_damaged_folders_are_named(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs)
    data_dir.run_dir(f"{EXPERIMENT_ID}.control").spec_file.write_text("{")
    damaged, journals = data_folder_checks.check_run_folders(data_dir)
    assert damaged.health is Health.DOUBTFUL and f"{EXPERIMENT_ID}.control" in damaged.evidence
    assert damaged.repair is None and journals.health is Health.OK


def test_settings_that_cannot_be_used_are_wrong(data_dir: DataDir) -> None:
    data_dir.make()
    assert data_folder_checks.check_settings(data_dir).health is Health.OK
    (data_dir.path / "breakeven.toml").write_text("[serving]\nport = 'x'\n")
    finding = data_folder_checks.check_settings(data_dir)
    assert finding.health is Health.WRONG and "serving.port = 'x'" in finding.evidence


def test_a_test_notification_that_does_not_arrive_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        machine_checks.check_notifications(notify=True).evidence
        == "addresses: none (BREAKEVEN_NOTIFY)"
    )
    monkeypatch.setattr(notifications, "PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("BREAKEVEN_NOTIFY", f"json://127.0.0.1:9/{CANARY}")
    assert machine_checks.check_notifications().health is Health.OK
    finding = machine_checks.check_notifications(notify=True)
    assert finding.health is Health.WRONG and "the test did not arrive: " in finding.evidence
    assert "addresses: JSON" in finding.evidence and CANARY not in finding.evidence


def test_a_check_that_fails_itself_is_reported_and_hides_no_other(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_dir.path.mkdir(parents=True)
    monkeypatch.setattr(data_folder_checks, "check_settings", lambda folder: 1 / 0)
    by_subject = {finding.subject: finding for finding in quick_findings(data_dir)}
    assert "Data folder" in by_subject and "Supervisor" in by_subject
    assert by_subject["Disk"].health is Health.UNKNOWN or "ZeroDivisionError" in str(by_subject)


def test_what_is_wrong_outweighs_what_is_doubtful_and_that_what_is_unknown() -> None:
    order = [Health.OK, Health.UNKNOWN, Health.DOUBTFUL, Health.WRONG]
    findings = [Finding(subject="one", health=health, evidence="") for health in order]
    assert [worst(findings[:count]) for count in range(1, 5)] == order
    assert worst(findings[::-1]) is Health.WRONG and worst([]) is Health.OK


def printed_a_secret(data_dir: DataDir) -> str:
    """Records an experiment; the run of it that printed secrets."""
    record_experiment(data_dir.runs)
    run = data_dir.run_dir(f"{EXPERIMENT_ID}.control")
    run.output_file.write_text(
        f"{CANARY}\nhttps://me:hunter2hunter2@host/x\n{Path.home()}/secret-project\n/home/jane/x\n"
    )
    return run.run_id


def expect_no_secret(bundle_file: Path, run_id: str) -> None:
    with zipfile.ZipFile(bundle_file) as bundle:
        texts = {name: bundle.read(name).decode() for name in bundle.namelist()}
    assert {"findings.json", "system.json", "README.txt"} <= texts.keys()
    output = texts[f"runs/{run_id}/output.log"]
    assert output.startswith("[masked]\nhttps://[masked]@host/x\n~/secret-project\n~/x\n")
    everything = "".join(texts.values())
    assert CANARY not in everything and "hunter2hunter2" not in everything


def test_a_bundle_has_what_the_last_runs_said_and_no_secret(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = printed_a_secret(data_dir)
    monkeypatch.setenv("SOME_API_TOKEN", CANARY)
    finding = Finding(subject="one", health=Health.OK, evidence=f"its token is {CANARY}")
    assert write_bundle(data_dir, [finding], tmp_path / "bundle.zip") > 3
    expect_no_secret(tmp_path / "bundle.zip", run_id)


@pytest.mark.slow
def test_the_command_repairs_what_is_safe_tells_the_rest_and_bundles_without_a_secret(
    data_dir: DataDir, tmp_path: Path
) -> None:
    run_id = printed_a_secret(data_dir)
    lost = data_dir.run_dir(claimed(data_dir))
    lost.request_cancel()  # or it would begin anew, which the doctor cannot do
    lost.events_file.write_text(STEP)
    file = tmp_path / "bundle.zip"
    command = [sys.executable, "-m", "breakeven", "doctor", f"--data-folder={data_dir.path}"]
    said = subprocess.run(
        [*command, "--repair", f"--bundle={file}"],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "SOME_API_TOKEN": CANARY},
    )
    assert said.returncode == 0, said.stdout + said.stderr
    assert "Orphaned runs: 1 recorded as ended" in said.stderr
    assert lost.is_recorded
    expect_no_secret(file, run_id)
