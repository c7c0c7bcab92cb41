"""The menu of an experiment's page: labelled, archived and deleted there, in two clicks."""

import pytest
from streamlit.testing.v1 import AppTest

from breakeven.runner.folders import library
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import find_experiment
from breakeven.runner.folders.states import Labels
from tests.helpers.journals import EXPERIMENT_ID, record_experiment
from tests.helpers.pages import opened


@pytest.fixture
def menu(folder: DataDir) -> AppTest:
    """The page of a finished experiment, its menu open."""
    record_experiment(folder.runs)
    app = opened("experiment", experiment=EXPERIMENT_ID)
    app.session_state["manage"] = True
    return app.run()


def labels(folder: DataDir) -> Labels:
    return find_experiment(folder, EXPERIMENT_ID).runs[0].read_labels()


def test_an_experiment_is_archived_from_its_page_and_brought_back(
    menu: AppTest, folder: DataDir
) -> None:
    menu.button(key="archive").click().run()
    assert labels(folder).archived
    assert any("1 experiment archived." in one.value for one in menu.markdown)
    menu.button(key="undo").click().run()
    assert not labels(folder).archived


def test_an_experiment_is_labelled_on_its_page(menu: AppTest, folder: DataDir) -> None:
    menu.text_input(key="label-name").set_value("Renamed")
    menu.button(key="FormSubmitter:label-Save").click().run()
    assert labels(folder).name == "Renamed"


def test_an_experiment_that_was_deleted_on_its_page_leads_to_the_list_where_that_is_undone(
    menu: AppTest, folder: DataDir
) -> None:
    menu.button(key="delete").click().run()
    assert [one.experiment_id for one in library.trash(folder)] == [EXPERIMENT_ID]
    assert any("1 experiment deleted." in one.value for one in menu.markdown)
    assert "undo" in [one.key for one in menu.button]
    assert any("No experiment yet" in one.value for one in menu.markdown)


def test_a_page_makes_no_menu_that_nobody_opened(folder: DataDir) -> None:
    record_experiment(folder.runs)
    app = opened("experiment", experiment=EXPERIMENT_ID)
    assert "archive" not in [one.key for one in app.button]
