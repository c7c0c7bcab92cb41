"""Downloaded files contain everything that was measured, even if charts leave some out."""

import csv
import io
import json
import math
import re
from collections.abc import Callable

import pandas as pd
import pyarrow as pa
import pytest
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.memory_media_file_storage import MemoryMediaFileStorage

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.scenario_fields import CacheSpec
from breakeven.storage.exchange.benchmark_formats import write_csv
from breakeven.storage.exchange.csv_and_parquet import to_csv
from breakeven.storage.index.store import Store
from breakeven.views.parts import downloads, exchange
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)
from tests.helpers.pages import ROOT, every_tab, opened, opened_run, table, text
from tests.helpers.suites import HARNESS, bring

NUM_STEPS = 1800
"""More than the 1,000 points that a chart gets."""


def record_long(folder: DataDir) -> None:
    spec = experiment_spec(num_steps=NUM_STEPS, block_steps=100, epochs=2)
    for label in ("baseline", "control", "inductor"):
        recording = Recording(folder.runs, label, spec).claim().start()
        recording.blocks([0.1] * 18, falling_losses(NUM_STEPS)).evaluation(0.8, epoch=1).end()


def rows_of(files: dict[str, Callable[[], bytes]], name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(files[f"download-{name}.csv"]().decode())))


def steps_by_run(rows: list[dict[str, str]]) -> dict[str, list[int]]:
    return pd.DataFrame(rows).astype({"step": int}).groupby("label")["step"].agg(list).to_dict()


def test_a_file_waits_for_its_browser_while_scripts_of_other_readers_end():
    manager = MediaFileManager(MemoryMediaFileStorage("/media"))

    def clicked(number: int) -> str:
        content, name = str(number).encode(), f"race-{number}.csv"

        def made() -> bytes:
            downloads._keep(manager, content, name, "text/csv")
            return content

        address = manager.execute_deferred(manager.add_deferred(made, "text/csv", "1", name))
        for _ in range(3):
            manager.remove_orphaned_files()
        return address.rpartition("/")[2]

    first, *others = [clicked(number) for number in range(downloads.MOST_KEPT)]
    file = manager.read_file(first)
    assert file and (file.content, file.filename) == (b"0", "race-0.csv")
    clicked(downloads.MOST_KEPT)
    assert manager.read_file(first) is None and all(map(manager.read_file, others))


def test_downloads_hold_every_step_and_are_written_only_when_somebody_asks(
    folder: DataDir, files, monkeypatch
):
    record_long(folder)
    written = []
    real = downloads._table_file

    def counting(data: downloads.Data, suffix: str) -> bytes:
        written.append(len(data() if callable(data) else data))
        return real(data, suffix)

    monkeypatch.setattr(downloads, "_table_file", counting)
    every_tab(experiment=EXPERIMENT_ID)
    opened_run()
    assert written == [], "a page that is only looked at writes no file"
    rows = {
        name: rows_of(files, name)
        for name in ("loss", "break-even", "step-times", "accuracy", "run-loss", "run-steps")
    }
    assert written[0] == 3 * NUM_STEPS
    every = list(range(NUM_STEPS))
    for name in ("loss", "break-even", "step-times"):
        assert steps_by_run(rows[name]) == dict.fromkeys(("baseline", "control", "inductor"), every)
    for name in ("run-loss", "run-steps"):
        assert steps_by_run(rows[name]) == {"inductor": every}
    assert {row["epoch"] for row in rows["step-times"]} == {"1", "2"}, "counted as in charts"
    assert {row["epoch"] for row in rows["accuracy"]} == {"2"}
    assert min(int(row["round"]) for row in rows["step-times"]) == 1


