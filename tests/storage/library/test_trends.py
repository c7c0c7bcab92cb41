"""The same training night after night: what is one series, and what is told of it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from runner.folders.run_dir import DataDir
from runner.specs.experiment import TrainingSpec
from storage.__main__ import main
from storage.index.store import Store
from storage.library.backend_rows import backend_rows
from storage.library.catalog import catalog, compute
from storage.library.trends import Series, trends
from storage.library.workloads import workload_key
from storage.terminal.trend import parse_conditions
from tests.helpers.nights import NOISE, SPEC, record_night, record_slower_torch


def told(data_dir: DataDir, quantity: str = "speedup") -> list[Series]:
    with Store.in_memory(data_dir) as store:
        compute(store, 100.0)
        return trends(backend_rows(store, catalog(store)), quantity)


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    """Eight nights at about 0.1 s a step, and four at 0.125 with the torch that came then."""
    data_dir = DataDir(tmp_path_factory.mktemp("slower"))
    record_slower_torch(data_dir)
    return data_dir  # whose summaries the first command keeps for all others


def test_a_step_is_told_with_what_changed_at_it_and_worse_is_worse(slower: DataDir) -> None:
    (series,) = told(slower)
    (step,) = series.steps
    assert series.points[step.index].name == "night 9"
    # From 2x to 1.6x; the means of eight and four nights are each within a percent.
    assert step.ratio == pytest.approx(0.8, abs=0.01)
    assert series.worsening(step) == pytest.approx(0.2, abs=0.01)
    assert series.changed(step) == {"torch": ("2.12.0", "2.13.0")}
    (times,) = told(slower, "step_seconds")
    (step,) = times.steps
    assert times.worsening(step) == pytest.approx(0.25, abs=0.02), "longer is worse"


def test_series_are_of_the_same_work_whatever_it_is_called_and_however_long(
    data_dir: DataDir,
) -> None:
    other_seed = replace(SPEC, training=replace(SPEC.training, seed=5, max_steps=40))
    record_night(data_dir, 1, 0.1)
    record_night(data_dir, 2, 0.1, other_seed)
    record_night(data_dir, 3, 0.1, replace(SPEC, training=TrainingSpec(batch_size=8, clip_norm=1)))
    record_night(data_dir, 4, 0.1, device_name="Another CPU")
    found = {tuple(point.name for point in series.points) for series in told(data_dir)}
    assert found == {("night 1", "night 2"), ("night 3",), ("night 4",)}


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({"name": "another"}, True),
        ({"backends": ("eager",)}, True),
        ({"checkpoints": replace(SPEC.checkpoints, every=1)}, True),
        ({"training": replace(SPEC.training, learning_rate=1e-2)}, False),
        ({"cpu_threads": 1}, False),
        ({"model": replace(SPEC.model, dropout="off")}, False),
        ({"scenario": "speed"}, False),
    ],
)
def test_what_a_step_does_is_the_same_or_not(changes: dict[str, Any], is_same: bool) -> None:
    assert (workload_key(replace(SPEC, **changes)) == workload_key(SPEC)) is is_same


def test_one_night_that_is_out_of_line_is_said_and_is_no_step(data_dir: DataDir) -> None:
    for day in range(1, 8):
        record_night(data_dir, day, 0.1 * NOISE[day % 6] * (1.5 if day == 7 else 1.0))
    (series,) = told(data_dir)
    assert series.steps == [] and series.is_out_of_line


def gate(data_dir: DataDir, *arguments: str) -> int:
    return main(["trend", f"--data-folder={data_dir.path}", *arguments])


def test_a_nightly_job_fails_for_a_worse_level_that_is_new_and_says_which(
    slower: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate(slower, "--fail-if=worse>2%") == 5
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("FAIL"))
    assert line.startswith(
        "FAIL speedup of inductor: bert-tiny, reviews, float32, batch 8, Test CPU"
    )
    assert "worse since 2026-11-09 (20261109-" in line
    assert "2.00x to 1.60x, -19." in line or "2.00x to 1.60x, -20." in line
    assert line.endswith("; torch 2.12.0 to 2.13.0")
    assert gate(slower, "--fail-if=worse>25%") == 0, "it is not so much"
    assert gate(slower, "--fail-if=worse", "--within=3") == 0, "it was four nights ago"
    assert gate(slower, "--of=step_seconds", "--fail-if=worse") == 5
    assert gate(slower, "--torch=2.13.0", "--fail-if=worse") == 0, "of these there is one level"


def test_without_a_condition_a_trend_is_only_told(
    slower: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate(slower) == 0
    said = capsys.readouterr().out
    assert "1.60x now; 12 experiments, 2026-11-01 to 2026-11-12" in said
    assert "FAIL" not in said


@pytest.mark.parametrize(
    ("text", "limits"),
    [("worse", [0.0]), ("worse>2%, out-of-line", [0.02, None]), ("worse > 0.5", [0.005])],
)
def test_conditions_are_read(text: str, limits: Sequence[float | None]) -> None:
    assert [one.worse for one in parse_conditions(text)] == limits


@pytest.mark.parametrize("text", ["", "slower", "worse>", "worse>-1%", "worse>nan", "worse>100%"])
def test_conditions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"choose from|write 'worse>2%'"):
        parse_conditions(text)
