"""Experiments are written in the formats of PyTorch's own benchmarks."""

import csv
import json
from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import CacheSpec
from breakeven.storage.__main__ import main
from breakeven.storage.exchange.imports import import_any, imported_rows
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)

pytestmark = pytest.mark.heavy  # whole commands over stores of their own: many seconds

SPEC = experiment_spec(num_steps=80, block_steps=10)
LOSSES = falling_losses(80)
PERFORMANCE_HEADER = (
    "dev,name,batch_size,tag,speedup,abs_latency,compilation_latency,compression_ratio,"
    "eager_peak_mem,dynamo_peak_mem,calls_captured,unique_graphs,fallbacks_to_eager,graph_breaks,"
    "unique_graph_breaks,autograd_captures,autograd_compiles,cudagraph_skips"
)
ACCURACY_HEADER = (
    "dev,name,batch_size,tag,accuracy,calls_captured,unique_graphs,fallbacks_to_eager,"
    "graph_breaks,unique_graph_breaks,autograd_captures,autograd_compiles,cudagraph_skips,"
    "compilation_latency"
)


def export(data_dir: DataDir, name: str) -> str:
    output = data_dir.path / "exported"
    arguments = ["--format", name, "--output", str(output), "--data-folder", str(data_dir.path)]
    assert main(["export", EXPERIMENT_ID, *arguments]) == 0
    return output.read_text()


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    """Baseline of 6 GB; a backend of 4 GB with two graphs of 30 and 12 ops and three breaks."""
    data_dir = DataDir(tmp_path_factory.mktemp("compiler") / "data")
    for label, seconds, memory in (("baseline", 0.2, 6), ("control", 0.2, 6), ("inductor", 0.1, 4)):
        recording = Recording(data_dir.runs, label, SPEC).claim().start()
        for number in range(8):
            compiles = label == "inductor" and number == 0
            times = [3.1, *[seconds] * 9] if compiles else [seconds] * 10
            losses = LOSSES[10 * number : 10 * number + 10]
            compiled = [0] if compiles else []
            recording.block(times, losses, compiled, peak_memory_bytes=memory * 10**9)
        if label == "inductor":
            for ops in (30, 12):
                recording.log.append("compile_metrics", step=0, phase="training", graph_ops=ops)
            for reason, count in (("print", 2), ("item", 1)):
                recording.log.append(
                    "graph_break",
                    step=0,
                    phase="training",
                    reason=reason,
                    location="a.py:1",
                    count=count,
                )
        recording.evaluation(0.8).end()
    return data_dir


def test_csv_files_have_the_harness_columns_and_units_and_are_read_back(compiler: DataDir) -> None:
    text = export(compiler, "harness-performance-csv")
    assert text.splitlines()[0] == PERFORMANCE_HEADER
    assert table(text) == [
        {
            "dev": "cpu",
            "name": "builtin:bert-tiny",
            "batch_size": "8",
            "tag": "inductor",
            "speedup": "2.000000",
            "abs_latency": "100.000000",  # ms
            "compilation_latency": "3.000000",  # s: 3.1 - 0.1
            "compression_ratio": "1.500000",  # 6 GB / 4 GB
            "eager_peak_mem": "6.000000",
            "dynamo_peak_mem": "4.000000",
            "calls_captured": "42",
            "unique_graphs": "2",
            "graph_breaks": "3",
            "unique_graph_breaks": "2",
            # Nothing here measures these.
            "fallbacks_to_eager": "",
            "autograd_captures": "",
            "autograd_compiles": "",
            "cudagraph_skips": "",
        }
    ]
    file = compiler.path / "ours.csv"
    file.write_text(text)
    import_any(compiler, file)
    (row,) = imported_rows(compiler)[0].to_dict("records")
    assert (row["file"], row["name"], row["tag"]) == ("ours.csv", "builtin:bert-tiny", "inductor")
    assert (row["dev"], row["batch_size"], row["outcome"]) == ("cpu", 8, "measured")
    assert (row["speedup"], row["abs_latency"], row["compilation_latency"]) == (2, 100, 3)
    assert (row["compression_ratio"], row["eager_peak_mem"], row["dynamo_peak_mem"]) == (1.5, 6, 4)
    assert row["graph_breaks"] == 3
    text = export(compiler, "harness-accuracy-csv")
    assert text.splitlines()[0] == ACCURACY_HEADER
    (row,) = table(text)
    assert (row["accuracy"], row["compilation_latency"]) == ("pass", "3.000000")


