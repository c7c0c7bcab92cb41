"""JSON that is nested too deeply is refused with a sentence, in every file."""

import json
import zipfile
from pathlib import Path

import pytest

from breakeven.runner.commands.cli import main
from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.events import read_events
from breakeven.runner.protocol.run_dir import RunDir, spec_in_use
from breakeven.runner.texts import MAX_NESTING, read_json
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.errors import ImportUnusable
from breakeven.storage.exchange.imports import read_rows
from breakeven.storage.exchange.run_folders import import_run_folders
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, record_experiment

DEPTHS = (MAX_NESTING + 1, 400, 900, 1_100, 100_000)
FILES = ("spec.json", "claim.json", "exit.json", "labels.json", "devices.json")


def nested(depth: int, kind: str) -> str:
    begin, end = {"lists": ("[", "]"), "objects": ('{"a":', "}")}[kind]
    return begin * depth + "1" + end * depth


def break_file(run: RunDir, name: str, value: str) -> str:
    """The sentence that says what is wrong with the run."""
    fields = json.loads(run.spec_file.read_text()) if name == "spec.json" else {}
    content = json.dumps({**fields, "more": 0}).replace('"more": 0', f'"more": {value}')
    (run.path / name).write_text(content)
    if name == "claim.json":
        run.exit_file.unlink()
    if name not in ("spec.json", "labels.json", "devices.json"):
        return str(run.status.reason)
    with pytest.raises(RunnerError) as raised:
        run.read_labels() if name == "labels.json" else spec_in_use(run)
    return str(raised.value)


@pytest.mark.parametrize(
    ("depth", "kind"),
    [(MAX_NESTING + 1, "lists"), (900, "objects"), (1_100, "lists"), (100_000, "objects")],
)
def test_files_that_are_nested_too_deeply_are_reported_in_a_sentence(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str], depth: int, kind: str
) -> None:
    for number, name in enumerate(FILES):
        experiment_id = EXPERIMENT_ID[:-1] + str(number)
        record_experiment(data_dir.runs, experiment_id=experiment_id)
        said = break_file(data_dir.run_dir(f"{experiment_id}.control"), name, nested(depth, kind))
        assert name in said and "it is nested too deeply" in said and "recursion" not in said
    assert main(["list", "--runs", "--data-folder", str(data_dir.path)]) == 0
    shown = capsys.readouterr().out
    with Store.in_memory(data_dir) as store:
        listed = "\n".join(queries.unreadable(store)["message"])
    assert "recursion" not in shown + listed


def test_lines_of_a_journal_that_are_nested_too_deeply_are_left_out(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs)
    journal = data_dir.run_dir(f"{EXPERIMENT_ID}.control").events_file
    before, _ = read_events(journal)
    line = '{"v":1,"kind":"step","seq":%d,"step":99,"x":true,"loss":%s}\n'
    with journal.open("a") as file:
        for depth in DEPTHS:
            file.write(line % (len(before), nested(depth, "lists")))
    assert read_events(journal)[0] == before
    with Store.in_memory(data_dir) as store:
        assert compare(store, EXPERIMENT_ID).results


def test_an_archive_and_an_import_that_are_nested_too_deeply_are_refused(
    data_dir: DataDir, tmp_path: Path
) -> None:
    archive, records = tmp_path / "runs.zip", tmp_path / "records.json"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr(f"{EXPERIMENT_ID}.baseline/spec.json", nested(100_000, "objects"))
    data_dir.path.mkdir(exist_ok=True)
    with pytest.raises(ImportUnusable, match="it is nested too deeply"):
        import_run_folders(data_dir, archive)
    records.write_text(nested(100_000, "lists"))
    with pytest.raises(ImportUnusable, match="it is nested too deeply"):
        read_rows(records)


def test_what_is_not_too_deep_is_read() -> None:
    for kind in ("lists", "objects"):
        text = nested(MAX_NESTING - 1, kind)
        assert json.dumps(read_json(text)).replace(" ", "") == text
    assert (read_json("1"), read_json('{"a": []}')) == (1, {"a": []})
