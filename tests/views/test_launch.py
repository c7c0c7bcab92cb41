"""The form of Launch: optional settings, options as text, arms of backends, and messages."""

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from streamlit.proto.WidgetStates_pb2 import WidgetState
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Selectbox

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.checks.data_file import Head
from breakeven.runner.experiments.queue import experiments
from breakeven.runner.machine import capabilities
from breakeven.runner.machine.capabilities import Device, read_capabilities, visible_hardware
from breakeven.runner.machine.quick_race import adjusted
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs import workload
from breakeven.runner.specs.experiment import (
    DataSpec,
    ExperimentSpec,
    ModelSpec,
    ScriptSpec,
    TrainingSpec,
)
from breakeven.runner.specs.ladder import ladder_on
from breakeven.runner.specs.values import parse_options, write_options
from breakeven.runner.specs.workload import Task
from breakeven.views.form import workload as workload_form
from breakeven.views.form.field_widgets import MARK
from breakeven.views.form.presets import PRESETS
from tests.helpers.changed import CHANGED, TOGETHER
from tests.helpers.in_process import files_read_here, torch_asked_here
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment
from tests.helpers.machine import MACHINE, WITH_GPU, git, keep
from tests.helpers.pages import close_store, launched, opened, set_field, text


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("", {}),
        (" num_cycles = 2 , last=1e-3,", {"num_cycles": 2, "last": 1e-3}),
        ("fused=true, foreach=false", {"fused": True, "foreach": False}),
        ("betas=(0.9, 0.95), mode=triangular", {"betas": (0.9, 0.95), "mode": "triangular"}),
        ("milestones=(30,)", {"milestones": (30,)}),
    ],
)
def test_options_are_read_as_numbers_truth_values_lists_and_text(
    written: str, options: dict[str, Any]
):
    parsed = parse_options(written)
    assert repr(parsed) == repr(options)
    assert parse_options(write_options(parsed)) == options


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("weight_decay", "'weight_decay' must read name=value"),
        ("=3", "'=3' must read name=value"),
        ("weight decay=3", "'weight decay=3' must read name=value"),
        ("a=", "'a=' must read name=value"),
        ("a=1, a=2", "'a' is given twice"),
        ("a=nan", "'nan' is not a finite number"),
        ("a=(1, two)", "'(1, two)' must be numbers"),
        ("a=()", "'()' must be numbers"),
        ("a=(1", "'(1' has an unmatched parenthesis"),
    ],
)
def test_options_that_cannot_be_read_are_named(written: str, said: str):
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_options(written)


@pytest.fixture(autouse=True)
def typing_into_selectboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed values reach the page, as from a browser; Streamlit's tester knows options only."""

    def state(box: Selectbox[str]) -> WidgetState:
        return WidgetState(id=box.id, string_value=box.value)

    monkeypatch.setattr(Selectbox, "_widget_state", property(state))


@pytest.fixture(autouse=True)
def asked_in_this_process() -> Iterator[None]:
    with files_read_here(), torch_asked_here():
        yield


@pytest.fixture
def shared(kept_folder: DataDir) -> DataDir:
    """The folder of all tests that record nothing; the machine is reset before each test."""
    keep(kept_folder, replace(MACHINE, seen=visible_hardware()))
    return kept_folder


OF_HUB_TEXTS = {
    "data.text_column",
    "data.label_column",
    "data.train_split",
    "data.eval_split",
    "data.test_split",
    "data.sequence_length",
}
"""Fields that a user's own model and data do not have."""
FIRST = (
    "scenario",
    "task",
    "training.precision",
    "data.num_test_samples",
    "evaluation.when",
    "checkpoints.every",
    "stopping.patience",
)
"""Fields that allow other fields to change."""


def changed(spec: ExperimentSpec, values: dict[str, Any]) -> ExperimentSpec:
    """The specification with these values by path."""
    content = asdict(spec)
    for path, value in values.items():
        section, _, name = path.rpartition(".")
        (content[section] if section else content)[name] = value
    return ExperimentSpec.from_dict(content)


