"""Experiments: the list, its filters in the address, actions on ticked rows, and the menu of an
experiment's page."""

import importlib
from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from breakeven.runner.experiments import trash
from breakeven.runner.experiments.labels import change_labels
from breakeven.runner.experiments.queue import experiments, find_experiment, submit
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Labels
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import DataSpec, ModelSpec, ScriptSpec, TrainingSpec
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import catalog, compute_missing
from breakeven.views.access import permissions
from breakeven.views.access.errors import LABELS
from breakeven.views.library import table
from breakeven.views.parts import actions
from breakeven.views.shared import resources
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, record_experiment
from tests.helpers.pages import opened, text

OTHER = "20261121-093016-123456-7f3b"


def record(folder: DataDir, first: str = "First of all", second: str = "Second") -> DataDir:
    """Two finished experiments."""
    for name, experiment_id in ((first, EXPERIMENT_ID), (second, OTHER)):
        record_experiment(folder.runs, experiment_spec(name=name), experiment_id)
    return folder


@pytest.fixture
def listed(folder: DataDir) -> DataDir:
    return record(folder)


@pytest.fixture(scope="module")
def unchanged(kept_folder: DataDir) -> DataDir:
    """For tests that change nothing."""
    return record(kept_folder)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise a page that is imported later would keep the patched function.
    for page in ("library.suites", "form.presets"):
        importlib.import_module(f"breakeven.views.{page}")
    monkeypatch.setattr(actions, "check", lambda spec, machine: None)


def names(app: AppTest) -> list[str]:
    return list(app.dataframe[0].value["name"])


def ticked(*experiment_ids: str) -> AppTest:
    """The page with these rows ticked."""
    app = opened("experiments")
    app.session_state[table.PICKED] = list(experiment_ids)
    # Rows are ticked by their positions, in a table that begins with the rows ticked before.
    app.query_params["columns"] = [*table.USUAL, "id"]
    app.run()
    assert not app.exception
    return app


def click(app: AppTest, key: str) -> AppTest:
    app.button(key=key).click().run()
    assert not app.exception, app.exception
    return app


def test_a_list_can_be_searched_filtered_and_sorted_by_its_address(unchanged: DataDir):
    assert names(opened("experiments")) == ["Second", "First of all"]
    assert names(opened("experiments", sort="name")) == ["First of all", "Second"]
    assert names(opened("experiments", q="first -second")) == ["First of all"]
    assert names(opened("experiments", model="bert-tiny", state="finished")) == [
        "Second",
        "First of all",
    ]
    assert "No experiment matches" in text(opened("experiments", model="gpt2"))
    assert "'sped' is not a number" in text(opened("experiments", q="sped>2"))
    app = opened(
        "experiments",
        columns=["name", "batch"],
        sort="nonsense",
        archived="nonsense",
        model="bert-tiny",
    )
    assert app.multiselect(key="address.model").value == ["bert-tiny"]
    assert app.multiselect(key="address.columns").value == ["name", "batch"]
    assert list(app.dataframe[0].value.columns) == ["name", "batch"]


def test_what_is_typed_and_chosen_stands_in_the_address(unchanged: DataDir):
    app = opened("experiments")
    app.text_input(key="address.q").set_value("second").run()
    app.multiselect(key="address.state").set_value(["finished"]).run()
    app.selectbox(key="address.sort").set_value("name").run()
    assert not app.exception and names(app) == ["Second"]
    said = {name: app.query_params[name] for name in ("q", "state", "sort")}
    assert said == {"q": "second", "state": "finished", "sort": "name"}
    app.text_input(key="address.q").set_value("").run()
    assert "q" not in app.query_params


def test_archive_and_delete_can_be_undone_and_what_is_refused_is_said(listed: DataDir):
    app = click(ticked(EXPERIMENT_ID), "archive")
    assert names(app) == ["Second"]
    assert find_experiment(listed, EXPERIMENT_ID).runs[0].read_labels().archived
    assert len(names(click(app, "undo"))) == 2
    app = click(ticked(EXPERIMENT_ID, OTHER), "delete")
    assert "2 experiments deleted." in text(app)
    assert list(experiments(listed)) == []
    app = click(app, "undo")
    assert len(names(app)) == 2 and len(list(experiments(listed))) == 2
    waiting = submit(listed, experiment_spec(name="Waiting"))
    app = click(ticked(EXPERIMENT_ID, waiting), "delete")
    assert "1 experiment deleted." in text(app) and "Stop it first" in text(app)
    assert {experiment.experiment_id for experiment in experiments(listed)} == {OTHER, waiting}