ENDED = {
    "inductor": (RunState.FAILED, "fail_to_run"),
    "eager": (RunState.LOST, "fail_to_run"),
    "aot_eager": (RunState.OUT_OF_MEMORY, "OOM"),
    "cudagraphs": (RunState.TIMEOUT, "timeout"),
    "inductor-reduce-overhead": (RunState.CANCELLED, ""),
}


def test_how_a_run_ended_is_said_in_the_harness_words(data_dir: DataDir) -> None:
    spec = replace(SPEC, backends=(*list(ENDED)[:-1], "inductor:mode=reduce-overhead"))
    for label in ("baseline", "control"):
        Recording(data_dir.runs, label, spec).claim().start().blocks([0.2] * 8, LOSSES).end()
    for label, (state, _) in ENDED.items():
        recording = Recording(data_dir.runs, label, spec).claim().start()
        recording.blocks([0.1] * 4, LOSSES).end(state)
    accuracy = table(export(data_dir, "harness-accuracy-csv"))
    assert {row["tag"]: row["accuracy"] for row in accuracy} == {
        label: status for label, (_, status) in ENDED.items()
    }
    performance = table(export(data_dir, "harness-performance-csv"))
    assert len(performance) == len(ENDED)
    for row in performance:
        zero = "" if ENDED[row["tag"]][0] is RunState.CANCELLED else "0.0"
        assert (row["speedup"], row["abs_latency"]) == (zero, zero)
        assert row["compilation_latency"] == ""
    statuses = [
        record["metric"]["extra_info"] for record in json.loads(export(data_dir, "hud-json"))
    ]
    assert {"benchmark_values": ["OOM"]} in statuses
    assert json.loads(export(data_dir, "cachebench-json")) == []


@pytest.mark.parametrize(
    ("failing", "state", "controls", "offset", "status"),
    [
        ("nothing", RunState.FINISHED, 1, 0.1, "fail_accuracy"),
        ("nothing", RunState.FINISHED, 0, 0.1, ""),
        # A failure without a compiler is not blamed on the backend.
        ("baseline", RunState.FAILED, 1, 0.0, "eager_1st_run_fail"),
        ("baseline", RunState.OUT_OF_MEMORY, 1, 0.0, "eager_1st_run_OOM"),
        ("control", RunState.FAILED, 1, 0.0, "eager_2nd_run_fail"),
    ],
)
def test_a_fault_has_the_harness_word(
    data_dir: DataDir, failing: str, state: RunState, controls: int, offset: float, status: str
) -> None:
    spec = experiment_spec(num_steps=80, controls=controls)
    record_experiment(data_dir.runs, spec, backend_offset=offset)
    if failing != "nothing":
        data_dir.run_dir(f"{EXPERIMENT_ID}.{failing}").write_exit(Exit.now(state, "broke", 1))
    assert table(export(data_dir, "harness-accuracy-csv"))[0]["accuracy"] == status


def test_environments_and_further_controls_leave_each_row_its_own_run(data_dir: DataDir) -> None:
    """Controls that were added later are the last runs of the experiment, and not of their
    environment."""
    spec = replace(SPEC, environments=("old=/a/python", "new=/b/python"), more_controls=2)
    further = ("control-2@old", "control-2@new", "control-3@old", "control-3@new")
    for label in [*(arm.label for arm in spec.arms), *further]:
        version = "2.11.0" if label.endswith("@old") else "2.13.0"
        run = Recording(data_dir.runs, label, spec).claim()
        run.start(environment={"versions": {"torch": version}})
        run.blocks([0.2] * 8, [loss + 1e-5 * label.startswith("control") for loss in LOSSES])
        has_failed = label in ("control-2@old", "baseline@new")
        run.end(RunState.FAILED if has_failed else RunState.FINISHED)
    records = json.loads(export(data_dir, "hud-json"))
    versions = {
        record["benchmark"]["extra_info"]["tag"]: record["dependencies"]["torch"]["version"]
        for record in records
    }
    assert versions == {"inductor@old": "2.11.0", "inductor@new": "2.13.0"}
    statuses = [row["accuracy"] for row in table(export(data_dir, "harness-accuracy-csv"))]
    assert statuses == ["pass", "eager_1st_run_fail"]


