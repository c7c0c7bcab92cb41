"""A canary in the supervisor's environment sings in no file: not in what hostile code prints,
raises and records, nor in logs, databases, and whatever leaves the machine: reports, archives,
and bundles."""

import base64
import gzip
import io
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from breakeven.runner.commands.doctor import write_bundle
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.experiments.queue import submit
from breakeven.runner.machine.run_variables import run_variables, variable_hint, withheld_names
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec
from breakeven.storage import queries
from breakeven.storage.exchange.csv_and_parquet import TABLE_FORMATS
from breakeven.storage.exchange.run_folders import pack
from breakeven.storage.index.store import Store
from breakeven.views.report.content import content
from breakeven.views.report.menu import everything
from breakeven.views.report.report_files import report_of
from tests.helpers.loop import FAULTS, NET
from tests.runner.supervision.supervised import SUPERVISE

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
PACKED = re.compile(rb"[A-Za-z0-9+/]{100,}={0,2}")


def layers(content: bytes) -> Iterator[bytes]:
    """The content, and what is packed in it: archives, gzip, base64, one in the other."""
    yield content
    if content[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield from layers(archive.read(name))
    elif content[:2] == b"\x1f\x8b":
        yield from layers(gzip.decompress(content))
    else:
        for packed in PACKED.findall(content):
            inner = base64.b64decode(packed[: len(packed) // 4 * 4], validate=False)
            if inner[:2] in (b"PK", b"\x1f\x8b"):
                yield from layers(inner)


def files_with(folder: Path, *words: str) -> list[str]:
    """Every file in which one of the words stands, however it is packed."""
    return [
        file.name
        for file in folder.rglob("*")
        if file.is_file()
        if any(word.encode() in layer for layer in layers(file.read_bytes()) for word in words)
    ]


@pytest.fixture(scope="module")
def spied(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run of code that looks for secrets and says what it finds, in every way that there is."""
    folder = tmp_path_factory.mktemp("spied")
    code = folder / "code"
    code.mkdir()
    (code / "spy.py").write_text(HOSTILE)
    data_dir = DataDir(folder / "data")
    environment = {
        **os.environ,
        "HF_TOKEN": PASSED,
        "CLOUD_SECRET_KEY": WITHHELD,
        "MY_DATA_ROOT": "/somewhere",
        "BREAKEVEN_PASS": "HF_TOKEN",
        "BREAKEVEN_CODE": f"{code}:{FAULTS}",
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("BREAKEVEN_CODE", f"{code}:{FAULTS}")
        experiment_id = submit(
            data_dir,
            ExperimentSpec(
                name="spied",
                backends=(),
                controls=0,
                callbacks=(f"{code}/spy.py:Spy",),
                **NET,
                training=TrainingSpec(batch_size=4),
            ),
        )
    with (data_dir.path / "supervisor.log").open("w") as output:
        subprocess.run(
            [sys.executable, "-c", SUPERVISE, str(data_dir.path)],
            cwd=PROJECT_ROOT,
            env=environment,
            stdout=output,
            stderr=output,
            check=True,
        )
    return data_dir.run_dir(f"{experiment_id}.baseline")


def test_no_file_has_a_secret_that_hostile_code_saw_or_looked_for(spied: RunDir) -> None:
    assert spied.state is RunState.FAILED
    printed = spied.output_file.read_text()
    assert "HF_TOKEN=[masked]" in printed and "https://[masked]@example.org" in printed
    assert "0 characters of the other" in printed and "MY_DATA_ROOT=" not in printed
    events = {event["kind"]: event for event in read_events(spied.events_file)[0]}
    assert events["environment"]["variables"]["HF_TOKEN"] == "[masked]"
    assert {"CLOUD_SECRET_KEY", "MY_DATA_ROOT"} <= {*events["environment"]["withheld_variables"]}
    assert "the token is [masked]" in events["error"]["message"]
    data_dir = DataDir(spied.path.parents[1])
    assert f"{spied.run_id}: failed" in (data_dir.logs / "supervisor.jsonl").read_text()
    # The spy itself has the names of variables only.
    assert not files_with(data_dir.path.parent, PASSED, WITHHELD)


def test_nothing_that_leaves_the_machine_has_a_secret(
    spied: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", PASSED)
    monkeypatch.setenv("CLOUD_SECRET_KEY", WITHHELD)
    data_dir, experiment_id = DataDir(spied.path.parents[1]), spied.run_id.partition(".")[0]
    out = tmp_path / "out"
    out.mkdir()
    write_bundle(data_dir, [], out / "bundle.zip")
    with Store.open(data_dir) as store:
        store.ingest_all()
        (out / "report.html").write_text(report_of(store, [experiment_id]))
        data = content(store, experiment_id)
        (out / "all.zip").write_bytes(everything(store, data, pictures=()))
        for name, table in (
            ("runs", queries.list_runs(store, experiment_id)),
            ("experiments", queries.list_experiments(store)),
        ):
            for kind in TABLE_FORMATS.values():
                (out / f"{name}.{kind.suffix}").write_bytes(kind.to_bytes(table))
    (out / "runs.zip").write_bytes(pack([spied.path]))
    # What was looked through is what hostile code said.
    for file in (out / "report.html", out / "runs.zip", out / "bundle.zip"):
        assert any(b"the token is [masked]" in layer for layer in layers(file.read_bytes())), file
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
        "PATH": "/bin",
        "LD_LIBRARY_PATH": "/lib",
        "CUDA_VISIBLE_DEVICES": "0",
        "HF_HOME": "/hub",
        "OMP_NUM_THREADS": "2",
        "https_proxy": "http://proxy",
        "HF_TOKEN": PASSED,
        "AWS_SECRET_ACCESS_KEY": "x",
        "MY_ROOT": "/data",
        "OTHER": "1",
        "BREAKEVEN_PASS": "MY_ROOT, AWS_SECRET_ACCESS_KEY",
    }
    assert withheld_names(environment) == ["HF_TOKEN", "OTHER"]
    assert run_variables(environment) == {
        **{name: value for name, value in environment.items() if name not in ("HF_TOKEN", "OTHER")},
        "BREAKEVEN_WITHHELD": "HF_TOKEN,OTHER",
    }


def test_a_run_that_fails_for_want_of_a_variable_says_which() -> None:
    names = ["HF_TOKEN", "MY_ROOT", "OLDPWD"]
    assert "BREAKEVEN_PASS=MY_ROOT" in variable_hint("KeyError: 'MY_ROOT'", names)
    assert "BREAKEVEN_PASS=HF_TOKEN" in variable_hint(
        "401 Client Error: you need `hf auth login`", names
    )
    assert variable_hint("KeyError: 'MY_ROOTS'", names) == ""
    assert variable_hint("ValueError: 3", names) == ""
