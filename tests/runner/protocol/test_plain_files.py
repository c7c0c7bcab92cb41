"""A thousand nested folders end no process that looks at them or removes them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from breakeven.runner.errors import InvalidRunFolder
from breakeven.runner.experiments import freeing_space
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.plain_files import MAX_DEPTH, remove_tree, require_plain_tree, walk
from breakeven.storage.exchange.run_folders import pack
from tests.helpers.journals import EXPERIMENT_ID, record_experiment

pytestmark = pytest.mark.heavy
DEPTH = 1_100
"""More than Python's own walk and removal come through by recursion, before 3.12 and 3.13."""


@pytest.fixture
def nested(data_dir: DataDir) -> Iterator[Path]:
    """An experiment with a run whose artifacts are so."""
    record_experiment(data_dir.runs)
    artifacts = data_dir.run_dir(f"{EXPERIMENT_ID}.baseline").artifacts
    artifacts.mkdir(exist_ok=True)
    (artifacts / "near.txt").write_bytes(bytes(1000))
    here = os.open(artifacts, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    yield artifacts
    if artifacts.exists():
        remove_tree(artifacts)


def test_looks_reach_down_so_far_and_no_farther(nested: Path, data_dir: DataDir) -> None:
    assert len([*walk(nested)]) == MAX_DEPTH + 1
    assert freeing_space.size_of(nested) == 1000
    run = data_dir.run_dir(f"{EXPERIMENT_ID}.baseline")
    run.drop_leftovers()
    assert pack([run.path])
    with pytest.raises(InvalidRunFolder, match=f"more than {MAX_DEPTH} folders"):
        require_plain_tree(run.path, ignore=())


def test_the_whole_of_it_can_be_removed(nested: Path, data_dir: DataDir) -> None:
    freeing_space.free(data_dir, EXPERIMENT_ID, artifacts=True)
    assert not nested.exists()


def test_a_file_that_vanishes_meanwhile_is_no_fault_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process renames its complete file."""
    (tmp_path / "kept").touch()
    (tmp_path / ".claim.json.new").touch()
    lstat = os.lstat

    def vanishing(path: Path) -> os.stat_result:
        if path.name == ".claim.json.new":
            path.unlink()
        return lstat(path)

    monkeypatch.setattr("breakeven.runner.protocol.plain_files.os.lstat", vanishing)
    require_plain_tree(tmp_path, ignore=())
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
