"""A run folder that is a link leads to another's: it is read, and nothing is done there."""

import os
from pathlib import Path

import pytest

from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments import freeing_space, trash
from breakeven.runner.experiments.freeing_space import plan_removals
from breakeven.runner.experiments.labels import change_labels
from breakeven.runner.experiments.queue import cancel, find_experiment, resume, submit
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.plain_files import remove_tree
from breakeven.runner.protocol.records import Claim
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.supervision.exit_records import ExitRecords
from breakeven.runner.supervision.orphans import close_orphans
from breakeven.runner.supervision.supervisor import supervise
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.journals import experiment_spec
from tests.runner.supervision.supervised import impatience as impatience

SPEC = experiment_spec(num_steps=10, controls=1)


@pytest.fixture
def good(data_dir: DataDir) -> RunDir:
    """The baseline of an experiment that waits, and has something to lose."""
    run = data_dir.run_dir(f"{submit(data_dir, SPEC)}.baseline")
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / "step-00000010.pt").write_bytes(b"x" * 1000)
    (run.artifacts / "mine.tmp").write_text("being written")
    run.compile_cache.mkdir()
    return run


@pytest.fixture
def bad(data_dir: DataDir, good: RunDir) -> str:
    """An experiment whose baseline is a link to the other's."""
    experiment_id = submit(data_dir, SPEC)
    link = data_dir.run_dir(f"{experiment_id}.baseline")
    remove_tree(link.path)
    link.path.symlink_to(good.path)
    return experiment_id


def inventory(run: RunDir) -> set[str]:
    return {str(path.relative_to(run.path)) for path in run.path.rglob("*")}


def test_stopping_labelling_and_freeing_reach_no_neighbour(
    data_dir: DataDir, good: RunDir, bad: str
) -> None:
    before = inventory(good)
    experiment = find_experiment(data_dir, bad)
    assert experiment.runs[0].state is RunState.LOST
    cancel(experiment)
    assert [run.cancel_requested for run in experiment.runs] == [False, True, True]
    with pytest.raises(RunnerError, match="nothing is written through it"):
        change_labels(data_dir, bad, lambda labels: labels.tagged(["bad"]))
    assert freeing_space.free(data_dir, bad, artifacts=True) == 0
    with pytest.raises(RunnerError, match="no run of experiment"):
        resume(experiment)
    assert all(bad not in removal.what for removal in plan_removals(data_dir, 0).removals)
    trash.delete(data_dir, bad)
    assert trash.empty_trash(data_dir) == 1
    assert inventory(good) == before and good.state is RunState.QUEUED


def test_an_orphan_behind_a_link_is_the_neighbours_to_close(
    data_dir: DataDir, good: RunDir, bad: str
) -> None:
    gone = ProcessIdentity(pid=2**31 - 1, started="another-boot/1")
    good.write_claim(Claim(host="another", process=gone, supervisor=gone, time=1.0))
    before = inventory(good)
    close_orphans(data_dir, ExitRecords())
    ExitRecords().write(data_dir.run_dir(f"{bad}.baseline"), RunState.FAILED, "it is bad", None)
    assert inventory(good) == before


@pytest.mark.heavy
def test_working_at_what_has_a_link_in_it_leaves_what_it_leads_to_as_it_was(
    data_dir: DataDir, tmp_path: Path
) -> None:
    outside = RunDir(tmp_path / "project")
    outside.artifacts.mkdir(parents=True)
    (outside.artifacts / "thesis.tmp").write_text("years of work")
    outside.compile_cache.mkdir()
    before = inventory(outside)
    experiment_id = submit(data_dir, SPEC)
    link = data_dir.run_dir(f"{experiment_id}.baseline").path
    remove_tree(link)
    link.symlink_to(outside.path)
    waiting = submit(data_dir, experiment_spec(num_steps=10, backends=(), controls=0))
    assert supervise(data_dir, FAKE_WORKER)
    assert inventory(outside) == before
    baseline, *others = (run.status for run in find_experiment(data_dir, experiment_id).runs)
    assert baseline.state is RunState.LOST
    for run in others:
        assert run.state is RunState.CANCELLED and str(baseline.reason) in str(run.reason)
    assert [run.state for run in find_experiment(data_dir, waiting).runs] == [RunState.FINISHED]


def test_holes_and_second_names_take_no_room(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"x" * 5000)
    os.link(tmp_path / "mine", tmp_path / "again")
    with (tmp_path / "hole").open("wb") as hole:
        hole.truncate(2**40)
    (tmp_path / "elsewhere").mkdir()
    assert freeing_space.size_of(tmp_path) == 5000
    (tmp_path / "elsewhere" / "way").symlink_to(tmp_path)
    assert freeing_space.size_of(tmp_path / "elsewhere" / "way") == 0
