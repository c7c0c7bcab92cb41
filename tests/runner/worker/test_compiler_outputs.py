"""What a run keeps of its compiler on request: graphs, code, and a trace that opens in tlparse."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.specs.experiment import EvaluationSpec, RunSpec
from breakeven.storage import queries
from breakeven.storage.compiling.two_runs import code_difference, kept_of
from breakeven.storage.index.store import Store
from tests.faults.trial import FOLDER, WORKLOADS
from tests.helpers.loop import of_kind
from tests.helpers.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    """One run in a process of its own, whose environment torch reads when it is imported."""
    data_dir = DataDir(tmp_path_factory.mktemp("kept") / "data")
    # `aot_eager` has all graphs; generated code would take a compiler of C++ half a minute.
    net = WORKLOADS["relu net"]
    spec = replace(
        net,
        training=replace(net.training, max_steps=4, optimizer="SGD"),
        backends=("aot_eager",),
        evaluation=EvaluationSpec(when="never"),
        keep_code=True,
        keep_trace=True,
    )
    run_spec = RunSpec(experiment_id="x", experiment=spec, arm=spec.arms[-1])
    run = data_dir.run_dir(run_spec.run_id)
    run.write_spec(run_spec)
    done = subprocess.run(
        [sys.executable, "-m", "breakeven.runner.worker", str(run.path)],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, CODE_VARIABLE: str(FOLDER)},
    )
    assert done.returncode == 0, done.stderr
    return data_dir


def events(folder: DataDir) -> list[dict[str, Any]]:
    return read_events(folder.run_dir("x.aot_eager").events_file)[0]


def test_every_graph_of_the_compiler_is_kept_with_its_compilation(folder: DataDir) -> None:
    kept = of_kind(events(folder), "kept_file")
    kinds = {entry["what"] for entry in kept}
    assert kinds >= {"graph of Dynamo", "forward graph", "backward graph", "trace"}
    compiled = {metrics["compile_id"] for metrics in of_kind(events(folder), "compile_metrics")}
    run = folder.run_dir("x.aot_eager")
    for entry in kept:
        file = run.path / entry["file"]
        assert file.is_file()
        if entry["what"] != "trace":
            assert entry["compile_id"] in compiled and file.stat().st_size == entry["bytes"]
    (graph, *_) = (entry for entry in kept if entry["what"] == "graph of Dynamo")
    assert "def forward(self" in (run.path / graph["file"]).read_text()
    # A backward that compiles within compiled code comes to its end: it used to wait for ever.
    ends = of_kind(events(folder), "compile_ended")
    assert "LAZY_BACKWARD" in {event["trigger"] for event in ends}


def test_the_trace_opens_in_tlparse(folder: DataDir, tmp_path: Path) -> None:
    (trace,) = (run for run in of_kind(events(folder), "kept_file") if run["what"] == "trace")
    file = folder.run_dir("x.aot_eager").path / trace["file"]
    tlparse = Path(sys.executable).with_name("tlparse")
    command = shutil.which(str(tlparse)) or shutil.which("tlparse")
    assert command, "pip install -r requirements-dev.txt"
    done = subprocess.run(
        [command, str(file), "-o", str(tmp_path / "out"), "--no-browser"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "index.html").read_text()
    assert "[0/0]" in page and "iterate" in page


def test_what_is_kept_can_be_read_from_the_run_folder_alone(folder: DataDir) -> None:
    with Store.in_memory(folder) as store:
        record = queries.run_record(store, "x.aot_eager")
        kept = kept_of(store, record)
    assert len(kept) == len(of_kind(events(folder), "kept_file"))
    graph = next(file for file in kept if file.what == "graph of Dynamo")
    assert "def forward(self" in graph.read(10_000).decode()
    assert code_difference(kept, kept) == []
    without = [file for file in kept if file.name != graph.name]
    ((name, difference),) = code_difference(kept, without)
    assert name == graph.name and "\n-" in difference and "\n+d" not in difference