@pytest.mark.parametrize(
    "formula",
    ["=HYPERLINK(1)", "+1+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "=1\r\n=2\r=3"],
)
def test_a_spreadsheet_takes_no_text_of_a_download_for_a_formula(formula: str):
    frame = pd.DataFrame(
        {
            "name": [formula, "plain", None],
            "change": [-1.5, 2.0, float("nan")],
            "shown": ["-0.5", "+3", "1e3"],
            formula: ["a", "b", "c"],
        }
    )
    frame["kind"] = pd.Categorical([formula, "plain", "plain"])
    safe = "'" + formula.replace("\r\n", "\n").replace("\r", "\n")
    header, first, second, _third = csv.reader(io.StringIO(to_csv(frame).decode(), newline=""))
    assert header == ["name", "change", "shown", safe, "kind"]
    assert first == [safe, "-1.5", "-0.5", "a", safe], "numbers stay numbers"
    assert second == ["plain", "2.0", "+3", "b", "plain"]
    written = write_csv(("name", "speedup"), [{"name": formula, "speedup": "-1.5"}])
    _header, row = csv.reader(io.StringIO(written, newline=""))
    assert row == [safe, "-1.5"]


def test_a_loss_that_diverged_reads_nan_in_every_file_and_what_is_missing_is_empty(
    folder: DataDir, files: dict[str, Callable[[], bytes]]
):
    spec = experiment_spec(num_steps=80)
    for label in ("baseline", "control", "inductor"):
        run = Recording(folder.runs, label, spec).claim().start()
        if label == "inductor":
            run.blocks([0.1] * 8, [2.0] * 40 + [math.nan] * 40)
            run.evaluation(0.2, math.nan).end()
        else:
            run.blocks([0.2] * 8, falling_losses(80)).evaluation(0.8).end()
    every_tab(experiment=EXPERIMENT_ID)
    for tab in ("Steps", "Scores"):
        opened_run(part=tab)
    diverged = {
        "comparison": "final_loss",
        "loss": "loss",
        "run-loss": "loss",
        "score-loss": "value",
        "evaluations": "eval_loss",
        "eval_loss": "value",
    }
    for name, column in diverged.items():
        rows = [row for row in rows_of(files, name) if row.get("label", "inductor") == "inductor"]
        wrong = {row[column] for row in rows if int(row.get("step") or 40) >= 40}
        assert wrong == {"NaN"}, name
    (baseline, *_others) = rows_of(files, "comparison")
    assert (baseline["speedup"], baseline["compile_seconds"]) == ("", "")


def test_no_page_offers_a_file_or_writes_a_table_but_here():
    """Then a check of the files of one page holds for all."""
    sources = [path for part in ("views", "storage") for path in (ROOT / part).rglob("*.py")]
    buttons = {path for path in sources if "download_button" in path.read_text()}
    written = {path for path in sources if ".to_csv(" in path.read_text()}
    assert buttons == {ROOT / "views/parts/downloads.py"}
    assert written == {ROOT / "storage/exchange/csv_and_parquet.py"}


UNIT = re.compile(r"^[\d.,]+( (ms|s|min \d+ s|%|[KMG]iB|steps?)|x)\b.*$|^\N{EN DASH}$")
"""A number as pages format it, or the dash of an undefined value."""


def test_a_file_holds_numbers_as_they_are_not_as_they_are_written(folder: DataDir, files):
    spec = experiment_spec(num_steps=80)
    record_experiment(folder.runs, spec)
    cache = "20261121-093015-123456-cccc"
    caching = experiment_spec(
        scenario="cache", backends=("inductor",), num_steps=20, cache=CacheSpec(repeats=1)
    )
    for arm in caching.arms:
        run = Recording(folder.runs, arm.label, caching, cache).claim().start()
        compiles = {"cold": 8.0, "warm": 2.0}.get(arm.cache or "", 0.0)
        run.blocks([0.5, 0.5], [1.0] * 20, compiles).checkpoint().end()
    every_tab(experiment=EXPERIMENT_ID)
    opened(experiment=cache)
    for tab in ("Scores", "Compiling", "Checkpoints", "Device"):
        opened_run(part=tab)
    run = {"run": f"{cache}.inductor-cold-1", "part": "Checkpoints"}
    opened("experiment", tab="Runs", experiment=cache, **run)
    names = [name for name in files if name.endswith(".csv") and "harness" not in name]
    assert {
        "download-cold-warm.csv",
        "download-checkpoints.csv",
        "download-behind-verdicts.csv",
        "download-evaluations.csv",
    } <= set(names)
    written = {
        (name, column): value
        for name in names
        for row in csv.DictReader(io.StringIO(files[name]().decode()))
        for column, value in row.items()
        if UNIT.match(value or "")
    }
    assert not written


def test_an_accuracy_is_written_alike_on_all_pages(folder: DataDir):
    record_experiment(folder.runs, experiment_spec(num_steps=80))
    assert "<td>80.0 %</td>" in text(opened(tab="Runs"))
    app = opened_run(part="Scores")
    (evaluations,) = app.dataframe
    shown = pa.ipc.open_stream(evaluations.proto.arrow_data.styler.display_values).read_pandas()
    assert "80.0 %" in shown.to_numpy().ravel().tolist()
    assert evaluations.value["Accuracy"].tolist() == [0.8], "sorted as a number"


def test_imported_rows_stand_beside_own_ones_and_a_bad_file_beside_theirs_hides_none(
    folder: DataDir,
):
    record_experiment(folder.runs, experiment_spec(num_steps=80))
    bring(folder, HARNESS)
    bring(folder, "a,b\n1,2\n", "earlier.csv")
    app = opened(experiment=EXPERIMENT_ID, tab="Settings")
    assert any("earlier.csv is no performance or accuracy CSV" in w.value for w in app.warning)
    rows = table(app, "From")
    imported, dash = "imported: inductor.csv", "\N{EN DASH}"
    assert rows["From"].tolist() == ["measured here", imported, imported]
    assert rows["Model"].tolist() == ["builtin:bert-tiny", "BertForMaskedLM", "OPTForCausalLM"]
    assert rows["Outcome"].tolist() == ["pass", "measured", "failed"]
    assert rows["Speedup"].tolist() == ["2.00x", "1.50x", dash], "a failure is no number"
    assert rows["Step time"].tolist() == ["100 ms", "41.2 ms", dash]
    assert rows["Compile latency"].tolist() == ["3.00 s", "18.7 s", dash]
    labels = {button.proto.label for button in app.get("download_button")}
    assert {f"{title} ({suffix.upper()})" for title, suffix in exchange.TITLES.values()} <= labels
    assert exchange.TITLES.keys() == exchange.FORMATS.keys()
    with Store.in_memory(folder) as store:
        records = json.loads(exchange._written(exchange.FORMATS["hud-json"], store, EXPERIMENT_ID))
    assert {record["model"]["backend"] for record in records} == {"inductor"}
