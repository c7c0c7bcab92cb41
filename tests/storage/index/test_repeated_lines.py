"""A journal's lines count once: what was copied into a journal changes no number, and is told."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from breakeven.runner.doctor.data_folder_checks import check_journals
from breakeven.runner.doctor.health_finding import Health
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import each_event, read_events
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.run_progress import RunProgress
from breakeven.runner.supervision.stopping_rule import JournalWatch
from breakeven.runner.worker.event_log import TAIL_BYTES, EventLog
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.comparison.run_warnings import MissingLines, RepeatedLines
from breakeven.storage.errors import ImportUnusable
from breakeven.storage.exchange.run_folders import import_run_folders, pack
from breakeven.storage.index import folders
from breakeven.storage.index.store import Store
from breakeven.storage.profile.explanation import explain
from breakeven.storage.team.feed import Feed
from breakeven.storage.team.lake import Lake
from breakeven.storage.terminal.as_json import comparison_json
from breakeven.storage.terminal.report import report
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, record_experiment
from tests.helpers.team.stores import sqlite_store

BACKEND = f"{EXPERIMENT_ID}.inductor"
Lines = list[bytes]
SEQUENCES = ("7", True, False, 7.0, 7.5, 1e300, None, [1], {"a": 1}, -1, 2**53 + 1, 10**30)


def with_odd_numbers(lines: Lines) -> Lines:
    """Lines without a number in its place."""
    block = json.loads(next(line for line in lines if b'"block"' in line))
    for place, seq in enumerate(SEQUENCES):
        odd = json.dumps(block | {"seq": seq}).encode() + b"\n"
        lines = [*lines[: 40 + 3 * place], odd, *lines[40 + 3 * place :]]
    del block["seq"]
    return [*lines[:30], json.dumps(block).encode() + b"\n", *lines[30:]]


COPIES: dict[str, Callable[[Lines], Lines]] = {
    "baseline": lambda lines: lines * 2,
    "control": lambda lines: [*lines, lines[-1]],
    "inductor": lambda lines: [lines[0], *lines],
    "eager": lambda lines: [*lines[:3], *lines[2:]],
    "aot_eager": lambda lines: [*lines[:30], *lines[10:30], *lines[30:]],
    "cudagraphs": lambda lines: [*lines, *lines[10:30]],
    "inductor-case_1": lambda lines: [*lines, *reversed(lines)],
    "inductor-case_2": with_odd_numbers,
    # A number that goes back takes out what follows until it is reached again.
    "inductor-case_3": lambda lines: [*lines[:50], *lines[20:]],
}
BACKENDS = (
    "inductor",
    "eager",
    "aot_eager",
    "cudagraphs",
    *(f"inductor:case={number}" for number in (1, 2, 3)),
)


def rewritten(run: RunDir, change: Callable[[Lines], Lines]) -> int:
    """Changes a journal; returns how many lines it gained."""
    lines = run.events_file.read_bytes().splitlines(keepends=True)
    changed = change(lines)
    run.events_file.write_bytes(b"".join(changed))
    return len(changed) - len(lines)


def numbers(comparison: Comparison) -> tuple[str, ...]:
    """Every number and verdict, and all warnings but that of repeated lines."""
    others = [warning for warning in comparison.warnings if not isinstance(warning, RepeatedLines)]
    return (
        repr(comparison.results),
        repr(others),
        repr(comparison.noise_floor),
    )


def repeated_lines(comparison: Comparison) -> dict[str, int]:
    """By run, the number of lines that are told to be left out."""
    return {
        label: num_lines
        for warning in comparison.warnings
        if isinstance(warning, RepeatedLines)
        for label, num_lines in warning.num_lines.items()
    }


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    """An experiment that becomes faster, and what it comes to."""
    data_dir = DataDir(tmp_path_factory.mktemp("undamaged"))
    record_experiment(data_dir.runs, experiment_spec(num_steps=120, backends=BACKENDS))
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, EXPERIMENT_ID)
    assert not repeated_lines(comparison)
    return data_dir.runs, numbers(comparison)


@pytest.fixture
def clean(undamaged: tuple[Path, tuple[str, ...]], data_dir: DataDir) -> tuple[str, ...]:
    """What the experiment of the data folder comes to, before its journal is damaged."""
    runs, expected = undamaged
    shutil.copytree(runs, data_dir.runs)
    return expected


def test_repeated_lines_count_once(data_dir: DataDir, clean: tuple[str, ...]) -> None:
    gained = {}
    for label, copy in COPIES.items():
        run = data_dir.run_dir(f"{EXPERIMENT_ID}.{label}")
        before = list(each_event(run.events_file))
        gained[label] = rewritten(run, copy)
        assert list(each_event(run.events_file)) == before, label
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, EXPERIMENT_ID)
        assert numbers(comparison) == clean
        assert repeated_lines(comparison) == gained
        (words,) = [
            str(warning.words())
            for warning in comparison.warnings
            if isinstance(warning, RepeatedLines)
        ]
        assert words in report(comparison)
        assert words in comparison_json(comparison)
        assert explain(store, EXPERIMENT_ID).comparison is comparison


@pytest.mark.parametrize("tick_bytes", [2_000, 10**9])
def test_copies_that_arrive_between_two_looks_count_once(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, tick_bytes: int
) -> None:
    monkeypatch.setattr(folders, "MAX_TICK_BYTES", tick_bytes)
    run = Recording(data_dir.runs, "baseline").claim(ProcessIdentity.from_pid(os.getpid())).start()
    journal = run.block([0.1] * 10, [1.0] * 10).run.events_file
    with Store.open(data_dir) as store:
        store.ingest_all()
        before = journal.read_bytes()
        with journal.open("ab") as file:
            file.write(before + before[: before.index(b"\n") + 1])
    with Store.open(data_dir) as store:  # a process that learns from the database how far it is
        assert store.ingest_all() == 0
        run.block([0.1] * 10, [0.5] * 10)
        assert queries.latest_runs(store, EXPERIMENT_ID)["steps_done"].tolist() == [20]
        assert store.ingest_all() == 11
        steps = store.rows("SELECT step FROM steps ORDER BY step")
        assert steps == [(step,) for step in range(20)]
        left_out = store.rows("SELECT left_out FROM progress")
        assert left_out == [(before.count(b"\n") + 1,)]


def test_teams_count_copies_once(data_dir: DataDir, clean: tuple[str, ...], tmp_path: Path) -> None:
    lake = Lake(sqlite_store(tmp_path))
    try:
        feed = Feed(lake, data_dir, None)
        feed.tick()
        journal = data_dir.run_dir(BACKEND).events_file
        with lake.reading() as cursor:
            before = cursor.execute("SELECT count(*), sum(seq) FROM steps").fetchall()
        journal.write_bytes(journal.read_bytes() * 2)
        for again in (feed, Feed(lake, data_dir, None)):
            assert again.tick() == (0, False)
        with lake.reading() as cursor:
            assert cursor.execute("SELECT count(*), sum(seq) FROM steps").fetchall() == before
            left_out = cursor.execute("SELECT sum(left_out) FROM progress").fetchall()
        assert left_out == [(journal.read_bytes().count(b"\n") // 2,)]
    finally:
        lake.close()


def test_a_resumed_run_goes_on_behind_its_last_line(data_dir: DataDir) -> None:
    def recorded(copies: int) -> list[tuple[object, ...]]:
        run = Recording(data_dir.runs, "baseline").start().block([0.1] * 20, [1.0] * 20)
        run.log.close()
        if copies:
            journal = run.run.events_file
            torn = b'{"v":1,"seq":99,"kind":"st'
            journal.write_bytes(journal.read_bytes() * copies + torn)
        run.log = EventLog(run.run.events_file)
        run.resume(10).block([0.2] * 10, [0.5] * 10).end()
        with Store.in_memory(data_dir) as store:
            rows = store.rows("SELECT seq, step, seconds FROM steps ORDER BY seq")
            if copies == 1:
                assert store.rows("SELECT missing, left_out FROM progress") == [(0, 0)]
        shutil.rmtree(data_dir.runs)
        return rows

    assert recorded(copies=2) == recorded(copies=1) == recorded(copies=0)


def test_a_journal_continues_after_its_last_number(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    for message in ("short", "x" * (TAIL_BYTES + 1), "short"):
        log = EventLog(file)
        log.append("error", message=message)
        log.close()
    with file.open("ab") as journal:
        journal.write(file.read_bytes().splitlines(keepends=True)[0])
    log = EventLog(file)
    log.append("phase", phase="done")
    log.close()
    assert [event["seq"] for event in read_events(file)[0]] == [0, 1, 2, 3]


def test_a_supervisor_and_a_terminal_count_copies_once(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=80)
    runs = {}
    for arm in spec.arms:
        run = Recording(data_dir.runs, arm.label, spec).start()
        run.blocks([0.1] * 8, [1.0] * 80)
        runs[run.run] = arm
    labels = [arm.label for arm in runs.values()]
    watch, progress = JournalWatch(spec, runs), RunProgress(next(iter(runs)), spec)
    for run in runs:
        watch.decide(labels)
        progress.update()
        run.events_file.write_bytes(run.events_file.read_bytes() * 2)
    progress.update()
    watch.decide(labels)
    assert watch._rule._seconds == pytest.approx(len(runs) * 80 * 0.1)
    assert progress.steps_done == 80


@pytest.mark.heavy
def test_doctor_and_import_tell(data_dir: DataDir, clean: tuple[str, ...], tmp_path: Path) -> None:
    journals = check_journals(data_dir)
    assert journals.health is Health.OK
    gained = rewritten(data_dir.run_dir(BACKEND), lambda lines: lines * 2)
    journals = check_journals(data_dir)
    assert journals.health is Health.DOUBTFUL and journals.remedy
    assert f"{BACKEND}: {gained:,}" in journals.evidence
    archive, there = tmp_path / "runs.zip", DataDir(tmp_path / "there")
    there.path.mkdir()
    archive.write_bytes(pack(data_dir.runs.iterdir()))
    with pytest.raises(ImportUnusable, match=f"events.jsonl of run {BACKEND} holds {gained} lines"):
        import_run_folders(there, archive)
    assert not list(there.runs.glob("*"))


LOST: dict[str, Callable[[Lines], Lines]] = {
    "baseline": lambda lines: [*lines[:60], *lines[90:]],
    "inductor": lambda lines: lines[30:],
    "eager": lambda lines: [*lines[:60], b"\0" * 4096 + b"\n", *lines[90:]],
    "aot_eager": lambda lines: [line for at, line in enumerate(lines[:90]) if at % 3] + lines[90:],
}


@pytest.mark.parametrize("tick_bytes", [20_000, 10**9])
def test_lines_that_a_journal_lost_are_told(
    data_dir: DataDir, clean: tuple[str, ...], tick_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_TICK_BYTES", tick_bytes)
    for label, lose in LOST.items():
        rewritten(data_dir.run_dir(f"{EXPERIMENT_ID}.{label}"), lose)
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, EXPERIMENT_ID)
    (missing,) = (warning for warning in comparison.warnings if isinstance(warning, MissingLines))
    assert missing.num_lines == dict.fromkeys(LOST, 30)
    assert "lack lines that the runs wrote" in str(missing.words())
    assert "30 lines of inductor" in report(comparison)
    journals = check_journals(data_dir)
    assert journals.health is Health.DOUBTFUL
    assert journals.evidence.startswith("120 lines are missing between other lines")
