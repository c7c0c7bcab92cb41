"""Statuses of the scenario `accuracy`: from journals to the terminal and the page."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import AccuracySpec, ExperimentSpec
from breakeven.storage import queries
from breakeven.storage.__main__ import main
from breakeven.storage.comparison.correctness import Check, checks
from breakeven.storage.index.store import Store
from tests.helpers.correctness_journals import SPEC, passing, record, tensor
from tests.helpers.journals import EXPERIMENT_ID


@pytest.fixture
def store(data_dir: DataDir) -> Iterator[Store]:
    with Store.open(data_dir) as store:
        yield store


def checks_by_part(store: Store, spec: ExperimentSpec = SPEC) -> dict[tuple[str, str], Check]:
    store.ingest_all()
    return {(check.label, check.part): check for check in checks(store, EXPERIMENT_ID, spec)}


def test_the_worst_tensors_are_named_with_their_ratios(data_dir: DataDir, store: Store) -> None:
    tensors = [
        tensor("fine", rmse=100.0),  # close to the baseline's, so nobody asks the reference
        tensor("third", passed=False, rmse=0.01),
        tensor("first", passed=False, rmse="NaN"),
        tensor("fourth", passed=False, rmse=0.0075),
        tensor("second", passed=False, rmse=0.5),
    ]
    record(data_dir, "inductor", {"training": ("fail_accuracy", tensors)})
    check = checks_by_part(store)["inductor", "training"]
    assert (check.num_tensors, check.num_failed) == (5, 4)
    assert check.worst == (
        "gradient of first, not comparable",
        "gradient of second, 100 x the limit",
        "gradient of third, 2 x the limit",
    )


def test_without_a_reference_the_baseline_counts(data_dir: DataDir, store: Store) -> None:
    alone = tensor("a", passed=False, rmse=None, baseline_rmse=None, max_difference=0.08)
    record(data_dir, "eager", {"training": ("fail_accuracy", [alone])})
    store.ingest_all()
    ratios = queries.accuracy_tensors(store, EXPERIMENT_ID)["error_ratio"]
    assert list(ratios) == pytest.approx([0.08 / (2 * 0.01)])


ENDS = {
    "eager": (RunState.TIMEOUT, "timeout"),
    "aot_eager": (RunState.OUT_OF_MEMORY, "OOM"),
    "cudagraphs": (RunState.LOST, "fail_to_run"),
    "inductor": (RunState.FAILED, "fail_to_run"),
    "inductor-case_1": (RunState.CANCELLED, None),
}


def test_an_unfinished_run_has_the_status_of_its_end(data_dir: DataDir, store: Store) -> None:
    spec = replace(SPEC, backends=(*list(ENDS)[:-1], "inductor:case=1"))
    for label, (state, _) in ENDS.items():
        record(data_dir, label, passing("training"), state, spec=spec)
    known = checks_by_part(store, spec)
    for label, (_, status) in ENDS.items():
        assert known[label, "training"].status == "pass"
        assert known[label, "inference"].status == status, label
        assert known[label, "inference"].message == "what the supervisor saw"


def test_only_parts_that_were_asked_for_are_missed(data_dir: DataDir, store: Store) -> None:
    spec = replace(SPEC, accuracy=AccuracySpec(parts=("inference",)))
    record(data_dir, "eager", passing("inference"), spec=spec)
    assert list(checks_by_part(store, spec)) == [("eager", "inference")]


def shown(data_dir: DataDir) -> int:
    return main(["show", "--judged", EXPERIMENT_ID, f"--data-folder={data_dir.path}"])


def test_checks_are_shown(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    record(data_dir, "baseline", passing())
    record(data_dir, "eager", passing(), notes=["The model is small."])
    record(
        data_dir,
        "inductor",
        {
            "training": ("fail_accuracy", [tensor("a", passed=False)]),
            "inference": ("pass", [tensor("b")]),
        },
    )
    assert shown(data_dir) == 3
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[7:10]] == [
        ["eager", "inference", "pass", "2", "0", "0.01"],
        ["inductor", "training", "fail_accuracy", "1", "1", "0.01"],
        ["inductor", "inference", "pass", "1", "0", "0.01"],
    ]
    # 0.0025 of 3 x 0.001 + 2 x 0.01 / 10.
    assert "inductor, training: fail_accuracy; gradient of a, 0.5 x the limit" in lines
    assert lines.count("note: The model is small.") == 1


LAST: list[tuple[Any, RunState, int]] = [
    (None, RunState.FINISHED, 1),
    (passing(), RunState.FINISHED, 0),
    (passing("training"), RunState.CANCELLED, 1),
    ({"training": ("fail_to_run", [])}, RunState.CANCELLED, 3),
    (passing("training"), RunState.TIMEOUT, 3),
]
"""Checks of the last run, its end, and the exit status."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    """An experiment for each of them, in a database as a dashboard leaves it."""
    data_dir = DataDir(tmp_path_factory.mktemp("recorded"))
    for number, (last, end, _) in enumerate(LAST):
        record(data_dir, "baseline", passing(), experiment_id=numbered(number))
        record(data_dir, "eager", passing(), experiment_id=numbered(number))
        if last is not None:
            record(data_dir, "inductor", last, end, experiment_id=numbered(number))
    with Store.open(data_dir) as store:
        store.ingest_all()
    return data_dir


def numbered(number: int) -> str:
    return f"20261121-0930{number:02d}-123456-7f3a"


@pytest.mark.parametrize("number", range(len(LAST)))
def test_checks_have_an_exit_status(
    recorded: DataDir, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    last, _, status = LAST[number]
    assert main(["show", "--judged", numbered(number), f"--data-folder={recorded.path}"]) == status
    said = "warning: Runs whose folder is missing or unreadable have no numbers: inductor."
    assert (said in capsys.readouterr().out.splitlines()) is (last is None)
