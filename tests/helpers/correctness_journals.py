"""Journals of the scenario `accuracy`."""

from typing import Any

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec

SPEC = experiment_spec(scenario="accuracy", backends=("eager", "inductor"))


def tensor(name: str, *, passed: bool = True, **fields: Any) -> dict[str, Any]:
    """A gradient whose error may be 3 x 0.001 + 2 x 0.01 / 10 = 0.005."""
    return {
        "quantity": "gradient",
        "tensor": name,
        "num_elements": 10,
        "max_difference": 0.5,
        "rmse": 0.0025,
        "baseline_rmse": 0.001,
        "multiplier": 3.0,
        "tolerance": 0.01,
        "scale": 2.0,
        "passed": passed,
        **fields,
    }


def record(
    data_dir: DataDir,
    label: str,
    parts: dict[str, tuple[str, list[dict[str, Any]]]],
    end: RunState = RunState.FINISHED,
    spec: ExperimentSpec = SPEC,
    experiment_id: str = EXPERIMENT_ID,
    **status: Any,
) -> None:
    recording = Recording(data_dir.runs, label, spec, experiment_id).claim().start()
    for part, (word, tensors) in parts.items():
        for fields in tensors:
            recording.log.append("accuracy", part=part, **fields)
        fields = {"message": None, "tolerance": 0.01, "iterations": 2, "notes": [], **status}
        recording.log.append("accuracy_status", part=part, status=word, **fields)
    recording.end(end, reason="what the supervisor saw")


def passing(*parts: str) -> dict[str, tuple[str, list[dict[str, Any]]]]:
    return {
        part: ("pass", [tensor("a"), tensor("b")]) for part in parts or ("training", "inference")
    }
