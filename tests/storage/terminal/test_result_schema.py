"""`docs/result.schema.json` describes what `--json` prints, in every scenario."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from breakeven.runner.experiments.families import level_of
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.storage import commands
from breakeven.storage.__main__ import main
from tests.faults.investigations import INVESTIGATION_ID, record_broken, record_investigation
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses
from tests.storage.comparison.varied_journals import VARIED
from tests.storage.terminal.result_schema import FILE, schema, strict, text

EXAMPLES = Path(__file__).parents[3] / "examples"
RECORDED = sorted({file.parent.name.partition(".")[0] for file in EXAMPLES.glob("*/*/spec.json")})
DAILY = RECORDED[::4]
VALIDATOR = Draft202012Validator(strict(schema()))


def faults(document: Any) -> list[str]:
    """What of a document the schema does not allow; fields without a name in it among that."""
    kind = 1 if "checks" in document else 2 if "investigates" in document else 0
    part = {**VALIDATOR.schema, "oneOf": [VALIDATOR.schema["oneOf"][kind]]}  # for a readable error
    errors = Draft202012Validator(part).iter_errors(document)
    return [f"{error.json_path}: {error.message[:200]}" for top in errors for error in leaves(top)]


def leaves(error: Any) -> list[Any]:
    """The errors within an error; of alternatives that name their kind, those of this kind."""
    others = {inner.schema_path[0] for inner in error.context if inner.validator == "const"}
    own = [inner for inner in error.context if inner.schema_path[0] not in others]
    return [leaf for inner in own or error.context for leaf in leaves(inner)] or [error]


def failing(data_dir: DataDir) -> None:
    """A run that failed before its first step, in a family."""
    spec = experiment_spec(family="agent-7", family_place=2, family_level=level_of(2, []))
    for label in ("baseline", "control"):
        Recording(data_dir.runs, label, spec).claim().start().blocks([0.2] * 4, [1.0] * 40).end()
    Recording(data_dir.runs, "inductor", spec).claim().start().end(RunState.FAILED, "exit status 1")


def environments(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=120, environments=("old=/old/python", "new=/new/python"))
    for arm in spec.arms:
        run = Recording(data_dir.runs, arm.label, spec).claim().start()
        run.blocks([0.2 if arm.backend is None else 0.1] * 12, falling_losses(120)).end()


def investigation(data_dir: DataDir) -> None:
    record_broken(data_dir)
    record_investigation(data_dir)


JOURNALS: dict[str, Callable[[DataDir], None]] = {
    **VARIED,
    "failing": failing,
    "environments": environments,
    "investigation": investigation,
}


def test_the_schema_in_the_documents_is_that_of_the_types() -> None:
    Draft202012Validator.check_schema(schema())
    assert FILE.read_text() == text(), (
        "write it again: python -m tests.storage.terminal.result_schema"
    )


def test_a_field_that_the_schema_does_not_name_is_found() -> None:
    document: dict[str, Any] = {"experiment_id": "x", "checks": []}
    assert faults(document) == []
    assert faults({**document, "new": 1}) and faults({"checks": []})
    Draft202012Validator(schema()).validate({**document, "new": 1})  # readers allow new fields


@pytest.mark.heavy
@pytest.mark.parametrize("name", JOURNALS)
def test_the_json_of_every_scenario_fits_the_schema(
    name: str, data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    JOURNALS[name](data_dir)
    shown = INVESTIGATION_ID if name == "investigation" else EXPERIMENT_ID
    main(["show", shown, "--json", "--data-folder", str(data_dir.path)])
    assert faults(json.loads(capsys.readouterr().out)) == []


@pytest.mark.heavy
@pytest.mark.parametrize(
    "experiment_id",
    [*DAILY, *(pytest.param(key, marks=pytest.mark.slow) for key in RECORDED if key not in DAILY)],
)
def test_the_json_of_recorded_examples_fits_the_schema(
    experiment_id: str,
    data_dir: DataDir,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search and the training that confirms it are among them."""
    monkeypatch.setattr(commands, "EXAMPLES", EXAMPLES)
    data_dir.make()
    main(["show", experiment_id, "--json", "--data-folder", str(data_dir.path)])
    assert faults(json.loads(capsys.readouterr().out)) == []
