"""The command palette: what it offers, and that it stays open until the reader has chosen."""

import pytest

from breakeven.runner.experiments.queue import experiments
from breakeven.runner.project import PACKAGE
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.views.access import permissions
from breakeven.views.parts import actions, command_palette
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment
from tests.helpers.pages import opened

pytestmark = pytest.mark.heavy


def searching(page: str = "machine", **query: str):
    return opened(page, **query).button(key="palette-search").click().run()


def field_of(app):
    return next(field for field in app.selectbox if field.label == "Page, experiment or action")


def test_the_tabs_of_the_experiment_on_the_page_come_first(folder: DataDir):
    assert not [option for option in field_of(searching()).options if option.startswith("This")]
    record_experiment(folder.runs, experiment_spec(name="Launch"))
    app = searching("experiment", experiment=EXPERIMENT_ID).run()  # stays open
    field = field_of(app)
    assert field.options[1:6] == [f"This experiment: {tab}" for tab in command_palette.TABS]
    assert field.options[6] == command_palette.AGAIN
    named = [option for option in field.options if option.startswith("Launch")]
    assert named[0] == "Launch" and named[1].startswith("Launch · ") and len(named) == 2
    assert EXPERIMENT_ID not in "".join(field.options), "people know names and times"
    field.set_value("This experiment: Settings").run()
    assert app.query_params["tab"] == "Settings"
    assert app.query_params["experiment"] == EXPERIMENT_ID


def test_a_race_starts_from_the_palette_and_whoever_may_not_start_one_is_not_offered_it(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(actions, "check", lambda spec, machine: None)
    app = searching()
    field_of(app).set_value(command_palette.RACE).run()
    (started,) = experiments(folder)
    assert started.spec.name == "Quick race"
    monkeypatch.setattr(permissions, "may_act", lambda: False)
    offered = field_of(searching("experiment", experiment=started.experiment_id)).options
    assert offered and not {command_palette.RACE, command_palette.AGAIN} & {*offered}


def test_each_destination_is_a_page():
    pages = {file.stem for file in (PACKAGE / "views").glob("*.py")}
    assert {page for page, _query in command_palette.DESTINATIONS.values()} <= pages