@pytest.mark.heavy
def test_every_field_of_the_form_reaches_the_experiment(
    shared: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(CODE_VARIABLE, str(tmp_path))
    (tmp_path / "mine.py").touch()
    second = Device(id="cuda:1", name="Test GPU", memory_bytes=2**36)
    keep(shared, replace(WITH_GPU, devices=(*WITH_GPU.devices, second)))
    own = {
        "model.source": f"{tmp_path}/mine.py:model",
        "data.source": f"{tmp_path}/mine.py:data",
        "callbacks": (f"{tmp_path}/mine.py:Hook",),
    }
    unasked = {
        *OF_HUB_TEXTS,
        "plan.steps",
        *fields_of("speed"),
        *fields_of("cache"),
        *fields_of("script"),
    }
    values = {path: CHANGED[path] for path in TOGETHER if path not in unasked} | own
    values["training.scheduler_options"] = {"num_cycles": 2}  # all that `cosine` takes
    usual, debug = values.pop("backends")[1:], ["eager"]

    values["training.epochs"] = 1  # The form asks for steps or epochs.
    app = opened("launch", **{"quick.measured": "steps"})
    for path in FIRST:
        set_field(app, path, values[path])
    app.multiselect(key="quick.backends").set_value([*usual])
    app.multiselect(key="quick.debug_backends").set_value(debug).run()
    for path, value in values.items():
        if path not in (*FIRST, "training.epochs"):
            set_field(app, path, value)
    values["backends"] = (*usual, *debug)
    assert launched(app, shared) == changed(adjusted(PRESETS["quick"].spec, WITH_GPU), values)


def fields_of(scenario: str) -> list[str]:
    """Fields that only one scenario has."""
    return [path for path in CHANGED if path.startswith(f"{scenario}.")]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ExperimentSpec]:
    """Makes the preset `quick` begin with other values, by path."""

    def begin(values: dict[str, Any]) -> ExperimentSpec:
        start = changed(PRESETS["quick"].spec, values)
        monkeypatch.setitem(PRESETS, "quick", replace(PRESETS["quick"], spec=start))
        return start

    return begin


@pytest.mark.parametrize(
    ("start", "paths"),
    [
        ({"scenario": "speed"}, fields_of("speed")),
        ({"scenario": "cache"}, fields_of("cache")),
        ({"data.source": "hub/texts"}, OF_HUB_TEXTS),
    ],
)
def test_fields_of_other_scenarios_and_data_reach_the_experiment(
    shared: DataDir, quick: Callable[..., ExperimentSpec], start: dict[str, Any], paths: list[str]
):
    values = {path: CHANGED[path] for path in paths}
    spec, app = quick(start), opened("launch")
    for path, value in values.items():
        set_field(app, path, value)
    assert launched(app, shared) == changed(adjusted(spec, MACHINE), values)


@pytest.mark.heavy
def test_what_does_not_apply_is_disabled_with_the_reason_and_has_its_default(shared: DataDir):
    keep(shared, WITH_GPU)
    app = opened("launch")
    scaler = app.text_input(key="quick.training_scaler_options")
    assert scaler.disabled and scaler.help.startswith("Only `fp16` needs a loss scaler.")
    app.selectbox(key="quick.precision").set_value("fp16").run()
    app.text_input(key="quick.training_scaler_options").set_value("init_scale=1024")
    app.text_input(key="quick.training_warmup_steps").set_value("5").run()
    assert "init_scale=1024" in text(app) and "Warm-up steps 5" in text(app)
    app.selectbox(key="quick.precision").set_value("float32")
    app.text_input(key="quick.training_scheduler_options").set_value("step_size=30")
    app.selectbox(key="quick.training_scheduler").set_value("step").run()
    assert app.text_input(key="quick.training_warmup_steps").help.startswith(
        "`step` has no warm-up."
    )
    app.selectbox(key="quick.evaluate").set_value("never").run()
    assert app.text_input(key="quick.stopping_patience").help.startswith("There is no evaluation.")
    training = launched(app, shared).training
    assert (training.scaler_options, training.warmup_steps) == ({}, 0)


