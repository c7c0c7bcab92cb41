"""The page of suites, from recorded experiments."""

import pytest
from streamlit.testing.v1 import AppTest

from breakeven.runner.experiments.queue import experiments
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.storage.index.store import Store
from breakeven.storage.suite_runs.cells import outcomes
from breakeven.storage.suite_runs.groups import Cell, Outcome, groups
from breakeven.views.charts import across_experiments as suite_charts
from breakeven.views.report import suite_tables
from tests.helpers.pages import launched, opened, text, without_links
from tests.helpers.suites import SuiteRecorder


@pytest.fixture
def record(folder: DataDir) -> SuiteRecorder:
    return SuiteRecorder(folder)


def tables(app: AppTest) -> dict[str, list[str]]:
    """Columns of all tables by title."""
    return {
        name: list(map(str, frame.value[name]))
        for frame in app.dataframe
        for name in frame.value.columns
    }


def read(data_dir: DataDir, suite_run: str = "now") -> list[Outcome]:
    with Store.in_memory(data_dir) as store:
        return outcomes(store, suite_run)


def test_a_suite_is_queued_from_launch_and_its_run_is_shown(folder: DataDir) -> None:
    """One model in both parts, for both measurements that the suite has by default."""
    app = opened("launch", start="suite")
    models = app.multiselect(key="suite-models-huggingface")
    assert models.value == ["BertForMaskedLM", "DistillGPT2"]
    assert any(button.label == "Queue 8 experiments" for button in app.button)
    models.set_value(["BertForMaskedLM"]).run()
    usual = app.multiselect(key="suite-backends").value
    app.multiselect(key="suite-backends").set_value(["indcutor"]).run()
    next(button for button in app.button if button.label.startswith("Queue")).click().run()
    assert "indcutor" in app.error[0].value and not list(experiments(folder))
    app.multiselect(key="suite-backends").set_value(usual).run()
    (queue,) = (button for button in app.button if button.label == "Queue 4 experiments")
    command = "\n".join(code.value for code in app.code)
    assert "breakeven queue suite huggingface --models=BertForMaskedLM" in command
    queue.click().run()
    assert not app.exception and not app.error
    queued = [experiment.spec for experiment in experiments(folder)]
    assert {(spec.scenario, spec.model.source) for spec in queued} == {
        ("accuracy", "huggingface:BertForMaskedLM/16"),
        ("speed", "huggingface:BertForMaskedLM/16"),
    }, "smaller, as there is no GPU"
    assert len(queued) == 4 and len({spec.suite_run for spec in queued}) == 1
    assert "4 of 4 experiments are not finished" in text(app)


def test_the_page_shows_what_a_suite_run_comes_to(record: SuiteRecorder) -> None:
    record.speed("Fast", 0.1, memory=50)
    record.speed("Wrong", 0.05)
    record.accuracy("Fast", "pass")
    record.accuracy("Wrong", "fail_accuracy")
    record.speed("Huge", 0.1, state=RunState.OUT_OF_MEMORY)
    app = opened("experiments", view="Suites", suite_run="now")
    said = text(app)
    assert (
        "**inductor** in training (float32, 1 of 3 models) at 2.00x is not shown to be faster or "
        "slower than without a compiler: too few models to tell (at least 3 are needed)."
    ) in said
    assert "1 accuracy check did not pass." in said
    assert "Huge (inductor, float32, training): it did not finish: out of memory" in said
    shown = tables(app)
    assert shown["Pass rate"] == ["50.0 % (1 of 2)"]
    assert (shown["Counted"], shown["Failed"]) == (["1"], ["2"])
    assert 'title="the accuracy check says fail_accuracy"' in said


def test_what_got_worse_stands_beside_both_values(record: SuiteRecorder) -> None:
    record.speed("Model", 0.1, suite_run="before")
    record.speed("Gone", 0.1, suite_run="before")
    record.speed("Model", 0.2)
    app = opened("experiments", view="Suites", suite_run="now", against="before")
    shown = tables(app)
    assert (shown["What"], shown["Change"]) == (["speed"], ["worse"])
    assert shown["Before"] == ["2.00x (2.00 to 2.00)"]
    assert shown["Now"] == ["1.00x (1.00 to 1.00)"]
    said = text(app)
    assert "1 number got worse since before." in said
    assert "speedups are 0.50x the earlier ones over 1 model: inconclusive" in said
    assert "Only the earlier run has 1 cell: Gone." in said
    # Another suite run is not compared with the earlier one of the first.
    app.selectbox(key="chosen_suite_run").set_value("before").run()
    assert not app.exception and not app.warning
    assert "before" in app.query_params["suite_run"]
    assert "before" not in app.query_params.get("against", "")


def test_what_filled_caches_save_is_the_answer_of_cachebench() -> None:
    cell = Cell("Model", "bf16", "training", "inductor")
    outcome = Outcome(
        cell=cell, experiments={"cache": "x"}, is_over=True, cold_seconds=8.0, warm_seconds=2.0
    )
    rows = groups([outcome])
    said = without_links(suite_tables.headline(rows))
    assert said == (
        "Filled caches saved 75.0 % of the compile time of **inductor** in training "
        "(bf16, 1 model)."
    )
    assert list(suite_tables.summary(rows)) == [
        "backend",
        "precision",
        "part",
        "models",
        "compile_time_saved",
        "failed",
    ]


def test_a_cell_leads_to_its_experiments_and_the_figure_marks_what_was_and_does_not_count(
    record: SuiteRecorder, folder: DataDir
) -> None:
    record.speed("Model", 0.1)
    record.speed("Wrong", 0.05)
    record.accuracy("Wrong", "fail_accuracy")
    record.speed("Model", 0.2, suite_run="before")
    outcomes = read(folder)
    html = suite_tables.cells_html(outcomes)
    wrong = next(outcome.experiments for outcome in outcomes if outcome.cell.model == "Wrong")
    assert set(wrong) == {"speed", "accuracy"}
    for experiment in wrong.values():
        assert f'href="./experiment?experiment={experiment}"' in html
    assert suite_tables.cells_frame(outcomes[:1])["speedup"].tolist() == [pytest.approx(2.0)]
    frame = suite_charts.speedup_frame(outcomes, read(folder, "before"))
    now, earlier = suite_charts.speedups(frame).data
    assert dict(zip(now.y, now.marker.symbol, strict=True)) == {
        "Model": "square",
        "Wrong": "square-open",
    }
    assert list(earlier.y) == ["Model"]
    assert list(earlier.x) == [pytest.approx(1.0)]


def test_a_model_of_a_suite_can_be_launched_alone(folder: DataDir) -> None:
    app = opened("launch")
    app.selectbox(key="quick.task").set_value("suite").run()
    model = app.selectbox(key="quick.suite.model")
    assert {"huggingface:BertForMaskedLM", "timm:inception_v3"} <= set(model.options)
    model.set_value("huggingface:T5Small").run()
    spec = launched(app, folder)
    assert (spec.task, spec.model.source) == ("suite", "huggingface:T5Small")
    assert spec.data.source == "builtin:random"
