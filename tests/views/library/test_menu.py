"""The menu of an experiment's page: labelled, archived and deleted there, in two clicks."""

from streamlit.testing.v1 import AppTest

from breakeven.runner.folders import library
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import find_experiment
from breakeven.runner.folders.states import Labels
from tests.helpers.journals import EXPERIMENT_ID, record_experiment
from tests.helpers.pages import opened, text


def with_menu() -> AppTest:
    app = opened("experiment", experiment=EXPERIMENT_ID)
    assert "archive" not in [one.key for one in app.button], "a menu that nobody opened"
    app.session_state["manage"] = True
    return app.run()


def labels(folder: DataDir) -> Labels:
    return find_experiment(folder, EXPERIMENT_ID).runs[0].read_labels()


def test_an_experiment_is_labelled_archived_and_deleted_on_its_page_where_that_is_undone(
    folder: DataDir,
) -> None:
    record_experiment(folder.runs)
    menu = with_menu()
    menu.text_input(key="label-name").set_value("Renamed")
    menu.button(key="FormSubmitter:label-Save").click().run()
    assert labels(folder).name == "Renamed"

    menu = with_menu()
    menu.button(key="archive").click().run()
    assert labels(folder).archived and "1 experiment archived." in text(menu)
    menu.button(key="undo").click().run()
    assert not labels(folder).archived

    menu = with_menu()
    menu.button(key="delete").click().run()
    assert [one.experiment_id for one in library.trash(folder)] == [EXPERIMENT_ID]
    assert "1 experiment deleted." in text(menu) and "No experiment yet" in text(menu)
    assert "undo" in [one.key for one in menu.button]
