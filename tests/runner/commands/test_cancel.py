"""`queue cancel` stops many experiments at once, by ids and by a filter."""

import pytest

from breakeven.runner.commands.cli import main
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Labels
from breakeven.runner.protocol.states import RunState
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment


@pytest.fixture
def queued(data_dir: DataDir) -> list[str]:
    """Three that wait, the first two of a sweep, beside one of the sweep that is over."""
    ids = [submit(data_dir, experiment_spec(name=name)) for name in ("a", "b", "unusual")]
    record_experiment(data_dir.runs)
    for experiment_id in (*ids[:2], EXPERIMENT_ID):
        first = find_experiment(data_dir, experiment_id).runs[0]
        first.write_labels(Labels(tags=("sweep",)))
    return ids


def cancelled(data_dir: DataDir, ids: list[str]) -> list[str]:
    """Those of which every run was cancelled."""
    return [
        experiment_id
        for experiment_id in ids
        if {run.state for run in find_experiment(data_dir, experiment_id).runs}
        == {RunState.CANCELLED}
    ]


def cancel(data_dir: DataDir, *arguments: str) -> int:
    return main(["queue", "cancel", *arguments, "--data-folder", str(data_dir.path)])


def test_many_ids_are_stopped_an_unknown_one_hinders_none_and_no_choice_stops_nothing(
    data_dir: DataDir, queued: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cancel(data_dir) == 2 and not cancelled(data_dir, queued)
    assert "cancel needs an id or a filter" in capsys.readouterr().err
    assert cancel(data_dir, queued[0], "nobody", queued[2]) == 2
    assert cancelled(data_dir, queued) == [queued[0], queued[2]]
    said = capsys.readouterr()
    assert f"{queued[2]}: stops soon (unusual)" in said.out and "'nobody'" in said.err


@pytest.mark.heavy  # the filter asks storage, in a process of its own
def test_a_filter_stops_all_that_go_on_and_that_list_finds(
    data_dir: DataDir, queued: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cancel(data_dir, "--tag=sweep") == 0
    assert cancelled(data_dir, queued) == queued[:2]
    assert capsys.readouterr().out.count("stops soon") == 2
    assert not any(run.cancel_requested for run in find_experiment(data_dir, EXPERIMENT_ID).runs)