def test_what_differs_from_the_preset_is_said_with_its_command_and_what_it_costs(shared: DataDir):
    app = opened("launch")
    twice = "Each backend then compiles its model a second time"
    waits = "Every step of every run then waits"
    assert "Changed:" not in text(app) and twice in text(app) and waits not in text(app)
    app.text_input(key="quick.batch_size").set_value("16")
    app.text_input(key="quick.checkpoint_every").set_value("2").run()
    assert "**Changed:** Batch size 16 · Checkpoint every 2" in text(app)
    assert "--checkpoint-every=2" in text(app)
    app.toggle(key="quick.evaluation_compiled").set_value(False)
    app.toggle(key="quick.stopping_nonfinite").set_value(True).run()
    assert twice not in text(app) and waits in text(app)


def marks(app: AppTest) -> int:
    """The number of marked fields."""
    return sum(entry.value == MARK for entry in app.caption)


def test_an_error_stands_once_in_the_words_of_the_form_and_its_field_is_marked(shared: DataDir):
    app = opened("launch")
    app.text_input(key="quick.training_optimizer_options").set_value("weight_decay")
    app.text_input(key="quick.evaluation_every").set_value("3").run()
    said = "**Optimizer options** (under “Optimizer”): 'weight_decay' must read name=value"
    assert unescape(app.error[0].value).startswith(f"This cannot run yet. {said}")
    assert marks(app) == 1 and app.button[-1].disabled
    assert text(app).count("must read name=value") == 1
    assert app.text_input(key="quick.training_optimizer_options").value == "weight_decay"
    assert app.text_input(key="quick.evaluation_every").value == "3", "fields after it are shown"

    app = opened("launch")
    app.text_input(key="quick.batch_size").set_value("5000").run()
    rule = "must not exceed “Training samples” (960): no batch would be full"
    assert app.error[0].value == f"This cannot run yet. **Batch size**, `5000`: {rule}"
    assert marks(app) == 1
    assert app.button[-1].disabled and app.text_input(key="quick.batch_size").value == "5000"


def test_an_error_in_the_drawer_names_its_tab_and_a_search_opens_it(shared: DataDir):
    app = opened("launch")
    assert not app.expander[0].proto.expanded
    app.text_input(key="quick.training_warmup_steps").set_value("-1").run()
    assert "**Warm-up steps** (under “Optimizer”)" in app.error[0].value
    search = app.selectbox(key="quick search")
    (option,) = [option for option in search.options if option.startswith("Warm-up steps")]
    search.set_value(option).run()
    (drawer,) = [entry for entry in app.expander if entry.label == "All other settings"]
    assert drawer.proto.expanded
    assert app.text_input(key="quick.training_warmup_steps").value == "-1"


def test_a_task_offers_the_models_and_data_that_fit_it_and_each_remembers_its_own(shared: DataDir):
    app = opened("launch")
    assert app.selectbox(key="quick.model").options == ["builtin:bert-tiny", "builtin:bert-base"]
    app.selectbox(key="quick.model").set_value("builtin:bert-base")
    app.selectbox(key="quick.task").set_value("image_classification").run()
    assert app.selectbox(key="quick.image_classification.model").options == ["builtin:vit-small"]
    assert app.selectbox(key="quick.image_classification.data").value == "builtin:digits"
    assert "quick.sequence_length" not in [field.key for field in app.text_input]
    assert launched(app, shared).model.source == "builtin:vit-small"


@pytest.mark.parametrize(
    ("task", "source", "columns"),
    [
        ("text_classification", "builtin:reviews", []),
        ("text_classification", "hub/texts", ["Text column", "Label column"]),
        ("causal_lm", "texts.csv", ["Text column"]),
        ("image_classification", "hub/images", ["Image column", "Label column"]),
        ("image_classification", "/folder/of/images", []),
    ],
)
def test_the_columns_are_asked_that_task_and_data_have(
    shared: DataDir,
    quick: Callable[..., ExperimentSpec],
    task: str,
    source: str,
    columns: list[str],
):
    quick({"task": task, "data.source": source})
    labels = [field.label for field in opened("launch").selectbox]
    assert [label for label in labels if label.endswith("column")] == columns


