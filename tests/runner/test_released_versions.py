"""Upgrade: the data folder of every released version is taken over as it is. Downgrade: what a
version to come has written is refused with words that say so."""

import json
import sys
from pathlib import Path

import pytest

from breakeven.runner.errors import InvalidRunFolder, InvalidSpec
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import Experiment, experiments
from breakeven.runner.folders.states import RunState
from breakeven.runner.supervision import supervisor
from breakeven.runner.worker.event_log import EventLog
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, record_experiment
from tests.helpers.released import VERSIONS, left_by

pytestmark = pytest.mark.heavy

HURRIED = """
import sys
from tests.helpers import fake_worker
fake_worker.time.sleep = lambda seconds: None
sys.exit(fake_worker.main())
"""
"""A worker without torch for which the slowest backend takes no time."""
STEPS = "SELECT run_id, count(*) FROM steps GROUP BY 1 ORDER BY 1"


@pytest.fixture(params=VERSIONS)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> DataDir:
    return left_by(request.param, tmp_path / "data")


def named(data_dir: DataDir, name: str) -> Experiment:
    (found,) = [one for one in experiments(data_dir) if one.spec.name == name]
    return found


def states(data_dir: DataDir, name: str) -> set[RunState]:
    return {run.state for run in named(data_dir, name).runs}


def test_every_run_of_a_released_version_is_told_as_what_it_was(left: DataDir) -> None:
    assert states(left, "test") == states(left, "went through") == {RunState.FINISHED}
    assert states(left, "cancelled") == {RunState.CANCELLED}
    assert states(left, "queued") == {RunState.QUEUED}
    assert RunState.LOST in states(left, "cut off")


def test_the_index_has_every_step_that_the_released_version_had_recorded(left: DataDir) -> None:
    lines = {run.run_id: run.events_file.read_text().count('"kind":"step"')
             + run.events_file.read_text().count('"kind": "step"')
             for run in left.run_dirs() if run.events_file.exists()}  # fmt: skip
    assert left.database_file.exists(), "the released version's own"
    with Store.open(left) as store:
        store.ingest()
        assert queries.unreadable(store).empty
        assert dict(store.rows(STEPS)) == {run: count for run, count in lines.items() if count}
        assert len(queries.list_experiments(store)) == 5


def test_what_a_released_version_left_open_is_finished(
    left: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {run: run.events_file.read_bytes() for run in named(left, "went through").runs}
    monkeypatch.setattr(supervisor, "LINGER_SECONDS", 0.0)
    supervisor.supervise(left, (sys.executable, "-c", HURRIED))
    assert states(left, "queued") == {RunState.FINISHED}
    assert all(run.is_recorded for run in named(left, "cut off").runs)
    assert before == {run: run.events_file.read_bytes() for run in before}


def test_a_journal_of_a_version_to_come_is_refused_with_words(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs)
    new = data_dir.run_dir(f"{EXPERIMENT_ID}.inductor")
    new.events_file.write_text(new.events_file.read_text().replace('{"v":1,', '{"v":2,'))
    with Store.in_memory(data_dir) as store:
        (why,) = queries.unreadable(store)["message"]
        assert "a newer version of Breakeven (format 2, this one reads up to 1): update" in why
        assert set(queries.list_runs(store, EXPERIMENT_ID)["label"]) == {"baseline", "control"}
    with pytest.raises(InvalidRunFolder, match="newer version of Breakeven"):
        EventLog(new.events_file)


def test_a_specification_of_a_version_to_come_is_refused_with_words(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs)
    new = data_dir.run_dir(f"{EXPERIMENT_ID}.inductor")
    content = json.loads(new.spec_file.read_text())
    content["experiment"]["colour"] = "red"
    new.spec_file.write_text(json.dumps(content))
    with pytest.raises(InvalidSpec, match=r"'red'.*If a newer version of Breakeven wrote"):
        new.read_spec()
