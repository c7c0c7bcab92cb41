"""Journal lines taken apart: nothing is lost between the parts, and none counts twice."""

import json
import tempfile
from pathlib import Path

import pytest

from runner.folders.run_dir import DataDir
from runner.worker.event_log import EventLog
from storage import queries
from storage.index import batches, ingest
from storage.index.journal_lines import FREQUENT, split_by_kind, whole_lines, with_owner
from storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording, record_experiment


def test_lines_of_frequent_kinds_are_known_as_the_runner_writes_them(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    for kind in FREQUENT:
        log.append(kind, step=1)
    log.close()
    written = (tmp_path / "events.jsonl").read_bytes()
    assert written.count(b"\n") == 3
    assert split_by_kind(written, FREQUENT) == {
        kind: line for kind, line in zip(FREQUENT, written.splitlines(keepends=True), strict=True)
    }
    assert split_by_kind(b"", FREQUENT) == {}


STEP = b'{"v":1,"kind":"step","step":1}\n'
BLOCK = b'{"v":1,"kind":"block","x":1}\n'
OTHERS = (
    b'{"v":1,"seq":7,"kind":"step","step":1}\n',
    b'{"v": 1, "kind": "step"}\n',
    b"\n",
    b'{"kind":"step"}\n',
    b'{"v":1,"kind":"stepped","x":1}\n',
    b'{"v":1,"kind":"error","m":"{\\"v\\":1,"}\n',
    b'{"v":1,"kind":"step"\n',
    b'{"v":1,"kind":"bl\n',
    b'{"v":1,"kind":"block"}\n',
)


@pytest.mark.parametrize("first", [b"", STEP, OTHERS[0], OTHERS[-1]])
def test_lines_of_other_kinds_are_found_wherever_they_stand(first: bytes) -> None:
    lines = first + b"".join(row + STEP + row + row + BLOCK for row in OTHERS)
    assert split_by_kind(lines, ("step", "block")) == {
        "": (b"" if first == STEP else first) + b"".join(row * 3 for row in OTHERS),
        "step": STEP * (len(OTHERS) + (first == STEP)),
        "block": BLOCK * len(OTHERS),
    }


def test_a_line_counts_for_the_run_whose_journal_holds_it() -> None:
    named = with_owner(3, "a.b", b'{"run_id":"c.d","x":1}\n17\n[1]\n{"x":\n  {"y":2}  \n')
    rows = [json.loads(line, object_pairs_hook=list) for line in named.splitlines()]
    owner = [("experiment", 3), ("run_id", "a.b")]
    assert rows == [[*owner, ("run_id", "c.d"), ("x", 1)], [*owner, ("y", 2)]]


@pytest.mark.parametrize("small_bytes", [0, 10**9])
def test_no_row_passes_for_another_runs(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    monkeypatch.setattr(ingest, "SMALL_BYTES", small_bytes)
    Recording(data_dir.runs, "baseline").log.close()
    foreign = Recording(data_dir.runs, "control")
    claimed = {"experiment": 7, "run_id": f"{EXPERIMENT_ID}.baseline", "filename": "x"}
    for kind in ("step", "block", "error"):
        foreign.log.append(kind, **claimed, step=0, round=0, first_step=0, num_steps=1,
                           seconds=1.0, error="e")  # fmt: skip
    foreign.log.close()
    with Store.in_memory(data_dir) as store:
        for table in ("steps", "blocks", "errors"):
            owners = store.rows(f"SELECT experiment, run_id FROM {table}")
            assert owners == [(1, f"{EXPERIMENT_ID}.control")], table


def test_lines_read_apart_and_together_come_to_the_same(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_experiment(data_dir.runs)
    run = Recording(data_dir.runs, "baseline", experiment_id="20261122-000000-000000-aaaa").start()
    run.block([0.1] * 10, [1.0] * 10).device(wall_seconds=1.0).resume(5).stop("enough")
    for line in ('{"kind": "step", "seq": 90, "step": 90}', '{"kind": "block", "seq": 1}', "17"):
        run.run.events_file.open("a").write(line + "\n")
    found = []
    # As they are read live; in bulk, all in one file, all in one batch, each journal in its own.
    for small_bytes, own_file_bytes, batch_bytes in (
        (10**9, 0, 0), (0, 10**9, 10**9), (0, 0, 10**9), (0, 0, 1)
    ):  # fmt: skip
        monkeypatch.setattr(ingest, "SMALL_BYTES", small_bytes)
        monkeypatch.setattr(batches, "OWN_FILE_BYTES", own_file_bytes)
        monkeypatch.setattr(batches, "BATCH_BYTES", batch_bytes)
        with Store.in_memory(data_dir) as store:
            tables = [
                t for t in store.query("SHOW TABLES")["name"] if t not in ("progress", "meta")
            ]
            found.append({t: sorted(map(str, store.query(f"FROM {t}").values.tolist()))
                          for t in tables})  # fmt: skip
    assert found[0] == found[1] == found[2] == found[3]
    assert len(found[0]["steps"]) == 120 + 5 + 1


def test_files_of_batches_that_nobody_asks_for_any_more_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(batches, "BATCH_BYTES", 1)
    ready = batches.batches({(1, f"a.{number}"): STEP for number in range(9)})
    assert next(ready).shared_files["step"]
    assert list(tmp_path.iterdir())
    ready.close()
    assert not list(tmp_path.iterdir())


def test_only_lines_that_end_like_objects_are_kept() -> None:
    good = b'{"a":1}\n'
    assert whole_lines(good * 3) == good * 3
    for torn in (b'{"a":\n', b"\n", b"17\n"):
        assert whole_lines(torn + good) == good
        assert whole_lines(good + torn) == good


def test_an_object_that_is_larger_than_any_real_one_is_passed_over_and_its_line_is_not(
    tmp_path: Path,
) -> None:
    """100,000 variables of one run kept all that is computed of its experiment busy for minutes."""
    folder = DataDir(tmp_path)
    many = {f"VARIABLE_{number}": "x" * 20 for number in range(20_000)}
    for label, variables in (("baseline", {"A": "b"}), ("control", many)):
        Recording(folder.runs, label).claim().start(environment={"variables": variables}).end()
    with Store.open(folder) as store:
        store.ingest_all()
        found = queries.environments(store, EXPERIMENT_ID).set_index("label")
    assert found["variables"]["baseline"] == {"A": "b"}
    assert not found["variables"]["control"]
    assert found["host"]["control"] == "box"