def test_a_task_that_this_form_has_never_heard_of_is_asked_what_it_takes(
    shared: DataDir, monkeypatch: pytest.MonkeyPatch
):
    for module in (workload, capabilities):
        monkeypatch.setattr(module, "TASKS", (*workload.TASKS, "ranking"))
    ranking = Task(
        learns="an order", samples="texts", labels="token", models=("a", "b"), metrics=("mae",)
    )
    keep(shared, replace(MACHINE, tasks={**MACHINE.tasks, "ranking": ranking}))
    app = opened("launch")
    app.selectbox(key="quick.task").set_value("ranking").run()
    assert "* `ranking`: an order" in app.selectbox(key="quick.task").help
    assert app.selectbox(key="quick.ranking.model").options == ["a", "b"]
    assert app.selectbox(key="quick.evaluation_metric").options == ["loss", "mae"]
    assert app.multiselect(key="quick.evaluation_predictions").disabled
    app.text_input(key="quick.ranking.data").set_value("hub/texts").run()
    labels = [field.label for field in app.selectbox if field.label.endswith("column")]
    assert labels == ["Text column"]
    spec = launched(app, shared)
    assert (spec.task, spec.model.source, spec.data.source) == ("ranking", "a", "hub/texts")
    keep(shared, MACHINE)  # an error from before the change of the task, which no longer holds
    assert read_capabilities(shared) is None


@pytest.mark.slow
def test_every_preset_can_be_launched_as_it_is(shared: DataDir):
    for key, preset in PRESETS.items():
        if preset.spec.data.is_file or preset.spec.workload.is_own_program:
            continue  # it needs a file first
        app = opened("launch", preset=preset.title)
        assert not app.error, key
        app.button(key="launch").click().run()
        newest = list(experiments(shared))[-1]
        assert newest.spec == adjusted(preset.spec, MACHINE)


def test_a_script_of_ones_own_is_launched_with_its_arguments(
    shared: DataDir, script: Path, monkeypatch: pytest.MonkeyPatch
):
    app = opened("launch", preset=PRESETS["script"].title)
    assert not app.error  # nothing was entered yet
    app.text_input(key="script.script").set_value(str(script)).run()
    assert f"{script} may not run here" in text(app) + app.error[0].value
    monkeypatch.setenv(CODE_VARIABLE, str(script.parent))
    app = opened("launch", preset=PRESETS["script"].title, **{"script.script": str(script)})
    app.text_input(key="script.script_arguments").set_value("--name 'my run").run()
    assert "cannot be read" in app.error[0].value
    app.text_input(key="script.script_arguments").set_value("--name 'my run'").run()
    assert "all steps of the script" in text(app) and "train.py --name my run" in text(app)
    assert app.text_input(key="script.script_steps").value == ""
    spec = launched(app, shared)
    assert spec.model.script == str(script) and spec.script.arguments == ("--name", "my run")


