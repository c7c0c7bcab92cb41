"""What the ranks of a run on several devices came to, from a journal worked out by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.storage.index.store import Store
from breakeven.storage.profile.ranks import ranks_of
from tests.helpers.journals import Recording, experiment_spec


@pytest.fixture
def folder(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path)


def recorded(folder: DataDir, sent: dict[str, float | None]) -> str:
    spec = replace(experiment_spec(), devices=("cpu", "cpu"))
    run = Recording(folder.runs, "baseline", spec, "a").claim().start()
    for round, peaks in enumerate(((100, 70), (90, 80))):
        rows = [{"rank": rank, "seconds": 1.0, "cpu_seconds": 0.5, "peak_memory_bytes": peak,
                 "reserved_memory_bytes": None}
                for rank, peak in enumerate(peaks)]  # fmt: skip
        run.log.extend("rank_block", rows, round=round, first_step=10 * round)
    for round, slower in enumerate((0.30, 0.33, 0.90)):
        rows = [
            {"rank": 0, "compute_seconds": 0.30, "communication_seconds": 0.20,
             "exposed_seconds": 0.15},
            {"rank": 1, "compute_seconds": slower, "communication_seconds": 0.10,
             "exposed_seconds": 0.02},
        ]  # fmt: skip
        run.log.extend("rank_profile", rows, round=10 + round)
        kinds = [{"rank": 0, "name": name, "calls": 2.0, "sent_bytes": size, "seconds": 0.1}
                 for name, size in sent.items()]  # fmt: skip
        run.log.extend("collective", kinds, round=10 + round)
    run.end()
    return "a"


def test_the_slowest_rank_is_the_one_that_computes_longest(folder: DataDir) -> None:
    name = recorded(folder, {"all_reduce": 400.0, "broadcast": 24.0})
    with Store.in_memory(folder) as store:
        (found,) = ranks_of(store, name)
    assert found.slowest is not None and found.slowest.rank == 1
    assert found.lag == pytest.approx(0.1)  # medians over three turns: 0.33 over 0.30
    assert found.communication_seconds == 0.10 and found.exposed_seconds == 0.02
    assert [one.peak_memory_bytes for one in found.ranks] == [100, 80]
    assert found.sent_bytes == 424


def test_bytes_are_unknown_where_one_collective_does_not_say_its_size(folder: DataDir) -> None:
    name = recorded(folder, {"all_reduce": 400.0, "scatter": None})
    with Store.in_memory(folder) as store:
        (found,) = ranks_of(store, name)
    assert found.sent_bytes is None
    assert [(one.name, one.bytes) for one in found.sent] == [("all_reduce", 400.0),
                                                            ("scatter", None)]  # fmt: skip


def test_runs_on_one_device_have_no_ranks(folder: DataDir) -> None:
    Recording(folder.runs, "baseline", experiment_spec(), "a").claim().start().end()
    with Store.in_memory(folder) as store:
        assert ranks_of(store, "a") == []
