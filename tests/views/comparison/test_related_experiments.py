"""Investigations on the pages: the button that starts one, and its answer, program and issue."""

from io import BytesIO
from zipfile import ZipFile

from streamlit.testing.v1 import AppTest

from breakeven.runner.experiments.queue import experiments
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.storage.index.store import Store
from breakeven.storage.investigation import load_investigation
from breakeven.views.comparison.related_experiments import archive
from breakeven.views.report.content import content
from tests.faults.investigations import (
    INVESTIGATION_ID,
    SPEC,
    TRIALS,
    record_broken,
    record_failed,
    record_investigation,
)
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment
from tests.helpers.pages import opened, opened_run, text

OTHER_ID = "20261121-101500-123456-7f3a"


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def press(app: AppTest, label: str) -> AppTest:
    (button,) = [button for button in app.button if button.label == label]
    return button.click().run()


def test_a_click_queues_the_investigation_of_a_failed_run_and_opens_it(folder: DataDir) -> None:
    run, known = record_failed(folder, "inductor"), {EXPERIMENT_ID}
    for page in (lambda: opened(experiment=EXPERIMENT_ID), opened_run):
        app = page().button(key=f"investigate-{run}").click().run()
        assert not app.exception and not app.error, text(app)
        (queued,) = [
            experiment
            for experiment in experiments(folder)
            if experiment.experiment_id not in known
        ]
        known.add(queued.experiment_id)
        assert (queued.spec.investigates, queued.spec.investigation.step) == (run, 10)
        assert app.query_params["experiment"] == queued.experiment_id
        assert "The search goes on: 0 trials so far" in text(app)


def test_a_broken_run_offers_the_search_until_its_cause_is_known_with_program_and_issue(
    folder: DataDir,
) -> None:
    record_broken(folder)
    app = opened(experiment=EXPERIMENT_ID)
    assert "learns something else than the baseline" in text(app)
    assert "Find the cause" in labels(app)
    record_investigation(folder)
    app = opened(experiment=EXPERIMENT_ID)
    assert {"The cause", "Find the cause again"} <= {*labels(app)}
    app = press(app, "The cause")
    shown = text(app)
    assert "### Inductor's lowering of aten.relu.default (number 12 of the lowerings)" in shown
    assert "Certain: a program of 3 operations" in shown and "It needs torch alone." in shown
    assert '<span class="verdict bad" title="">differs</span>' in shown
    issue, program = [block.value for block in app.code]
    assert program == "import torch\nprint('```')"
    assert issue.startswith("# torch.compile: ") and "OS: Linux, ~/venv" in issue
    assert not app.warning  # The program reads no tensors of the training.
    app = press(app, "The run inductor")
    assert (app.query_params["experiment"], app.query_params["tab"]) == (EXPERIMENT_ID, "Runs")
    settings = text(opened(experiment=INVESTIGATION_ID, tab="Settings"))
    assert f"breakeven investigate {EXPERIMENT_ID}.inductor" in settings
    opened("experiments", view="Side by side", side=INVESTIGATION_ID)
    assert "An investigation has no form" in text(opened("launch", again=INVESTIGATION_ID))
    with Store.in_memory(folder) as store:
        page = content(store, INVESTIGATION_ID).page
    assert page.headline.startswith("Inductor&#39;s lowering of aten.relu.default")
    assert list(page.tables[0].shown["outcome"]) == ["passes", "differs", "passes"]


def test_a_sound_run_and_a_fault_that_the_baseline_has_offer_nothing(folder: DataDir) -> None:
    record_experiment(folder.runs, SPEC)
    assert "Find the cause" not in labels(opened_run())
    record_failed(folder, "baseline", "inductor")
    assert "Find the cause" not in labels(opened_run())


def test_texts_of_a_strangers_journal_are_shown_as_they_are(folder: DataDir) -> None:
    bad = "<img src=x>\x1b[2J ```\n# heading\n[x](http://stranger.example)"
    finding = dict.fromkeys(("operation", "tensor", "quantity", "error", "program_note"), bad)
    trials = [{**TRIALS[1], "what": bad, "detail": bad}]
    record_investigation(folder, {**finding, "program": None, "labels": [bad]}, trials)
    app = opened(experiment=INVESTIGATION_ID)
    shown = [
        *(element.value for element in (*app.markdown, *app.caption)),
        *(element.proto.body for element in app.get("html")),
    ]
    assert not [
        content
        for content in shown
        if "<img" in content or "\x1b" in content or "](http" in content
    ]
    assert "\\x1b[2J" in text(app)


def test_a_slow_run_offers_its_stages_and_has_its_issue_beside_them(folder: DataDir) -> None:
    record_experiment(folder.runs, experiment_spec(120, 10), backend_seconds=0.4)
    assert "Find the slow stage" in labels(opened_run())
    (issue,) = [block.value for block in opened(experiment=EXPERIMENT_ID, tab="Why").code]
    assert issue.startswith("# torch.compile: with inductor, a step takes 2.00x as long")
    record_experiment(folder.runs, experiment_spec(120, 10), experiment_id=OTHER_ID)
    assert not opened(experiment=OTHER_ID, tab="Why").code


def test_tensors_that_leave_with_the_program_are_named_and_in_the_archive(folder: DataDir) -> None:
    reads = "data = torch.load('repro-data.pt')  # of /home/somebody/train.py\n"
    record_investigation(folder, {"program": reads})
    (run,) = map(RunDir, folder.runs.iterdir())
    (run.artifacts / "investigation").mkdir(parents=True)
    (run.artifacts / "investigation" / "repro-data.pt").write_bytes(b"tensors")
    assert "it has numbers of your weights or samples" in text(opened(experiment=INVESTIGATION_ID))
    with Store.in_memory(folder) as store:
        made = archive(load_investigation(store, INVESTIGATION_ID))
    with ZipFile(BytesIO(made)) as files:
        assert files.namelist() == ["issue.md", "repro.py", "repro-data.pt"]
        assert files.read("repro-data.pt") == b"tensors"
        assert files.read("repro.py").decode() == reads.replace("/home/somebody", "~")


def test_a_search_that_was_stopped_resumes_on_its_page(folder: DataDir) -> None:
    record_investigation(folder, {"cause": "searching"}, state=RunState.CANCELLED)
    (button,) = [
        button for button in opened(experiment=INVESTIGATION_ID).button if button.label == "Resume"
    ]
    assert button.help == "Goes on from the last trial: inductor."
    assert not button.click().run().error
    (run,) = map(RunDir, folder.runs.iterdir())
    assert (run.state, run.attempt) == (RunState.QUEUED, 2)


def test_trials_show_while_the_search_goes_on_and_the_issue_waits_for_its_end(folder: DataDir):
    record_investigation(folder, {"cause": "searching", "program": None}, state=None)
    (run,) = map(RunDir, folder.runs.iterdir())
    run.claim_file.unlink()  # The process of its claim is gone, so the run waits in the queue.
    app = opened(experiment=INVESTIGATION_ID)
    assert "The search goes on: 3 trials so far, and the cause is not known yet." in text(app)
    assert not app.code
