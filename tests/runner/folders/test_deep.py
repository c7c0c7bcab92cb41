"""What is nested too deeply is told in a sentence of ours, in every file that is read as JSON."""

import json
import zipfile
from pathlib import Path

import pytest

from breakeven.runner.commands.cli import main
from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.events import read_events
from breakeven.runner.folders.moved import spec_in_use
from breakeven.runner.texts import MAX_NESTING, read_json
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.errors import ImportUnusable
from breakeven.storage.exchange.imports import read_records
from breakeven.storage.exchange.run_folders import take_in
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, record_experiment

DEPTHS = (MAX_NESTING + 1, 400, 900, 1_100, 100_000)


def nested(depth: int, of: str) -> str:
    begin, end = {"lists": ("[", "]"), "objects": ('{"a":', "}")}[of]
    return begin * depth + "1" + end * depth


@pytest.mark.parametrize("of", ["lists", "objects"])
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    "file", ["spec.json", "claim.json", "exit.json", "labels.json", "devices.json"]
)
def test_a_file_that_is_nested_too_deeply_is_told_in_a_sentence(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str], file: str, depth: int, of: str
) -> None:
    record_experiment(data_dir.runs)
    run = data_dir.run_dir(f"{EXPERIMENT_ID}.control")
    whole = json.loads(run.spec_file.read_text()) if file == "spec.json" else {}
    content = json.dumps({**whole, "more": 0}).replace('"more": 0', f'"more": {nested(depth, of)}')
    (run.path / file).write_text(content)
    if file == "claim.json":
        run.exit_file.unlink()
    said = str(run.standing.reason)
    if file in ("spec.json", "labels.json", "devices.json"):
        with pytest.raises(RunnerError) as raised:
            run.read_labels() if file == "labels.json" else spec_in_use(run)
        said = str(raised.value)
    assert file in said and "it is nested too deeply" in said
    assert main(["list", "--runs", "--data-folder", str(data_dir.path)]) == 0
    shown = capsys.readouterr().out
    with Store.in_memory(data_dir) as store:
        told = "\n".join(queries.unreadable(store)["message"])
    assert "recursion" not in said + shown + told


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_line_of_a_journal_that_is_nested_too_deeply_is_left_out(
    data_dir: DataDir, depth: int
) -> None:
    record_experiment(data_dir.runs)
    journal = data_dir.run_dir(f"{EXPERIMENT_ID}.control").events_file
    before, _ = read_events(journal)
    line = '{"v":1,"kind":"step","seq":%d,"step":99,"x":true,"loss":%s}\n'
    with journal.open("a") as file:
        file.write(line % (len(before), nested(depth, "lists")))
    assert read_events(journal)[0] == before
    with Store.in_memory(data_dir) as store:
        assert compare(store, EXPERIMENT_ID).results


def test_an_archive_and_an_import_that_are_nested_too_deeply_are_refused(
    data_dir: DataDir, tmp_path: Path
) -> None:
    archive, records = tmp_path / "runs.zip", tmp_path / "records.json"
    with zipfile.ZipFile(archive, "w") as whole:
        whole.writestr(f"{EXPERIMENT_ID}.baseline/spec.json", nested(100_000, "objects"))
    data_dir.path.mkdir(exist_ok=True)
    with pytest.raises(ImportUnusable, match="it is nested too deeply"):
        take_in(data_dir, archive)
    records.write_text(nested(100_000, "lists"))
    with pytest.raises(ImportUnusable, match="it is nested too deeply"):
        [*read_records(records, ())]


def test_what_is_not_too_deep_is_read() -> None:
    for of in ("lists", "objects"):
        text = nested(MAX_NESTING - 1, of)
        assert json.dumps(read_json(text)).replace(" ", "") == text
    assert (read_json("1"), read_json('{"a": []}')) == (1, {"a": []})