def test_cachebench_json_is_exact(compiler: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    (record,) = json.loads(export(compiler, "cachebench-json"))
    assert record["metric"].pop("benchmark_values") == [pytest.approx(3.0)]
    assert record == {
        "benchmark": {
            "name": "TorchCache Benchmark",
            "mode": "training",
            "extra_info": {"is_dynamic": False, "device": "cpu"},
        },
        "model": {"name": "builtin:bert-tiny", "backend": "inductor", "origins": []},
        "metric": {"name": "Cold compile time (s)", "type": "OSS model"},
    }
    assert "only cold compile times are known" in capsys.readouterr().err


def test_hud_records_have_known_fields_only_and_a_status_as_text(compiler: DataDir) -> None:
    records: list[dict[str, Any]] = json.loads(export(compiler, "hud-json"))
    known = {
        "timestamp",
        "schema_version",
        "name",
        "runners",
        "benchmark",
        "model",
        "dependencies",
        "metric",
    }
    assert all(set(record) == known for record in records)
    metrics = {record["metric"]["name"]: record["metric"] for record in records}
    assert metrics["speedup"]["benchmark_values"] == [pytest.approx(2.0)]
    assert metrics["abs_latency"]["benchmark_values"] == [pytest.approx(100.0)]
    assert metrics["compression_ratio"]["benchmark_values"] == [pytest.approx(1.5)]
    assert metrics["accuracy"] == {
        "name": "accuracy",
        "benchmark_values": [],
        "extra_info": {"benchmark_values": ["pass"]},
    }
    first = records[0]
    assert first["schema_version"] == "v3" and isinstance(first["timestamp"], int)
    assert first["benchmark"]["dtype"] == "float32"
    assert first["model"] == {"name": "builtin:bert-tiny", "backend": "inductor"}
    assert first["runners"] == [{"name": "box"}], "the journal says no more of the machine"
    assert first["dependencies"]["torch"] == {"version": "2.13.0"}


def test_unknown_ids_are_refused(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    spec = experiment_spec(num_steps=80, scenario="accuracy", controls=0)
    Recording(data_dir.runs, "inductor", spec).claim().start().end()
    output = data_dir.path / "out.csv"
    options = ["--format", "hud-json", "--output", str(output), "--data-folder", str(data_dir.path)]
    for unknown_id, said in (
        ("nothing", "no experiment 'nothing'"),
        (EXPERIMENT_ID, "is of the scenario 'accuracy'"),
    ):
        assert main(["export", unknown_id, *options]) == 2
        assert said in capsys.readouterr().err
    assert not output.exists()


def test_the_scenario_cache_has_all_three_records_of_cachebench(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=20, scenario="cache", cache=CacheSpec(repeats=2))
    for label, seconds in {
        "inductor-cold-1": 8.0,
        "inductor-warm-1": 2.0,
        "inductor-cold-2": 12.0,
        "inductor-warm-2": 3.0,
    }.items():
        recording = Recording(data_dir.runs, label, spec).claim().start()
        recording.blocks([0.5] * 2, [1.0] * 20, seconds).end()
    records = json.loads(export(data_dir, "cachebench-json"))
    assert {
        record["metric"]["name"]: record["metric"]["benchmark_values"] for record in records
    } == {
        "Cold compile time (s)": [8.0, 12.0],
        "Warm compile time (s)": [2.0, 3.0],
        "Speedup (%)": [75.0],  # 1 - 5 / 20: time saved, whatever cachebench calls it
    }
    assert {record["model"]["backend"] for record in records} == {"inductor"}


def test_the_scenario_accuracy_gives_its_own_statuses(data_dir: DataDir) -> None:
    spec = experiment_spec(scenario="accuracy")
    recording = Recording(data_dir.runs, "inductor", spec).claim().start()
    for part, status in (("training", "fail_accuracy"), ("inference", "eager_two_runs_differ")):
        recording.log.append("accuracy_status", part=part, status=status)
    recording.end()
    rows = table(export(data_dir, "harness-accuracy-csv"))
    assert [(row["tag"], row["accuracy"]) for row in rows] == [
        ("inductor-training", "fail_accuracy"),
        ("inductor-inference", "eager_two_runs_differ"),
    ]
