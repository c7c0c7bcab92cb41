"""A data folder in which a stranger wrote every free text. The journals are recorded as runs record
them; then every text in them is replaced, except the few words that the format fixes. New kinds and
fields are replaced, too."""

import csv
import json
from pathlib import Path
from typing import Any

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Labels
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import DataSpec, EvaluationSpec, ExperimentSpec, ModelSpec
from breakeven.runner.specs.scenario_fields import AccuracySpec
from tests.helpers.hostile_texts.texts import HOST
from tests.helpers.journals import Recording, experiment_spec, falling_losses

EXPERIMENTS = {
    "train": "20261121-093015-000000-aaaa",
    "failed": "20261121-093016-000000-bbbb",
    "accuracy": "20261121-093017-000000-cccc",
    "suite": "20261121-093018-000000-dddd",
    "active": "20261121-093019-000000-eeee",
}
BACKEND = f"www.{HOST}"
"""Labels consist of letters, digits, dots and dashes; this one is an address."""
FIXED = {
    "kind",
    "phase",
    "split",
    "part",
    "quantity",
    "status",
    "trigger",
    "weights_sha256",
    "loss",
    "data_sha256",
    "accuracy",
    "hit",
    "miss",
    "bypass",
}
"""Fields whose words the format fixes, and names of numbers."""
MEMBERS = ("versions", "variables", "losses", "metrics", "layers", "throttled_seconds")
"""Objects with free keys."""


def hostile(where: str) -> str:
    """A text with every kind of attack, and the name of its field."""
    return (
        f"{where} ![x](http://{HOST}/{where}.png) [ours](http://{HOST}/{where}) www.{HOST}/{where} "
        f'<img src="http://{HOST}/{where}-tag.png"> <a href="http://{HOST}/{where}">definitions</a>'
    )


def short(where: str) -> str:
    """The same for fields that have at most 120 characters."""
    return f"![x](http://{HOST}/{where}.png) www.{HOST}/{where}"


