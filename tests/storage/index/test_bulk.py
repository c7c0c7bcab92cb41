"""Much that is taken in at once, in many looks."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.errors import StoreUnusable
from breakeven.storage.index import folders, ingest, watch
from breakeven.storage.index.store import Store
from tests.helpers.journals import experiment_spec, record_experiment
from tests.storage.index.rows import content

SPEC = experiment_spec(num_steps=20, controls=0)


def ids(count: int) -> list[str]:
    return [f"20261121-0930{number:02d}-123456-7f3a" for number in range(count)]


@pytest.fixture
def small_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of one experiment or so."""
    monkeypatch.setattr(folders, "MAX_TICK_BYTES", 6_000)


def at_once(data_dir: DataDir) -> dict[str, list[str]]:
    """What one small look finds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folders, "MAX_TICK_BYTES", 10**8)
        with Store.in_memory(data_dir) as store:
            return content(store)


def test_many_looks_come_to_the_same_as_one(data_dir: DataDir, small_looks: None) -> None:
    for experiment_id in ids(4):
        record_experiment(data_dir.runs, SPEC, experiment_id)
    with Store.open(data_dir) as store:
        store.ingest()
        experiments = store.rows("SELECT experiment_id, count(*) FROM runs GROUP BY ALL")
        assert experiments == [(ids(4)[-1], 2)], "the newest one first, with all its runs"
        assert store.ingest_all() > 3 * 2 * 22
        assert store.generation > 2
        assert content(store) == at_once(data_dir)
        owners = "SELECT count(DISTINCT experiment) FROM runs JOIN steps USING (experiment, run_id)"
        assert store.rows(owners) == [(4,)]


def test_nothing_is_lost_or_doubled_where_a_transaction_fails(
    data_dir: DataDir, small_looks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the third one; others were looked at before."""
    for experiment_id in ids(5):
        record_experiment(data_dir.runs, SPEC, experiment_id)
    done, insert = [], ingest.insert_events

    def failed(*given: Any) -> int:
        done.append(insert(*given))
        if len(done) == 3:
            raise OSError(28, "No space left on device")
        return done[-1]

    monkeypatch.setattr(ingest, "insert_events", failed)
    with Store.open(data_dir) as store:
        with pytest.raises(StoreUnusable, match="No space left"):
            store.ingest_all()
        # Pages ask again for what they keep once this grows: not before there is more to see.
        assert store.generation == 2
        assert store.rows("SELECT count(*) FROM steps")[0][0] < 5 * 2 * 20
        store.ingest()
        store.ingest_all()
        assert store.generation > 3
        assert content(store) == at_once(data_dir)


NO_EVENTS = (
    b'{"v":1,"kind":"step","seq":%d,oops}\n',
    b'{"v":1,"kind":"step","seq":%d,"step":3,"x":"\xff"}\n',
    b'{"v":1,"kind":"block","seq":%d}\n',
    b'{"v":1,"kind":"phase","seq":%d,"time":1,"phase":"x",oops}\n',
    b'{"v":1,"kind":"nobody knows this kind","seq":%d,"time":1}\n',
)


def test_a_line_that_is_no_event_keeps_no_other_out(data_dir: DataDir, small_looks: None) -> None:
    """Each such line is in the middle of a journal of its own."""
    damaged: dict[Path, bytes] = {}
    for number, experiment_id in enumerate(ids(len(NO_EVENTS) + 1)):
        record_experiment(data_dir.runs, SPEC, experiment_id)
        if number < len(NO_EVENTS):
            journal = data_dir.run_dir(f"{experiment_id}.baseline").events_file
            lines = [
                re.sub(rb'"seq":\d+', b'"seq":%d' % (2 * place), line)
                for place, line in enumerate(journal.read_bytes().splitlines(True))
            ]
            journal.write_bytes(b"".join(lines))
            half = len(lines) // 2
            lines.insert(half, NO_EVENTS[number] % (2 * half - 1))
            damaged[journal] = b"".join(lines)
    expected = at_once(data_dir)
    for journal, content_of in damaged.items():
        journal.write_bytes(content_of)
    with Store.open(data_dir) as store:
        store.ingest_all()
        rows_by_table = content(store)
        assert store.ingest_all() == 0
    del rows_by_table["progress"], expected["progress"]
    assert rows_by_table == expected


def test_of_a_run_that_begins_anew_between_two_looks_nothing_old_stays(
    data_dir: DataDir, small_looks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(data_dir.runs, experiment_spec(num_steps=200, controls=0), ids(1)[0])
    journal = data_dir.run_dir(f"{ids(1)[0]}.baseline").events_file
    lines = journal.read_bytes().splitlines(keepends=True)
    look = watch.Watch.look
    looks = []

    def beginning_anew(self: watch.Watch) -> folders.FolderScan:
        looks.append(look(self))
        if len(looks) == 2:
            other = journal.with_name("other")
            other.write_bytes(b"".join(lines[:8]) + lines[-1])
            os.replace(other, journal)
        return looks[-1]

    monkeypatch.setattr(watch.Watch, "look", beginning_anew)
    with Store.open(data_dir) as store:
        store.ingest_all()
        assert any(seen.restarted for seen in looks)
        assert content(store) == at_once(data_dir)
