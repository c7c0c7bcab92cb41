"""A search from the form to its answer, and the way between both experiments."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.experiments.queue import experiments
from breakeven.runner.experiments.unconfirmed_searches import STOPPED, UNCONFIRMED
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import ExperimentState, RunState
from breakeven.runner.specs.candidates import candidates, search_spec
from breakeven.runner.specs.experiment import ExperimentSpec, ScriptSpec
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.views.form.presets import PRESETS
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, record_experiment
from tests.helpers.machine import WITH_GPU, keep
from tests.helpers.pages import opened, text

CONFIRMATION = "20261122-103015-123456-7f3b"
LOSSES = [1.0 - 0.01 * step for step in range(80)]


def searched(folder: DataDir) -> ExperimentSpec:
    """A search in which inductor was twice as fast and the fused optimizer saved nothing."""
    training = experiment_spec(num_steps=80)
    spec = search_spec(
        replace(training, backends=("inductor", "none:optimizer=fused")), steps=12_345, named=True
    )
    endings = {
        "baseline": ("searched", {}),
        "control": ("searched", {}),
        "inductor": ("searched", {}),
        "none-fused": ("equal", {"budget": 60, "to": "inductor"}),
    }
    for label, (cause, more) in endings.items():
        seconds = 0.05 if label == "inductor" else 0.1
        run = Recording(folder.runs, label, spec).claim().start()
        run.blocks([seconds] * 8, LOSSES, compile_seconds=5.0 if label == "inductor" else 0.0)
        run.stop("recorded reason", cause=cause, target_width=0.02, **more).end()
    return spec


def test_launch_searches_for_the_planned_length_among_all_candidates(folder: DataDir):
    app = opened("launch")
    app.number_input(key="search-steps").set_value(12_345)
    app.number_input(key="search-minutes").set_value(7).run()
    app.toggle(key="search-batch").set_value(True).run()
    app.button(key="search").click().run()
    assert not app.exception and not app.error, text(app)
    (queued,) = experiments(folder)
    assert queued.spec.kind.has_candidates
    assert (queued.spec.tune.steps, queued.spec.tune.max_seconds) == (12_345, 420)
    assert queued.spec.tune.allow == ("batch",)
    assert queued.spec.backends == candidates(queued.spec)
    assert [arm.label for arm in queued.arms] == ["baseline", "control"]
    keep(folder, WITH_GPU)
    app = opened("launch", **{"quick.device": "cuda:0", "quick.precision": "bf16"})
    # Which coarser rounding the form offers depends on the precision of the training.
    assert app.toggle(key="search-precision").label == "Allow half-precision sums in attention"
    app.toggle(key="search-precision").set_value(True).run()
    app.button(key="search").click().run()
    _, queued = experiments(folder)
    assert queued.spec.tune.allow == ("precision",)
    assert "none:math_attention=reduced" in queued.spec.backends


def test_launch_searches_for_the_fastest_way_to_train_with_a_script(
    folder: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    script = tmp_path / "train.py"
    script.write_text("import breakeven\n")
    monkeypatch.setenv(CODE_VARIABLE, str(tmp_path))
    app = opened("launch", preset=PRESETS["script"].title, **{"script.script": str(script)})
    app.number_input(key="search-steps").set_value(12_345).run()
    app.button(key="search").click().run()
    (queued,) = experiments(folder)
    assert queued.spec.kind.has_candidates and queued.spec.model.script == str(script)
    assert queued.spec.tune.steps == 12_345
    assert queued.spec.backends == candidates(queued.spec)
    record_experiment(folder.runs, replace(queued.spec, script=ScriptSpec(steps=80)))
    shown = text(opened(experiment=EXPERIMENT_ID))
    assert "Not tried: scope, because the script decides what is compiled" in shown


def test_a_running_search_describes_its_candidates_and_promises_no_number_of_steps(folder: DataDir):
    spec = search_spec(
        replace(experiment_spec(), backends=("none:optimizer=fused",)), steps=9, named=True
    )
    me = ProcessIdentity.from_pid(os.getpid())
    for label in ("baseline", "none-fused"):
        Recording(folder.runs, label, spec).claim(me).start().block([0.1] * 10, LOSSES[:10])
    app = opened(experiment=EXPERIMENT_ID)
    (rows,) = (
        element.proto.body for element in app.get("html") if "run-rows" in element.proto.body
    )
    assert "Not compiled; the optimizer does all its work in one kernel" in rows
    assert rows.count("10 steps") == 2 and "/ step" not in rows
    assert "The search tries a few candidates at a time" in text(app)


def test_a_search_that_found_nothing_says_so_until_a_training_confirms_its_best(folder: DataDir):
    spec = searched(folder)
    shown = text(opened(experiment=EXPERIMENT_ID))
    assert "No candidate gained enough to be confirmed" in shown
    assert "The search ended because recorded reason" in shown
    assert spec.on_its_own.scenario == "train"
    app = opened("launch", again=EXPERIMENT_ID)
    assert not app.error, text(app)

    confirming = replace(spec, scenario="train", backends=("inductor",), confirms=EXPERIMENT_ID)
    record_experiment(folder.runs, confirming, CONFIRMATION)
    app = opened(experiment=EXPERIMENT_ID)
    shown = text(app)
    assert "The best candidates" in shown and "were trained from the beginning" in shown
    assert "12345" in str([field.value for field in app.text_input])
    (opens,) = [button for button in app.button if button.label == "The confirmed answer"]
    app = opens.click().run()
    assert app.query_params["experiment"] == CONFIRMATION
    assert "This training tests the answer of the search" in text(app)
    (back,) = [button for button in app.button if button.label == "The search"]
    assert back.click().run().query_params["experiment"] == EXPERIMENT_ID


def test_a_stopped_search_shows_its_best_so_far_unconfirmed(folder: DataDir):
    spec = search_spec(
        replace(experiment_spec(), backends=("inductor", "eager")), steps=12_345, named=True
    )
    for label in ("baseline", "control", "inductor", "eager"):
        run = Recording(folder.runs, label, spec).claim().start()
        compiles = 5.0 if label == "inductor" else 0.0
        run.blocks([0.05 if label == "inductor" else 0.1] * 8, LOSSES, compile_seconds=compiles)
        run.end(RunState.CANCELLED)
    shown = text(opened(experiment=EXPERIMENT_ID))
    assert STOPPED in shown and UNCONFIRMED not in shown
    assert "Use inductor" in shown and "did not finish (stopped)" in shown


def test_a_candidate_that_the_search_ends_while_it_compiles_leaves_the_search_finished(
    folder: DataDir,
):
    spec = search_spec(replace(experiment_spec(), backends=("inductor",)), steps=9, named=True)
    for label in ("baseline", "control"):
        run = Recording(folder.runs, label, spec).claim().start()
        run.blocks([0.1] * 8, LOSSES).stop("searched", cause="searched", target_width=0.02).end()
    dropped = Recording(folder.runs, "inductor", spec).claim().start()
    dropped.end(RunState.CANCELLED, "compiling took too long")
    with Store.in_memory(folder) as store:
        assert queries.list_experiments(store)["state"].tolist() == ["finished"]
    shown = text(opened(experiment=EXPERIMENT_ID))
    assert "Compiled into fused kernels." in shown and "Ended: compiling took too long." in shown
    assert "inductor was stopped" not in shown and "inductor did not finish" not in shown
    # A folder that contains only a dropped candidate hides no other experiment.
    for label in ("baseline", "control"):
        shutil.rmtree(folder.run_dir(f"{EXPERIMENT_ID}.{label}").path)
    record_experiment(folder.runs, experiment_spec(num_steps=20), CONFIRMATION)
    with Store.in_memory(folder) as store:
        listed = queries.list_experiments(store).set_index("experiment_id")["state"]
    assert listed.to_dict() == {EXPERIMENT_ID: "cancelled", CONFIRMATION: "finished"}


@pytest.mark.parametrize(
    ("baseline", "candidates", "outcome"),
    [
        (RunState.FINISHED, [RunState.CANCELLED], ExperimentState.FINISHED),
        (RunState.CANCELLED, [RunState.FINISHED], ExperimentState.CANCELLED),
        (RunState.FINISHED, [RunState.CANCELLED, RunState.FAILED], ExperimentState.PARTLY_FAILED),
    ],
)
def test_a_search_that_a_person_cancels_is_cancelled_whatever_its_candidates_did(
    baseline: RunState, candidates: list[RunState], outcome: ExperimentState
):
    assert ExperimentState.from_runs([baseline, *candidates], baseline) is outcome


def test_what_the_plan_names_stands_as_lines_of_python(folder: DataDir):
    record_experiment(folder.runs, experiment_spec(num_steps=80, backends=("inductor",)))
    app = opened(experiment=EXPERIMENT_ID, plan="1000000")
    assert [block.value for block in app.code if "torch.compile" in block.value]


@pytest.mark.parametrize("label", ["none-fused", "baseline"])
def test_failures_of_candidates_are_folded_away_and_that_of_the_baseline_is_not(
    folder: DataDir, label: str
):
    spec = searched(folder)
    run = Recording(folder.runs, label, spec)
    shutil.rmtree(run.run.path)
    run = Recording(folder.runs, label, spec).claim().start().blocks([0.1] * 4, LOSSES[:40])
    run.end(RunState.FAILED, reason="no such kernel")
    app = opened("experiment", experiment=EXPERIMENT_ID)
    assert not app.exception
    assert "no such kernel" in text(app)
    folded = [expander for expander in app.expander if expander.label == "1 candidate failed: why"]
    assert bool(folded) is (label == "none-fused")
    assert not folded or "no such kernel" in folded[0].error[0].value