def test_tags_are_given_to_all_that_are_ticked_and_a_name_to_one(listed: DataDir):
    change_labels(listed, OTHER, lambda old: old.tagged(["kept"]))
    app = ticked(EXPERIMENT_ID, OTHER)
    assert "label-name" not in [field.key for field in app.text_input]
    app.multiselect(key="label-tags").set_value(["kept"])
    click(app, "FormSubmitter:label-Save")
    tags = [experiment.runs[0].read_labels().tags for experiment in experiments(listed)]
    assert tags == [("kept",), ("kept",)]
    app = ticked(OTHER)
    app.text_input(key="label-name").set_value("Renamed")
    app.text_area(key="label-notes").set_value("**why**")
    click(app, "FormSubmitter:label-Save")
    assert names(app)[0] == "Renamed"
    assert find_experiment(listed, OTHER).runs[0].read_labels().notes == "**why**"


def test_freeing_space_removes_checkpoints_says_how_much_and_leaves_the_rest(listed: DataDir):
    run = find_experiment(listed, EXPERIMENT_ID).runs[0]
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / "step-10.pt").write_bytes(b"x" * 2**20)
    compute_missing(resources.get_store(), 100.0)  # as the next look of the page does
    app = ticked(EXPERIMENT_ID)
    labels = {button.key: button.label for button in app.button}
    assert labels["free-checkpoints"] == "Remove checkpoints (1.0 MiB)"
    app = click(app, "free-checkpoints")
    assert not run.checkpoints.exists() and run.events_file.exists()


