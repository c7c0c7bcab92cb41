"""Run folders travel: packed and taken in again they are equal, and what is odd changes nothing."""

import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Labels
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.storage.errors import ImportUnusable, NotExportable
from breakeven.storage.exchange import runs_in_report as reports
from breakeven.storage.exchange.imports import import_any
from breakeven.storage.exchange.run_folders import import_run_folders, pack
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment

RUNS = [f"{EXPERIMENT_ID}.{label}" for label in ("baseline", "control", "inductor")]


@pytest.fixture
def recorded(tmp_path: Path) -> DataDir:
    data_dir = DataDir(tmp_path / "recorded")
    record_experiment(data_dir.runs, experiment_spec(num_steps=80))
    backend = RunDir(data_dir.runs / RUNS[2])
    for folder in (
        backend.artifacts,
        backend.checkpoints,
        backend.workplace,
        backend.compile_cache,
    ):
        folder.mkdir()
        (folder / "file").write_bytes(b"content")
    backend.write_labels(Labels(name="Mine", tags=("one",)))
    return data_dir


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    data_dir = DataDir(tmp_path / "data")
    data_dir.path.mkdir()
    return data_dir


def packed(recorded: DataDir, tmp_path: Path) -> Path:
    archive = tmp_path / "runs.zip"
    archive.write_bytes(pack(recorded.runs.iterdir()))
    return archive


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def changed(archive: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """The archive with other files in it."""
    with zipfile.ZipFile(archive) as packed_archive:
        content = {name: packed_archive.read(name) for name in packed_archive.namelist()}
    change(content)
    other = archive.with_name("changed.zip")
    with zipfile.ZipFile(other, "w") as rewritten:
        for name, data in content.items():
            rewritten.writestr(name, data)
    return other


def test_archives_keep_content(recorded: DataDir, data_dir: DataDir, tmp_path: Path) -> None:
    """Of two experiments. What a killed import left goes."""
    left = data_dir.path / ".incoming-0123456789ab" / "unpacked"
    left.mkdir(parents=True)
    (left / "large").write_bytes(b"x" * 1000)
    other = "20261122-093015-123456-7f3b"
    record_experiment(recorded.runs, experiment_spec(num_steps=80), other)
    archive = packed(recorded, tmp_path)
    taken = import_run_folders(data_dir, archive)
    assert not left.parent.exists() and sorted(taken.experiments) == [EXPERIMENT_ID, other]
    assert sorted(taken.new_runs)[:3] == RUNS and len(taken.new_runs) == 6
    assert pack(data_dir.runs.iterdir()) == archive.read_bytes()
    before, after = files(recorded.runs), files(data_dir.runs)
    run = RunDir(recorded.runs / RUNS[2])
    stay = {run.checkpoints.name, run.compile_cache.name, run.workplace.name}
    left_behind = {name for name in before if stay & {*PurePosixPath(name).parts}}
    assert len(left_behind) == 3
    assert after == {name: data for name, data in before.items() if name not in left_behind}


def test_what_could_not_be_taken_back_is_not_packed(recorded: DataDir) -> None:
    """A file that says it has a terabyte takes no room on a disk, and packed next to none."""
    folder = next(recorded.runs.iterdir())
    with (folder / "output.log").open("wb") as log:
        log.truncate(2**40)
    with pytest.raises(NotExportable, match="unpacked, these runs take more than 2,048 MiB"):
        pack([folder])


def test_odd_names_are_left_behind(recorded: DataDir, data_dir: DataDir, tmp_path: Path) -> None:
    """A folder that somebody made may have any; all that is worth something goes all the same."""
    wanted = pack(sorted(recorded.runs.iterdir()))
    artifacts = next(recorded.runs.iterdir()) / "artifacts"
    artifacts.mkdir(exist_ok=True)
    for odd in (b"\xff\xfe.txt", b"a\nb", b"\x1b[2J", b"C:x", "\u202egnp.exe".encode(), b"a\\b"):
        (artifacts / os.fsdecode(odd)).write_text("x")
    deep = artifacts.joinpath(*["d"] * 20)
    deep.mkdir(parents=True)
    (deep / "x").write_text("x")
    assert pack(sorted(recorded.runs.iterdir())) == wanted
    archive = tmp_path / "odd.zip"
    archive.write_bytes(wanted)
    assert sorted(import_run_folders(data_dir, archive).new_runs) == RUNS


def test_importing_twice_is_harmless(recorded: DataDir, data_dir: DataDir, tmp_path: Path) -> None:
    archive = packed(recorded, tmp_path)
    import_run_folders(data_dir, archive)
    before = files(data_dir.runs)
    again = import_run_folders(data_dir, archive)
    assert (again.new_runs, sorted(again.known_runs)) == ([], RUNS)
    assert files(data_dir.runs) == before
    # Labels are what people here said since.
    RunDir(data_dir.runs / RUNS[2]).write_labels(Labels(name="Ours"))
    import_run_folders(data_dir, archive)
    assert RunDir(data_dir.runs / RUNS[2]).read_labels().name == "Ours"


def test_examples_are_not_imported(recorded: DataDir, data_dir: DataDir, tmp_path: Path) -> None:
    shutil.copytree(recorded.runs, tmp_path / "examples" / "one")
    taken = import_run_folders(data_dir, packed(recorded, tmp_path), examples=tmp_path / "examples")
    assert sorted(taken.known_runs) == RUNS and not taken.new_runs
    assert not data_dir.runs.exists() or not list(data_dir.runs.iterdir())


SPEC_FILE = f"{RUNS[0]}/spec.json"


def keep(files: dict[str, bytes], wanted: Callable[[str], bool]) -> None:
    for name in [name for name in files if not wanted(name)]:
        del files[name]


def respecified(files: dict[str, bytes], **changes: Any) -> None:
    files[SPEC_FILE] = json.dumps(json.loads(files[SPEC_FILE]) | changes).encode()


BAD: dict[str, tuple[Callable[[dict[str, bytes]], object], str]] = {
    "no exit": (lambda files: files.pop(f"{RUNS[0]}/exit.json"), "has not ended"),
    "never run": (
        lambda files: keep(files, lambda name: name.endswith("spec.json")),
        "has not ended",
    ),
    "lacks a run": (
        lambda files: keep(files, lambda name: not name.startswith(RUNS[1])),
        "lacks the runs control",
    ),
    "another specification": (
        lambda files: respecified(
            files, experiment=json.loads(files[SPEC_FILE])["experiment"] | {"name": "another"}
        ),
        "describes another experiment",
    ),
    "hostile specification": (
        lambda files: respecified(files, experiment_id="../../../tmp/x"),
        "no specification: ",
    ),
    "broken specification": (
        lambda files: files.update({SPEC_FILE: b"{" * 100_000}),
        "no specification: ",
    ),
    "broken labels": (
        lambda files: files.update({f"{RUNS[0]}/labels.json": b"[]"}),
        "cannot be used",
    ),
    "a twin": (
        lambda files: files.update(
            {f"copy/{name}": data for name, data in files.items() if name.startswith(RUNS[0])}
        ),
        "in it twice",
    ),
    "nothing": (
        lambda files: (files.clear(), files.update({"notes.txt": b"hello"})),
        "no run folder in it",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_odd_is_refused_whole_and_leaves_nothing(
    recorded: DataDir, data_dir: DataDir, tmp_path: Path, case: str
) -> None:
    change, said = BAD[case]
    other = changed(packed(recorded, tmp_path), change)
    with pytest.raises(ImportUnusable, match=said) as error:
        import_any(data_dir, other)
    assert str(error.value).startswith("changed.zip is not taken: ")
    assert str(data_dir.path) not in str(error.value), "no path of a folder that is gone"
    left = {path.name for path in data_dir.path.iterdir()} - {"library.lock"}
    assert left <= {"runs"} and not list(data_dir.runs.glob("*"))


def test_other_content_is_refused(recorded: DataDir, data_dir: DataDir, tmp_path: Path) -> None:
    archive = packed(recorded, tmp_path)
    import_run_folders(data_dir, archive)
    before = files(data_dir.runs)
    with pytest.raises(ImportUnusable, match="there already with another content") as error:
        journal = f"{RUNS[0]}/events.jsonl"
        longer = lambda files: files.update({journal: files[journal] + b"\n"})  # noqa: E731
        import_run_folders(data_dir, changed(archive, longer))
    assert "events.jsonl" in str(error.value)
    assert files(data_dir.runs) == before


def test_other_files_are_left_out(recorded: DataDir, data_dir: DataDir, tmp_path: Path) -> None:
    def whole_folder(files: dict[str, bytes]) -> None:
        for name in list(files):
            files[f"data/runs/{name}"] = files.pop(name)
        files["data/breakeven.duckdb"] = b"x"
        files[f"data/runs/{RUNS[2]}/artifacts/spec.json"] = b"not a run of its own"
        files[f"data/runs/{RUNS[2]}/compile-cache/kernel.so"] = b"code"

    taken = import_run_folders(data_dir, changed(packed(recorded, tmp_path), whole_folder))
    assert taken.left_out == [
        "data/breakeven.duckdb",
        f"data/runs/{RUNS[2]}/compile-cache/kernel.so",
    ]
    names = {path.name for path in (data_dir.runs / RUNS[2]).iterdir()}
    assert "compile-cache" not in names and "artifacts" in names


def test_nothing_may_be_executed(recorded: DataDir, data_dir: DataDir, tmp_path: Path) -> None:
    archive = packed(recorded, tmp_path)
    with zipfile.ZipFile(archive, "a") as packed_archive:
        entry = zipfile.ZipInfo(f"{RUNS[2]}/artifacts/evil.sh")
        entry.external_attr = 0o100777 << 16
        packed_archive.writestr(entry, "#!/bin/sh")
    import_run_folders(data_dir, archive)
    modes = [path.stat().st_mode for path in data_dir.runs.rglob("*") if path.is_file()]
    assert modes and not any(mode & 0o111 for mode in modes)


def page(archive: bytes, before: str = "") -> bytes:
    return f"<!DOCTYPE html>\n<html>{before}{reports.report_element(archive)}</html>".encode()


def test_a_report_has_its_runs(recorded: DataDir, data_dir: DataDir, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    report.write_bytes(page(pack(recorded.runs.iterdir())))
    assert import_any(data_dir, report).runs.experiments == (EXPERIMENT_ID,)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../outside", b"x")
    report.write_bytes(page(file.getvalue()))
    with pytest.raises(ImportUnusable, match="leads out of its folder"):
        import_any(data_dir, report)
    assert pack(data_dir.runs.iterdir()) == pack(recorded.runs.iterdir())


def test_changed_reports_are_refused(recorded: DataDir, data_dir: DataDir, tmp_path: Path) -> None:
    archive = pack(recorded.runs.iterdir())
    report_page = page(archive)
    start = report_page.index(b'">') + 40
    tampered = {
        "changed": report_page[:start]
        + (b"A" if report_page[start : start + 1] != b"A" else b"B")
        + report_page[start + 1 :],
        "cut": report_page[: len(report_page) // 2],
        "empty": b"<!DOCTYPE html><html></html>",
        "two": page(archive, reports.report_element(archive)),
        "script": report_page.replace(b"application/zip", b"text/javascript"),
        "version": report_page.replace(b"report-1", b"report-9"),
        "commented": report_page.replace(b"<html>", b"<html><!--")
        .replace(b"</html>", b"--></html>")
        .replace(b" data-format", b"  data-format"),
    }
    for name, content in tampered.items():
        report = tmp_path / f"{name}.html"
        report.write_bytes(content)
        with pytest.raises(ImportUnusable, match=f"{name}.html is not taken"):
            import_any(data_dir, report)
    assert not data_dir.runs.exists()
