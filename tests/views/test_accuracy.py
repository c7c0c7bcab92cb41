"""Compare of the scenario `accuracy`: statuses instead of speeds."""

from breakeven.runner.folders.data_dir import DataDir
from tests.helpers.correctness_journals import passing, record, tensor
from tests.helpers.journals import EXPERIMENT_ID
from tests.helpers.pages import opened, text


def test_compare_shows_checks_instead_of_speeds(folder: DataDir) -> None:
    record(folder, "baseline", passing())
    record(folder, "eager", passing())
    record(folder, "inductor", {"training": ("fail_accuracy", [tensor("a", passed=False)]),
                                  **passing("inference")})  # fmt: skip
    app = opened("experiment", experiment=EXPERIMENT_ID)
    assert "Not what the model says: **inductor**" in text(app)
    assert "Noise floor" not in text(app)
    shown, failed = (frame.value for frame in app.dataframe)
    assert list(shown["Status"]).count("pass") == 5
    assert list(failed["Tensor"]) == ["a"]