def poisoned(value: Any, where: str) -> Any:
    """A value of a journal with hostile texts in place of its free texts."""
    if isinstance(value, dict):
        free = where.rpartition("-")[2] in MEMBERS
        return {
            hostile(f"{where}-key") + key if free and key not in FIXED else key: (
                inner if key in FIXED else poisoned(inner, f"{where}-{key}")
            )
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [poisoned(inner, where) for inner in value]
    return hostile(where) if isinstance(value, str) else value


def poison(journal: Path) -> None:
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    lines = [json.dumps(poisoned(event, event["kind"])) for event in events]
    journal.write_text("\n".join([*lines, ""]))


def hostile_spec(**changes: Any) -> ExperimentSpec:
    given: dict[str, Any] = {
        "name": short("name"),
        "model": ModelSpec(source=hostile("model") + "/x"),
        "data": DataSpec(
            source=hostile("data") + ".csv",
            num_train_samples=320,
            num_eval_samples=200,
            text_column=hostile("text_column"),
            label_column=hostile("label_column"),
        ),
        "backends": ("inductor", BACKEND),
        **changes,
    }
    return experiment_spec(**given)


def record_hostile(folder: DataDir) -> None:
    _train(folder)
    _labels(folder)
    _failed(folder)
    _accuracy(folder)
    _suite(folder)
    _active(folder)
    _broken(folder)
    _imports(folder)


def _train(folder: DataDir) -> None:
    spec = hostile_spec(evaluation=EvaluationSpec(metric="accuracy"))
    for label in ("baseline", "control", "inductor", BACKEND):
        run = Recording(folder.runs, label, spec, EXPERIMENTS["train"]).claim()
        run.start(
            environment={
                "cpu_threads": 2,
                "cpu_threads_reason": "x",
                "notes": ["x"],
                "cuda": "x",
                "platform": "x",
                "cpu_model": "x",
                "driver": "x",
            },
            task="x",
            labels=["a", "b"],
            notes=["x", "y"],
        )
        for kind, fields in _everything():
            run.log.append(kind, **fields)
        run.blocks([0.1, 0.1, 0.1, 0.1], falling_losses(40), 2.0)
        run.device(
            processes=[{"pid": 1, "name": "x", "memory_bytes": 10}],
            cpus=2,
            throttle_reasons=["x"],
            throttled_seconds={"x": 1.0},
            wall_seconds=1.0,
            own_cpu_seconds=0.1,
            busy_cpu_seconds=1.9,
            load_average=3.0,
        )
        run.evaluation(0.5, split="validation", compiled=False, metrics={"accuracy": 0.5, "x": 1.0})
        run.checkpoint(value=0.5)
        run.log.append("resumed", step=40, file="x", attempt=2)
        run.stop("x")
        run.end(reason=hostile("exit-reason"))
        poison(run.run.events_file)
        run.run.output_file.write_text(hostile("output-log"))


def _labels(folder: DataDir) -> None:
    """What a stranger's folder says about itself."""
    labels = Labels(name=short("label-name"), tags=(short("tag")[:40],), notes=hostile("notes"))
    folder.run_dir(f"{EXPERIMENTS['train']}.baseline").write_labels(labels)


def _everything() -> list[tuple[str, dict[str, Any]]]:
    at = {"step": 0, "phase": "training"}
    frame = {"compile_id": "0/0", "function": "x", "file": "x", "line": 1, "total_seconds": 1.0}
    return [
        ("compile_started", {**at, "trigger": "DYNAMO", "compile_id": "0/0"}),
        ("compile_ended", {**at, "trigger": "DYNAMO", "compile_id": "0/0", "seconds": 1.0}),
        ("compile_metrics", {**at, **frame, "recompile_reason": None, "failure": None}),
        ("compile_metrics", {**at, **frame, "recompile_reason": "x", "failure": "x"}),
        ("compile_cache", {**at, "layers": {"x": {"hit": 1, "miss": 1, "bypass": 0}}}),
        ("graph_break", {**at, "reason": "x", "location": "x", "stopped_at": "x", "count": 1}),
        (
            "gradient_statistics",
            {
                "step": 0,
                "tensors": [
                    {
                        "name": "x",
                        "norm": 1.0,
                        "mean": 0.0,
                        "deviation": 1.0,
                        "largest": 1.0,
                        "zeros": 0.0,
                    }
                ],
            },
        ),
        ("value", {"step": 1, "name": "x", "value": 1.0}),
        ("value", {"step": 9, "name": "x", "value": 2.0}),
        ("source", {"source": "x", "file": "x", "sha256": "x"}),
        ("prediction", {"split": "validation", "file": "x", "num_samples": 5}),
    ]


def _failed(folder: DataDir) -> None:
    spec = hostile_spec()
    for label in ("baseline", "control", "inductor", BACKEND):
        run = Recording(folder.runs, label, spec, EXPERIMENTS["failed"]).claim().start()
        run.log.append(
            "error", error="WorkloadError", message="x", traceback="x", out_of_memory=False
        )
        run.end(RunState.FAILED, hostile("failed-reason"))
        poison(run.run.events_file)


def _accuracy(folder: DataDir) -> None:
    spec = hostile_spec(scenario="accuracy", accuracy=AccuracySpec(parts=("training",)), controls=0)
    for label in ("baseline", "inductor", BACKEND):
        run = Recording(folder.runs, label, spec, EXPERIMENTS["accuracy"]).claim().start()
        run.log.append(
            "accuracy",
            part="training",
            quantity="gradient",
            tensor="x",
            num_elements=2,
            max_difference=1.0,
            rmse=1.0,
            baseline_rmse=0.1,
            multiplier=2.0,
            tolerance=0.1,
            scale=1.0,
            passed=False,
        )
        run.log.append(
            "accuracy_status",
            part="training",
            status="fail_accuracy",
            message="x",
            tolerance=0.1,
            iterations=1,
            notes=["x"],
        )
        run.end()
        poison(run.run.events_file)


def _suite(folder: DataDir) -> None:
    spec = hostile_spec(scenario="speed", suite_run=short("suite_run"))
    for label in ("baseline", "control", "inductor", BACKEND):
        run = Recording(folder.runs, label, spec, EXPERIMENTS["suite"]).claim().start()
        run.blocks([0.1, 0.1, 0.1, 0.1], falling_losses(40), 2.0)
        run.end(RunState.FAILED if label == BACKEND else RunState.FINISHED, hostile("suite-reason"))
        poison(run.run.events_file)


def _active(folder: DataDir) -> None:
    """Claimed on another machine: no run here waits for it."""
    spec = hostile_spec()
    run = Recording(folder.runs, "inductor", spec, EXPERIMENTS["active"]).claim().start()
    run.log.append("compile_started", step=0, phase="training", trigger="DYNAMO", compile_id="x")
    run.log.flush()
    poison(run.run.events_file)


def _broken(folder: DataDir) -> None:
    for name, content in (("spec", "{"), ("rule", json.dumps({"experiment_id": hostile("id")}))):
        broken = folder.runs / f"![{name}](www.{HOST}) www.{HOST}"
        broken.mkdir()
        (broken / "spec.json").write_text(content)


def _imports(folder: DataDir) -> None:
    imports = folder.path / "imports"
    imports.mkdir()
    columns = ("dev", "name", "batch_size", "tag", "speedup", "abs_latency")
    with (imports / f"![x](www.{HOST}) <b>.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerow(["cpu", hostile("import-name"), 8, hostile("import-tag"), 1.5, 10.0])
