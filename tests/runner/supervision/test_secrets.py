"""A canary in the supervisor's environment sings in no file: not in what hostile code prints,
raises and records, nor in logs, databases, reports and bundles."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from runner.doctor.bundle import write_bundle
from runner.errors import InvalidSpec
from runner.folders.events import read_events
from runner.folders.queue import PROJECT_ROOT, submit
from runner.folders.run_dir import DataDir
from runner.folders.states import RunState
from runner.machine.variables import for_runs, hint, withheld
from runner.specs.experiment import DataSpec, ExperimentSpec, TrainingSpec
from storage.index.store import Store

pytestmark = pytest.mark.heavy

PASSED, WITHHELD = "canary-passed-1a2b3c", "canary-withheld-4d5e6f"
HOSTILE = """
import os, sys
class Spy:
    def train_begin(self, state):
        for name, value in sorted(os.environ.items()):
            print(f"{name}={value}")
        print("https://me:" + os.environ["HF_TOKEN"] + "@example.org")
        print(len(os.environ.get("CLOUD_SECRET_KEY", "")), "characters of the other", flush=True)
        raise RuntimeError("the token is " + os.environ["HF_TOKEN"])
"""
SUPERVISE = """
import sys
from runner.folders.run_dir import DataDir
from runner.supervision import supervisor
supervisor.LINGER_SECONDS = 0.0
supervisor.supervise(DataDir(sys.argv[1]))
"""


def files_with(folder: Path, *words: str) -> list[str]:
    """Every file in which one of the words stands, those in archives too."""
    found = []
    for file in folder.rglob("*"):
        if file.is_file():
            contents = [file.read_bytes()]
            if zipfile.is_zipfile(file):
                with zipfile.ZipFile(file) as archive:
                    contents += [archive.read(name) for name in archive.namelist()]
            if any(word.encode() in content for word in words for content in contents):
                found.append(file.name)
    return found


def test_no_file_has_a_secret_that_hostile_code_saw_or_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "spy.py").write_text(HOSTILE)
    monkeypatch.setenv("BREAKEVEN_CODE", str(code))
    data_dir = DataDir(tmp_path / "data")
    experiment_id = submit(data_dir, ExperimentSpec(
        name="spied", backends=(), controls=0, callbacks=(f"{code}/spy.py:Spy",),
        data=DataSpec(num_train_samples=64, num_eval_samples=8, sequence_length=8),
        training=TrainingSpec(batch_size=4),
    ))  # fmt: skip
    environment = {**os.environ, "HF_TOKEN": PASSED, "CLOUD_SECRET_KEY": WITHHELD,
                   "MY_DATA_ROOT": "/somewhere", "BREAKEVEN_PASS": "HF_TOKEN"}  # fmt: skip
    with (data_dir.path / "supervisor.log").open("w") as output:
        subprocess.run([sys.executable, "-c", SUPERVISE, str(data_dir.path)], cwd=PROJECT_ROOT,
                       env=environment, stdout=output, stderr=output, check=True)  # fmt: skip
    run = data_dir.run_dir(f"{experiment_id}.baseline")
    assert run.state is RunState.FAILED
    printed = run.output_file.read_text()
    assert "HF_TOKEN=[masked]" in printed and "https://[masked]@example.org" in printed
    assert "0 characters of the other" in printed and "MY_DATA_ROOT=" not in printed
    events = {event["kind"]: event for event in read_events(run.events_file)[0]}
    assert events["environment"]["variables"]["HF_TOKEN"] == "[masked]"
    assert {"CLOUD_SECRET_KEY", "MY_DATA_ROOT"} <= {*events["environment"]["withheld_variables"]}
    assert "the token is [masked]" in events["error"]["message"]
    monkeypatch.setenv("HF_TOKEN", PASSED)
    write_bundle(data_dir, [], data_dir.path / "bundle.zip")
    with Store.open(data_dir) as store:
        store.ingest_all()
    logged = (data_dir.logs / "supervisor.jsonl").read_text()
    assert f"{run.run_id}: failed" in logged
    # The spy itself has the names of variables only.
    assert not files_with(tmp_path, PASSED, WITHHELD)


def test_a_specification_with_a_secret_is_refused_and_the_refusal_does_not_tell_it(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_SECRET_KEY", WITHHELD)
    for name in (f"with {WITHHELD}", "from https://me:hunter2hunter2@example.org/x"):
        with pytest.raises(InvalidSpec, match="BREAKEVEN_PASS") as refused:
            submit(data_dir, ExperimentSpec(name=name))
        assert refused.value.field == "name"
        assert WITHHELD not in str(refused.value) and "hunter2" not in str(refused.value)
    assert not data_dir.runs.exists() or not list(data_dir.runs.iterdir())


def test_a_run_gets_what_a_training_needs_and_secrets_only_by_name() -> None:
    environment = {
        "PATH": "/bin", "LD_LIBRARY_PATH": "/lib", "CUDA_VISIBLE_DEVICES": "0", "HF_HOME": "/hub",
        "OMP_NUM_THREADS": "2", "https_proxy": "http://proxy", "HF_TOKEN": PASSED,
        "AWS_SECRET_ACCESS_KEY": "x", "MY_ROOT": "/data", "OTHER": "1",
        "BREAKEVEN_PASS": "MY_ROOT, AWS_SECRET_ACCESS_KEY",
    }  # fmt: skip
    assert withheld(environment) == ["HF_TOKEN", "OTHER"]
    assert for_runs(environment) == {
        **{name: value for name, value in environment.items() if name not in ("HF_TOKEN", "OTHER")},
        "BREAKEVEN_WITHHELD": "HF_TOKEN,OTHER",
    }


def test_a_run_that_fails_for_want_of_a_variable_says_which() -> None:
    names = ["HF_TOKEN", "MY_ROOT", "OLDPWD"]
    assert "BREAKEVEN_PASS=MY_ROOT" in hint("KeyError: 'MY_ROOT'", names)
    assert "BREAKEVEN_PASS=HF_TOKEN" in hint("401 Client Error: you need `hf auth login`", names)
    assert hint("KeyError: 'MY_ROOTS'", names) == ""
    assert hint("ValueError: 3", names) == ""
