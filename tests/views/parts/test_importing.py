"""Imports on a page: only by people who may act, whatever the name and the content."""

import io
import zipfile
from pathlib import Path

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.exchange import runs_in_report as reports
from breakeven.storage.exchange.imports import imported_rows
from breakeven.storage.exchange.run_folders import pack
from breakeven.views.access import permissions
from breakeven.views.parts.exchange import accepted, import_upload
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment


@pytest.fixture
def runs(tmp_path: Path) -> bytes:
    """An archive of a recorded experiment."""
    recorded = DataDir(tmp_path / "recorded")
    record_experiment(recorded.runs, experiment_spec(num_steps=80))
    return pack(recorded.runs.iterdir())


HARNESS = b"dev,name,batch_size,speedup,abs_latency\ncuda,bert,32,1.5,41.2\n"


def test_a_file_is_what_it_holds_whatever_it_is_called(folder: DataDir, runs: bytes) -> None:
    page = f"<!DOCTYPE html>{reports.report_element(runs)}".encode()
    assert import_upload(folder, "../../Mein Bericht.html", page).brought.runs.new_runs
    assert {"zip", "tar", "tar.gz", "tgz", "html", "csv", "json", "parquet"} <= set(accepted())
    again = import_upload(folder, "runs.zip", runs)
    assert again.brought.runs.experiments == (EXPERIMENT_ID,) and not again.brought.runs.new_runs
    assert import_upload(folder, "in/ductor (1).csv", HARNESS).brought.rows
    assert imported_rows(folder)[0]["file"].tolist() == ["ductor-1.csv"]
    kept = import_upload(folder, "reviews.csv", b"text,label\ngood,1\n").data_file
    assert kept is not None and kept.parent == folder.path / "uploads"


def test_what_is_wrong_is_said_without_paths_of_this_machine(folder: DataDir) -> None:
    hostile = io.BytesIO()
    with zipfile.ZipFile(hostile, "w") as archive:
        archive.writestr("../../evil", b"x")
    files = {
        "x.zip": hostile.getvalue(),
        "x.html": b"<html>",
        "x.json": b"{}",
        "x.exe": b"MZ",
        "x.csv": b"dev,name,batch_size\n",
        "x.tar.gz": b"\x1f\x8b",
    }
    for name, content in files.items():
        problem = import_upload(folder, name, content).problem
        assert problem and "/tmp" not in problem and str(folder.path) not in problem, name
    assert not folder.runs.exists() or not list(folder.runs.iterdir())
    assert imported_rows(folder)[0].empty


def test_who_may_only_look_brings_nothing_in(
    folder: DataDir, runs: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permissions, "may_act", lambda: False)
    with pytest.raises(permissions.NotAllowed):
        import_upload(folder, "runs.zip", runs)
    assert not folder.runs.exists()
