"""Compare of the scenario `accuracy`: statuses instead of speeds."""

import os

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.process import ProcessIdentity
from breakeven.runner.folders.states import RunState
from tests.helpers.correctness_journals import passing, record, tensor
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses
from tests.helpers.pages import opened, text


@pytest.mark.parametrize("scenario", ["accuracy", "cache"])
def test_a_check_that_runs_shows_what_each_run_does_and_promises_no_losses(
    folder: DataDir, scenario: str
) -> None:
    spec = experiment_spec(scenario=scenario)
    for variant in spec.variants:
        Recording(folder.runs, variant.label, spec).claim(ProcessIdentity.of(os.getpid())).start()
    app = opened("experiment", experiment=EXPERIMENT_ID)
    (rows,) = (one.proto.body for one in app.get("html") if "run-rows" in one.proto.body)
    assert rows.count('role="listitem"') == len(spec.variants)
    assert (" steps" in rows) == (scenario == "cache")
    assert "losses appear here" not in text(app)


def test_compare_shows_checks_instead_of_speeds(folder: DataDir) -> None:
    record(folder, "baseline", passing())
    record(folder, "eager", passing())
    record(folder, "inductor", {"training": ("fail_accuracy", [tensor("a", passed=False)]),
                                  **passing("inference")})  # fmt: skip
    app = opened("experiment", experiment=EXPERIMENT_ID)
    assert "Wrong results: **inductor**" in text(app)
    assert "Noise floor" not in text(app)
    shown, failed = (frame.value for frame in app.dataframe)
    assert list(shown["Status"]).count("pass") == 5
    assert list(failed["Tensor"]) == ["a"]


def test_an_experiment_whose_baseline_failed_says_why_first_and_advises_nothing(
    folder: DataDir,
) -> None:
    losses = falling_losses(10)
    for label in ("baseline", "control", "inductor"):
        run = Recording(folder.runs, label).claim().start().block([0.2] * 10, losses)
        run.end(RunState.FAILED, "the sensor is gone")
    app = opened("experiment", experiment=EXPERIMENT_ID)
    assert "the sensor is gone" in app.error[0].value
    assert "Do not compile" not in text(app)


def test_an_experiment_that_has_said_nothing_of_its_machine_yet_names_the_device_it_asked_for(
    folder: DataDir,
) -> None:
    for label in ("baseline", "control", "inductor"):
        Recording(folder.runs, label).claim(ProcessIdentity.of(os.getpid()))
    app = opened("experiment", experiment=EXPERIMENT_ID)
    (origin,) = (one.value for one in app.caption if " on " in one.value and "2026" in one.value)
    assert origin.startswith("cpu, ") and "nan" not in origin
