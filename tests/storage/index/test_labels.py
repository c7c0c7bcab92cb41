"""Labels reach the index when their file changes, survive a rebuild, and hide no result."""

from dataclasses import replace

from breakeven.runner.folders import library
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import find_experiment
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, record_experiment


def name_and_archived(store: Store) -> tuple[str, bool]:
    row = queries.list_experiments(store).iloc[0]
    return row["name"], bool(row["archived"])


def test_a_label_shows_after_the_next_tick_and_makes_no_result_new(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs)
    with Store.in_memory(data_dir) as store:
        before = queries.revision(store, EXPERIMENT_ID)
        assert name_and_archived(store) == ("test", False)
        library.change_labels(
            data_dir, EXPERIMENT_ID, lambda old: replace(old, name="Nightly", archived=True)
        )
        store.ingest()
        assert name_and_archived(store) == ("Nightly", True)
        assert queries.revision(store, EXPERIMENT_ID) == before
        find_experiment(data_dir, EXPERIMENT_ID).runs[0].labels_file.unlink()
        store.ingest()
        assert name_and_archived(store) == ("test", False)
        assert store.query("FROM labels").empty


def test_labels_survive_a_rebuild(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs)
    library.change_labels(data_dir, EXPERIMENT_ID, lambda old: replace(old, name="Nightly"))
    for _ in range(2):
        with Store.open(data_dir) as store:
            store.ingest_all()
            assert name_and_archived(store) == ("Nightly", False)
        data_dir.database_file.unlink()


def test_labels_that_cannot_be_read_are_told_until_they_are_mended(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs)
    first = find_experiment(data_dir, EXPERIMENT_ID).runs[0]
    first.labels_file.write_text('{"tags": "paper"}')
    with Store.in_memory(data_dir) as store:
        assert name_and_archived(store) == ("test", False)
        store.ingest()
        (told,) = queries.unreadable(store)["message"]
        assert "labels.json" in told and "tags" in told
        library_name = '{"name": "mended"}'
        first.labels_file.write_text(library_name)
        store.ingest()
        assert queries.unreadable(store).empty
        assert name_and_archived(store)[0] == "mended"


def test_labels_of_a_deleted_experiment_leave_and_come_back(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs)
    library.change_labels(data_dir, EXPERIMENT_ID, lambda old: replace(old, name="Nightly"))
    with Store.in_memory(data_dir) as store:
        library.delete(data_dir, EXPERIMENT_ID)
        store.ingest()
        assert queries.list_experiments(store).empty and store.query("FROM labels").empty
        library.restore(data_dir, EXPERIMENT_ID)
        store.ingest()
        assert name_and_archived(store)[0] == "Nightly"