def test_each_row_of_the_table_of_arms_is_another_way_to_run_a_script(
    shared: DataDir, script: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(CODE_VARIABLE, str(script.parent))
    git(script.parent, "init", "-q", "-b", "main")
    git(script.parent, "commit", "-q", "--allow-empty", "-m", "first")
    commit = git(script.parent, "rev-parse", "main")
    (script.parent / "fix.diff").touch()
    typed = {
        "script.arm_1": "pr",
        "script.changes_1": "@main @fix.diff",
        "script.arm_2": "fp8",
        "script.changes_2": "--precision fp8",
        "script.baseline": "@main",
    }
    typed["script.script"] = str(script)
    app = opened("launch", preset=PRESETS["script"].title, **typed)
    names = [app.text_input(key=f"script.arm_{number}").value for number in range(4)]
    assert names == ["baseline", "pr", "fp8", ""]
    spec = launched(app, shared)
    assert spec.baseline == f"@{commit}"
    pr = f"pr=@{commit} @{script.parent}/fix.diff"
    assert spec.named_arms == (pr, "fp8=--precision fp8")
    assert spec.name == f"{script.parent.name}/train.py, inductor, pr, fp8"


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("pr", "@nowhere", "is no revision of the repository"),
        ("", "--precision fp8", "must read NAME=CHANGES"),
        ("baseline", "--precision fp8", "has a name with other characters"),
    ],
)
def test_an_arm_that_cannot_run_is_named_with_the_reason(
    name: str,
    changes: str,
    said: str,
    shared: DataDir,
    script: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv(CODE_VARIABLE, str(script.parent))
    git(script.parent, "init", "-q", "-b", "main")
    app = opened("launch", preset=PRESETS["script"].title, **{"script.script": str(script)})
    app.text_input(key="script.arm_1").set_value(name)
    app.text_input(key="script.changes_1").set_value(changes).run()
    assert said in app.error[0].value and MARK in text(app)


def test_an_experiment_that_is_repeated_shows_its_arms_in_the_table(
    folder: DataDir, script: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(CODE_VARIABLE, str(script.parent))
    spec = spec_of_script(script, named_arms=("fp8=--precision fp8", "bf16=--precision bf16"))
    record_experiment(folder.runs, spec)
    app = opened("launch", again=EXPERIMENT_ID)
    names = {field.label: field.value for field in app.text_input if "of arm" in field.label}
    assert names == {"Name of arm 1": "fp8", "Name of arm 2": "bf16", "Name of arm 3": ""}


def test_scripts_of_the_folders_that_may_run_are_offered_and_found_by_their_names(
    shared: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    project = tmp_path / "project"
    for name in (
        "train.py",
        "models/net.py",
        ".git/hook.py",
        "__pycache__/x.py",
        "env/lib/torch.py",
        "env/pyvenv.cfg",
        "data.csv",
    ):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("import breakeven\n")
    monkeypatch.setenv(CODE_VARIABLE, str(project))
    app = opened("launch", preset=PRESETS["script"].title)
    assert "Choose your script" in text(app)
    offered = app.selectbox(key="script.script")
    assert offered.options == [str(project / "train.py"), str(project / "models/net.py")]
    ways = (str(project / "models/net.py"), "models/net.py", "net.py", "net")
    assert {workload_form.script_path(typed) for typed in ways} == {project / "models/net.py"}
    offered.set_value("net").run()
    assert launched(app, shared).model.script == str(project / "models/net.py")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("import breakeven\n")
    return tmp_path / "train.py"


def spec_of_script(file: Path, **changes: Any) -> ExperimentSpec:
    return experiment_spec(
        task="script",
        data=DataSpec(source="script"),
        training=TrainingSpec(),
        model=ModelSpec(source=f"script:{file}"),
        **changes,
    )


def test_how_long_a_script_takes_is_told_by_its_runs_before(
    folder: DataDir, script: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(CODE_VARIABLE, str(script.parent))
    spec = spec_of_script(script, name="before", script=ScriptSpec(steps=40))
    unknown = "The first run of this script on this machine will show how long it takes"
    for day in (21, 22):
        app = opened("launch", preset=PRESETS["script"].title)
        app.selectbox(key="script.script").set_value(str(script)).run()
        assert (unknown in text(app)) == (day == 21), text(app)
        record_experiment(folder.runs, spec, f"202611{day}-093015-123456-7f3a")
        close_store(folder)
    assert "estimated from “before” with the same script on this machine" in text(app)


def test_what_only_a_backend_that_never_ran_would_tell_is_said_so(folder: DataDir):
    record_experiment(folder.runs, experiment_spec(backends=("eager",)))
    app = opened("launch")
    said = text(app)
    assert "The first run of this model" not in said
    assert "The first run of `inductor-blocks` with this model on this machine" in said


def test_backends_can_be_typed_with_settings_and_one_click_asks_for_every_rung(shared: DataDir):
    app = opened("launch")
    # Enter takes the first entry that begins as what was typed: no half setting becomes another.
    offered = set(app.multiselect(key="quick.backends").options)
    assert offered == {*MACHINE.backends, "inductor:scope=blocks"}, "the preset's, and names"
    app.multiselect(key="quick.backends").set_value(["inductor", "inductor:mode=max-autotune"])
    app.run()
    assert "`inductor-max-autotune`" in text(app)
    app.multiselect(key="quick.backends").set_value(["inductor", "inductor:mode=fast"]).run()
    assert "inductor:mode=fast" in app.error[0].value
    app.multiselect(key="quick.backends").set_value(["nobody:scope=forward"]).run()
    assert "this machine has" in app.error[0].value
    keep(shared, replace(MACHINE, debug_backends=(*ladder_on("cpu")[:3], "inductor_debug")))
    app = opened("launch")
    set_field(app, "training.batch_size", 16)
    app.run()
    app.button(key="ladder").click()
    spec = launched(app, shared)
    assert sorted(spec.backends) == sorted(ladder_on("cpu"))
    assert spec.training.batch_size == 16, "the rest stays as it was"
    assert not app.warning


def test_a_backend_can_be_typed_by_path_and_the_page_executes_none_of_its_code(
    shared: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "loud").mkdir()
    (tmp_path / "loud" / "__init__.py").write_text("raise SystemExit('executed')")
    (tmp_path / "loud" / "core.py").write_text("def compile(graph, inputs): return graph")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(CODE_VARIABLE, raising=False)
    app = opened("launch")
    assert "BREAKEVEN_CODE=/folder/of/your/files make run" in text(app)
    assert app.multiselect(key="quick.callback").disabled
    app.selectbox(key="quick.task").set_value("custom").run()
    assert "my_code.py may not run here" in app.error[0].value
    app = opened("launch")
    app.multiselect(key="quick.backends").set_value(["loud.nothing:compile"]).run()
    assert "loud has no module 'nothing'" in unescape(app.error[0].value)
    app.multiselect(key="quick.backends").set_value(["loud.core:compile"]).run()
    assert f"{CODE_VARIABLE}={tmp_path / 'loud'}" in app.error[0].value
    monkeypatch.setenv(CODE_VARIABLE, str(tmp_path))
    app.run()
    assert not app.error and "`loud.core.compile`" in text(app)
    assert "add `--allow-code` with the folder of its files" in text(app)
    app.button(key="launch").click().run()
    queued = list(experiments(shared))[-1]
    assert queued.spec.backends == ("loud.core:compile",)
    assert queued.runs[0].is_unchecked  # the run that reads it has loaded the code before


@pytest.mark.heavy
def test_an_address_brings_back_typed_backends_and_options_of_which_a_wrong_one_is_said(
    shared: DataDir,
):
    typed = ["inductor", "inductor:scope=forward+dynamic=true"]
    app = opened(
        "launch",
        **{
            "quick.backends": typed,
            "quick.training_clip_norm": "0.5",
            "quick.training_optimizer_options": "wieght_decay=0.1",
        },
    )
    assert app.multiselect(key="quick.backends").value == typed
    assert app.text_input(key="quick.training_clip_norm").value == "0.5"
    assert app.text_input(key="quick.training_optimizer_options").value == "wieght_decay=0.1"
    assert "**Optimizer options**" in app.error[0].value
    assert "unexpected keyword argument" in app.error[0].value


def test_a_preset_keeps_or_drops_a_backend_whatever_its_settings():
    arms = ExperimentSpec(
        name="variants", backends=("inductor:scope=forward", "cudagraphs", "eager:dynamic=true")
    )
    with_gpu = adjusted(arms, WITH_GPU)
    assert (with_gpu.device, with_gpu.backends) == ("cuda:0", arms.backends)
    bare = adjusted(PRESETS["quick"].spec, replace(MACHINE, cpp_compiler=None))
    assert bare.backends == ("eager",)
    usual = ("inductor:scope=forward", "eager:dynamic=true")
    assert adjusted(arms, MACHINE).backends == usual
    apple = Device(id="mps", name="Apple M4", memory_bytes=None)
    on_apple = adjusted(arms, replace(MACHINE, devices=(*MACHINE.devices, apple)))
    assert (on_apple.device, on_apple.backends) == ("mps", usual)


NOT_POSSIBLE = (
    ("batch_size", "-5", "must be at least 1"),
    ("batch_size", "1,000", "'1,000' must be a whole number, written in digits"),
    ("batch_size", "", "must not be empty"),
    ("max_steps", "99999999999999999999", "must be at most 9,223,372,036,854,775,807"),
    ("max_steps", "9" * 5000, "is not a finite number"),
    ("train_samples", "1000000000000", "must be at most 100,000,000: every run holds all"),
    ("cpu_threads", "1000", "further threads would only wait for each other"),
    ("learning_rate", "fast", "'fast' must be a number, such as 0.001 or 1e-3"),
    ("time_limit", "1e300", "must be at most 31,536,000 s: that is a year"),
)


def test_a_number_that_cannot_be_stays_is_marked_and_stops_the_launch(shared: DataDir):
    app = opened("launch", **{"quick.measured": "steps"})
    for field, typed, said in NOT_POSSIBLE:
        widget = app.text_input(key=f"quick.{field}")
        before = widget.value
        widget.set_value(typed).run()
        assert said in unescape(app.error[0].value), (field, typed)
        assert (len(app.error), marks(app)) == (1, 1), (field, typed)
        assert (app.button[-1].label, app.button[-1].disabled) == ("Launch", True)
        assert app.text_input(key=f"quick.{field}").value == typed
        app.text_input(key=f"quick.{field}").set_value(before)
    app.run()
    assert not app.error and not app.button(key="launch").disabled


QUESTIONS = "question,type\n" + "".join(
    f'"What, and how often, is number {n}?",{"count" if n % 2 else "thing"}\n' for n in range(50)
)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    (tmp_path / "questions [1].csv").write_text(QUESTIONS)
    return tmp_path / "questions [1].csv"


@pytest.mark.parametrize(
    ("num_rows", "sizes", "batch"),
    # Of 1,500 rows a fifth would be 300; of 7,600 the preset's 400 are fewer; as of a million.
    [
        (1_500, (1_200, 300), 32),
        (7_600, (7_200, 400), 32),
        (1_000_000, (7_680, 400), 32),
        (None, (7_680, 400), 32),
        (2, (1, 1), 1),
    ],
)
def test_of_a_file_as_much_is_taken_as_a_training_needs_that_learns(
    num_rows: int | None, sizes: tuple[int, int], batch: int
):
    start = PRESETS["own"].spec
    head = Head(columns=(), rows=(), num_read=2, num_rows=num_rows)
    assert workload_form.fitting_sizes(start.data, head) == sizes
    assert workload_form.fitting_batch(start, head) == batch


def test_what_is_left_out_of_a_file_is_said():
    head = Head(columns=(), rows=(), num_read=100, num_rows=20_000)
    said = workload_form.usage_text(PRESETS["own"].spec, head).replace("**", "")
    assert "400 to evaluate on, drawn at random; 11,920 rows left out." in said
    assert said.endswith("240 steps of 32: each training row is seen once.")


@pytest.mark.parametrize(
    ("samples", "steps", "length"),
    # Batches of 32: 3 in an epoch of 96 samples, 30 in one of 960.
    [
        ("96", "48", "16 epochs"),
        ("96", "4000", "1,333 epochs"),
        ("960", "30", "1 epoch"),
        ("960", "75", "2.5 epochs"),
    ],
)
def test_a_number_of_steps_is_told_in_epochs_and_the_form_asks_for_one_of_both(
    shared: DataDir, samples: str, steps: str, length: str
):
    address = {"quick.train_samples": samples, "quick.batch_size": "32"}
    app = opened("launch", **address)
    assert app.text_input(key="quick.epochs").value == "1"
    app = opened("launch", **address, **{"quick.max_steps": steps})
    assert f"{length} of " in text(app)
    assert not [field for field in app.text_input if field.key == "quick.epochs"]


def test_the_steps_of_the_planned_training_come_first_and_say_how_long_is_measured(shared: DataDir):
    """The training itself stays as short as the preset's: 120 steps."""
    app = opened("launch")
    assert app.text_input[0].key == "quick.plan_steps"
    app.text_input(key="quick.plan_steps").set_value("20000").run()
    said = "until it is decided what is best for 20,000 steps"
    assert f"{said}**, at most 2 to 15 minutes of steps and compiling" in text(app)
    spec = launched(app, shared)
    assert (spec.plan.steps, spec.num_steps) == (20_000, 120)
    app = opened("launch", **{"quick.scenario": "speed"})
    assert "`speed` has no planned steps" in app.text_input(key="quick.plan_steps").help


@pytest.mark.heavy
def test_a_file_shows_its_first_rows_and_offers_its_columns_and_as_many_samples_as_it_has(
    shared: DataDir, questions: Path
):
    app = opened("launch", preset="Your own data")
    assert "Name your data" in text(app) and not app.error, "an invitation"
    assert app.selectbox(key="own.data").value is None
    assert app.button[-1].label == "Launch" and app.button[-1].disabled
    app.selectbox(key="own.data").set_value(str(questions)).run()
    assert "50 rows in this file; the first 5 rows:" in text(app)
    (shown,) = (entry.value for entry in app.dataframe)
    assert list(shown.columns) == ["question", "type"]
    assert shown["question"][0] == "What, and how often, is number 0?"
    for name, likely in (("text_column", "question"), ("label_column", "type")):
        column = app.selectbox(key=f"own.{name}")
        assert column.options == ["question", "type"] and column.value == likely
    said = text(app).replace("**", "")
    assert "Used: 40 rows to train on, 10 to evaluate on, drawn at random, which are all" in said
    assert "`bert-tiny` makes 240 steps of 8: each training row is seen 48 times." in said
    assert "· Name" not in said
    spec = launched(app, shared)
    assert (spec.data.text_column, spec.data.label_column) == ("question", "type")
    # A fifth of 50 for evaluation; four batches of 8 fit into the rest, four of 16 do not.
    assert (spec.data.num_train_samples, spec.data.num_eval_samples) == (40, 10)
    assert (spec.training.batch_size, spec.num_steps) == (8, 240)
    assert spec.name == "bert-tiny on questions [1].csv, batch 8, inductor"


@pytest.mark.heavy
def test_columns_follow_another_file_unless_chosen_and_what_it_cannot_give_is_said_at_its_field(
    shared: DataDir, questions: Path, tmp_path: Path
):
    other = tmp_path / "other.csv"
    other.write_text(QUESTIONS.replace("question,type", "body,kind"))
    app = opened("launch", preset="Your own data")
    app.selectbox(key="own.data").set_value(str(questions)).run()
    app.selectbox(key="own.data").set_value(str(other)).run()
    assert app.selectbox(key="own.text_column").value == "body" and not app.error, text(app)
    app.selectbox(key="own.text_column").set_value("kind").run()
    assert "is also the text column" in app.error[0].value
    app.selectbox(key="own.label_column").set_value("body").run()
    assert "50 different labels in 50 rows" in app.error[0].value
    app.selectbox(key="own.data").set_value(str(questions)).run()
    assert app.selectbox(key="own.text_column").value == "kind", "it was chosen"
    assert "is not a column of" in app.error[0].value
    app = opened("launch", preset="Your own data", **{"own.data": str(questions)})
    app.text_input(key="own.train_samples").set_value("49").run()
    assert "more than the 50 rows of" in app.error[0].value and app.button[-1].disabled
    app.selectbox(key="own.data").set_value(str(questions.with_name("nothing.csv"))).run()
    assert "no such file or folder; give its full path" in app.error[0].value
    assert not app.dataframe