def test_who_may_only_look_is_offered_nothing_that_changes_the_list(
    unchanged: DataDir, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(permissions, "may_act", lambda: False)
    keys = {button.key for button in ticked(EXPERIMENT_ID).button}
    assert not keys & {"again", "archive", "delete", "free-checkpoints", "empty-trash"}


def test_a_search_that_is_longer_than_any_is_not_made(
    unchanged: DataDir, monkeypatch: pytest.MonkeyPatch
):
    """Half a million words in a search were searched in every experiment for minutes."""
    app = opened("experiments", q="no-such-word " * 39)  # 507 characters
    assert names(app) == ["Second", "First of all"]
    assert "a search has at most 500 characters, so the search is ignored." in text(app)
    assert "No experiment matches" in text(opened("experiments", q="no-such-word " * 38))
    monkeypatch.setattr(table, "MAX_ROWS", 1)
    app = opened("experiments")
    assert names(app) == ["Second"] and "the first 1 are listed" in text(app)


def test_an_interval_is_drawn_against_one_on_a_logarithmic_axis():
    """60 is the middle of 120; with a reach of log 2, 2 is 53 to its right, 0.5 is 53 to its
    left."""
    reach = table.reach([0.5, 2.0, None, 1.1])
    drawn = table.interval(1.0, 2.0**0.5, 2.0, "faster", reach)
    assert drawn is not None and drawn.startswith("data:image/svg+xml,")
    assert "x=%2260.0%22" in drawn and "width=%2253.0%22" in drawn and "cx=%2286.5%22" in drawn
    assert table.interval(None, 1.0, None, "unsure", reach) is None
    assert table.reach([]) == table.LEAST_REACH


def fail(folder: DataDir, error: str | None, message: str, state=RunState.FAILED) -> AppTest:
    """The form of an experiment that ended in this way."""
    for label in ("baseline", "control", "inductor"):
        run = Recording(folder.runs, label).claim().start()
        if error is not None:
            run.log.append("error", error=error, message=message, traceback="", out_of_memory=False)
        run.end(state, "it ended")
    return opened("launch", again=EXPERIMENT_ID)


@pytest.mark.parametrize(
    ("error", "message", "state", "field", "said"),
    [
        (
            "InvalidSpec",
            "training.batch_size = 8: is too large",
            RunState.FAILED,
            "training.batch_size",
            "is too large",
        ),
        (
            "OutOfMemoryError",
            "CUDA out of memory",
            RunState.OUT_OF_MEMORY,
            "training.batch_size",
            "ran out of memory",
        ),
        (None, "", RunState.TIMEOUT, "time_limit_seconds", "took longer"),
        ("UnusableData", "no such file", RunState.FAILED, "data.source", "no such file"),
    ],
)
def test_what_an_experiment_failed_of_stands_beside_its_field_until_that_is_changed(
    folder: DataDir, error: str | None, message: str, state: RunState, field: str, said: str
):
    app = fail(folder, error, message, state)
    assert "This setting caused the failure." in text(app)
    assert f"**{LABELS[field]}**" in text(app) and said in text(app)
    in_drawer = field == "time_limit_seconds"
    assert any(expander.proto.expanded for expander in app.expander) == in_drawer, (
        "the field is in sight"
    )
    if field == "training.batch_size":
        app.text_input(key=f"again-{EXPERIMENT_ID}-0.batch_size").set_value("4").run()
        assert not app.exception and "This setting caused the failure." not in text(app)


def test_a_failure_that_blames_no_field_is_told_above_the_form(folder: DataDir):
    app = fail(folder, "RuntimeError", "a bug = 7: deep down")
    assert "It failed. baseline: RuntimeError: a bug = 7: deep down" in text(app).replace("*", "")
    assert "There" not in text(app) and app.button(key="launch")
    assert "no experiment 'nonsense'" in text(opened("launch", again="nonsense"))


def test_launch_opens_with_every_setting_of_an_earlier_experiment(folder: DataDir, launched: None):
    spec = experiment_spec(
        name="Mine",
        model=ModelSpec(source="builtin:bert-base", dropout="keep"),
        data=DataSpec(num_train_samples=321, num_eval_samples=77, sequence_length=48),
        training=TrainingSpec(
            batch_size=4,
            optimizer="SGD",
            optimizer_options={"momentum": 0.5},
            clip_norm=0.5,
            seed=9,
            scheduler="cosine",
            warmup_steps=2,
        ),
        backends=("eager", "inductor:mode=max-autotune"),
        controls=2,
        block_steps=7,
        time_limit_seconds=55.0,
        suite_run="a-suite",
        cpu_threads=1,
    )
    submit(folder, spec)
    (first,) = experiments(folder)
    change_labels(folder, first.experiment_id, lambda old: replace(old, name="Renamed"))
    app = opened("launch", again=first.experiment_id)
    assert "All settings of" in text(app)
    app.button(key="launch").click().run()
    app = click(ticked(first.experiment_id), "again")
    assert not app.error, app.error[0].value
    again = [
        experiment.spec
        for experiment in experiments(folder)
        if experiment.experiment_id != first.experiment_id
    ]
    assert again == [replace(spec, name=name, suite_run=None) for name in ("Renamed", "Mine")]


def test_what_was_deleted_under_one_name_in_one_minute_is_told_apart(folder: DataDir) -> None:
    record(folder, "Twice", "Twice")
    for experiment_id in (EXPERIMENT_ID, OTHER):
        trash.delete(folder, experiment_id)
    lines = [line for line in text(opened("experiments")).splitlines() if "deleted" in line]
    assert sorted(line[-4:] for line in lines if line.startswith("Twice")) == ["7f3a", "7f3b"]


def test_the_list_says_when_and_whose_a_speedup_is_within_the_width_of_a_projector(
    unchanged: DataDir,
):
    with Store.in_memory(unchanged) as store:
        compute_missing(store, 100.0)
        shown = table.written(catalog(store), table.USUAL)
    assert [*shown["verdict"]] == [["inconclusive"]] * len(shown)
    assert set(shown["best"]) == {"inductor"}
    assert all(answer.startswith("Not decided") for answer in shown["answer"])
    # Of 1,280 pixels margins take 150 and the boxes for ticks 33.
    seen = ("name", "when", "best", "verdict", "speedup", "interval", "steps", "parity")
    assert table.USUAL[: len(seen)] == seen
    assert sum(dict(table.COLUMNS[name].settings)["width"] for name in seen) <= 1280 - 150 - 33


OF_SCRIPT = experiment_spec(
    name="My script",
    task="script",
    data=DataSpec(source="script"),
    training=TrainingSpec(),
    model=ModelSpec(source="script:/home/me/nanogpt/train.py"),
    script=ScriptSpec(steps=40),
)


def test_the_command_of_a_script_needs_no_further_permission(folder: DataDir):
    record_experiment(folder.runs, OF_SCRIPT)
    app = opened("experiment", experiment=EXPERIMENT_ID, tab="Settings")
    assert any("breakeven run" in code.value for code in app.code)
    assert "--allow-code" not in text(app)


def test_a_script_without_a_name_is_listed_by_its_own(folder: DataDir):
    record_experiment(folder.runs, OF_SCRIPT)
    with Store.in_memory(folder) as store:
        assert list(catalog(store)["name"]) == ["nanogpt/train.py"]
        assert list(queries.list_experiments(store)["name"]) == ["nanogpt/train.py"]


def with_menu() -> AppTest:
    app = opened("experiment", experiment=EXPERIMENT_ID)
    assert "archive" not in [button.key for button in app.button], "a menu that nobody opened"
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
    assert [deleted.experiment_id for deleted in trash.deleted_experiments(folder)] == [
        EXPERIMENT_ID
    ]
    assert "1 experiment deleted." in text(menu) and "No experiment yet" in text(menu)
    assert "undo" in [button.key for button in menu.button]
