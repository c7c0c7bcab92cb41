"""Every page with an empty data folder, with recorded experiments, and with broken input."""

import importlib
import os
import sys
from dataclasses import replace
from html import unescape
from urllib.parse import parse_qs

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from breakeven.runner.experiments import queue_order
from breakeven.runner.experiments.queue import experiments
from breakeven.runner.files import FileLock
from breakeven.runner.machine.capabilities import likely_capabilities
from breakeven.runner.machine.quick_race import adjusted
from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Exit
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import CacheSpec, TrainingSpec
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.queries import time_use
from breakeven.views.form.presets import PRESETS
from breakeven.views.parts import actions, progress
from breakeven.views.shared import resources, words
from tests.helpers.device_journals import ON_CUDA
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)
from tests.helpers.machine import MACHINE, keep
from tests.helpers.pages import cards, opened, opened_run, text, without_links


@pytest.mark.parametrize(
    ("page", "query", "said"),
    [
        ("experiment", {}, ("One click trains a tiny BERT",)),
        ("experiments", {}, ("No experiment yet",)),
        ("experiments", {"view": "Matrix"}, ("No experiment yet",)),
        ("experiments", {"view": "Trends"}, ("No experiment yet",)),
        ("experiments", {"view": "Side by side"}, ("Choose two experiments or more",)),
        ("experiments", {"view": "Suites"}, ("No suite was run here yet", "breakeven queue suite")),
        ("machine", {"tab": "Queue"}, ("Nothing is running.",)),
        ("launch", {}, ("What will run", "breakeven compare")),
        ("definitions", {}, ("Each heading is the name of a number",)),
    ],
)
def test_an_empty_data_folder_leads_every_page_to_something_to_do(
    kept_folder: DataDir, page: str, query: dict[str, str], said: tuple[str, ...]
):
    shown = text(opened(page, **query))
    assert [sentence for sentence in said if sentence not in shown] == []


@pytest.fixture(scope="module")
def raced(kept_folder: DataDir) -> DataDir:
    record_experiment(kept_folder.runs, experiment_spec(num_steps=80))
    return kept_folder


@pytest.mark.parametrize(
    ("page", "query", "titles", "said"),
    [
        # Steps of 0.2 s against 0.1 s, 3 s of compiling: 3 / 0.1 = 30 steps. The two equal runs are
        # equally fast. The reason of a verdict shows on hover.
        (
            "experiment",
            {},
            ("Break-even",),
            (
                "Use inductor for 80 steps",
                "**inductor** trains at 2.00x (2.00 to 2.00)",
                "after 30 steps",
                "it learns the same thing.",
                "bert-tiny on reviews",
                "Test CPU",
                "Noise floor 0.0 %",
                ">matches</span>",
                'title="the loss stays within',
            ),
        ),
        ("experiment", {"tab": "Learning"}, ("Training loss", "Accuracy", "Evaluation loss"), ()),
        (
            "experiment",
            {"tab": "Runs"},
            ("Step time", "Compile latency", "Throughput"),
            ("200 ms", "100 ms"),
        ),
        (
            "experiment",
            {"tab": "Settings"},
            (),
            ("breakeven compare", "Specification of the experiment"),
        ),
        ("launch", {}, (), ("120 steps", "estimated from “test” with the same model")),
        (
            "experiment",
            {"tab": "Runs", "run": f"{EXPERIMENT_ID}.baseline"},
            ("Time of every step", "Training loss"),
            ("finished", "80 of 80 steps", "Step time 200 ms"),
        ),
    ],
)
def test_every_page_says_what_was_recorded(
    raced: DataDir, page: str, query: dict[str, str], titles: tuple[str, ...], said: tuple[str, ...]
):
    """Of 80 steps of 0.2 s, or 0.1 s under a backend, whose losses fall from 2 to 1."""
    app = opened(page, **query)
    shown = text(app) + "\n".join(entry.label for entry in app.expander)
    assert [sentence for sentence in said if sentence not in shown] == []
    assert set(titles) <= set(cards(app))
    assert "Memory needed" not in cards(app), "none was recorded"


def test_the_example_is_introduced_as_one_until_something_was_run_here(folder: DataDir):
    record_experiment(resources.EXAMPLES / "first", experiment_spec(num_steps=80))
    app = opened()
    assert "recorded example, Test CPU, 21 Nov 2026" in text(app)
    assert "Below is a recorded example." in text(app)
    assert app.button(key="quick_race")
    record_experiment(folder.runs, experiment_id="20261122-101010-000000-aaaa")
    assert "Below is a recorded example." not in text(app.run())


@pytest.mark.parametrize("is_described", [True, False])
def test_one_click_queues_the_quick_race_also_before_torch_has_described_the_machine(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch, is_described: bool
):
    app = opened()
    if not is_described:
        monkeypatch.setattr(actions, "capabilities", lambda: None)
    app.button(key="quick_race").click().run()
    (experiment,) = experiments(folder)
    machine = MACHINE if is_described else likely_capabilities()
    assert experiment.spec == adjusted(PRESETS["quick"].spec, machine)
    assert experiment.runs[0].is_unchecked != is_described, "so that its baseline has it checked"
    assert app.query_params["experiment"] == experiment.experiment_id, "to watch it"


def test_the_address_decides_which_experiment_is_shown_of_two_with_one_name_in_one_minute(
    folder: DataDir,
):
    first, later = (f"20261122-101010-00000{number}-aaa{number}" for number in range(2))
    for experiment_id in (first, later):
        record_experiment(folder.runs, experiment_id=experiment_id)
    assert opened(experiment=first).selectbox(key="chosen_experiment").value == first
    app = opened()
    assert app.selectbox(key="chosen_experiment").value == later
    for chosen in (first, later):
        app.selectbox(key="chosen_experiment").set_value(chosen).run()
        assert app.query_params["experiment"] == chosen, "choosing one changes the address"
        assert not app.warning or "There is no" not in app.warning[0].value
    assert "There is no experiment `gone`" in text(opened(experiment="gone"))


def test_what_happened_leads_from_the_verdict_to_the_failed_run(folder: DataDir):
    spec = experiment_spec(name="half failed")
    for label in ("baseline", "control"):
        Recording(folder.runs, label, spec).claim().start().block([0.1] * 10, [1.0] * 10)
    failed = Recording(folder.runs, "inductor", spec).claim().start()
    failed.end(RunState.FAILED, "exit status 1: boom")
    app = opened("experiment", experiment=EXPERIMENT_ID)
    assert text(app).count('class="backend-card"') == 2 and "<dt>" not in text(app), "no dashes"
    assert "boom" not in "".join(element.value for element in app.warning), "the error is said once"
    app.button(key=f"happened-{failed.run_id}").click().run()
    assert (app.query_params["tab"], app.query_params["run"]) == ("Runs", "inductor")
    assert "boom" in text(app)


def test_a_failure_whose_cause_is_known_offers_launch_with_each_remedy(folder: DataDir):
    """Nothing is trained here: torch's message is that of a GPU."""
    backend, label = "inductor:mode=max-autotune", "inductor-max-autotune"
    training = TrainingSpec(batch_size=8, gradient_accumulation=2)
    spec = experiment_spec(name="autotunes", backends=(backend,), training=training)
    for other in ("baseline", "control"):
        Recording(folder.runs, other, spec).claim().start().end()
    failed = Recording(folder.runs, label, spec).claim().start()
    message = "CUDA out of memory. Tried to allocate 2.00 GiB."
    frame = '  File "/torch/_inductor/select_algorithm.py", line 3290, in benchmark_choice'
    failed.log.append("error", error="OutOfMemoryError", message=message, traceback=frame)
    failed.end(RunState.FAILED, "exit status 1")
    for app in (opened(experiment=EXPERIMENT_ID), opened_run(label)):
        assert "Memory ran out while kernels were timed" in text(app)
        links = [element.proto for element in app.get("page_link") if "Try" in element.proto.label]
        assert [link.label for link in links] == [
            "Try `inductor:mode=reduce-overhead`",
            "Try `--batch-size=4 --set=training.gradient_accumulation=4`",
        ]
    query = {name: value for name, (value,) in parse_qs(links[0].query_string).items()}
    app = opened("launch", **query)
    app.button(key="launch").click().run()
    (again,) = (
        experiment.spec
        for experiment in experiments(folder)
        if experiment.experiment_id != EXPERIMENT_ID
    )
    assert again.backends == ("inductor:mode=reduce-overhead",)
    assert again.training.gradient_accumulation == 2


def test_a_failed_run_is_shown_with_its_error_all_lines_but_of_a_compilers_and_its_log(
    folder: DataDir,
):
    """The class of our own errors is not shown; their message is enough."""
    message = "the device is gone\nlook at its cable"
    for number, (name, module, shown) in enumerate(
        (
            ("RuntimeError", "", "RuntimeError: the device is gone look at its cable"),
            ("CodeNotAllowed", "breakeven.runner.errors.", "the device is gone look at its cable"),
            ("InductorError", "torch.", "compiling failed: InductorError: the device is gone"),
        )
    ):
        experiment_id = f"20261122-101010-000000-aaa{number}"
        for label in ("baseline", "control"):
            Recording(folder.runs, label, experiment_id=experiment_id).claim().start().end()
        failed = Recording(folder.runs, "inductor", experiment_id=experiment_id).claim().start()
        trace = f"Traceback\n  in line 7\n{module}{name}: {message}"
        failed.log.append("error", error=name, message=message, traceback=trace)
        failed.run.output_file.write_text("a last word\n")
        failed.end(RunState.FAILED, "exit status 1: boom")
        query = {"tab": "Runs", "experiment": experiment_id, "run": failed.run_id}
        app = opened(**query)
        assert app.error[0].value == shown
        assert "in line 7" in text(app)
        assert app.expander[0].proto.expanded == (name != "CodeNotAllowed")
        verdict = text(opened(experiment=experiment_id))
        assert f"**inductor**: {shown}" in verdict and "exit status 1" not in verdict
    assert "a last word" in text(opened(**query, part="Log"))


def test_a_run_charts_its_learning_rate_if_it_changes_and_its_gradient_norm_if_recorded(
    folder: DataDir,
):
    for number, (rate, norm, charted) in enumerate(
        ((0.0, None, {"Learning rate"}), (1e-3, 2.5, {"Gradient norm"}))
    ):
        experiment_id = f"20261122-101010-000000-aaa{number}"
        recording = Recording(folder.runs, "baseline", experiment_id=experiment_id).claim().start()
        for step in range(2):
            recording.log.append(
                "step",
                step=step,
                epoch=0,
                round=0,
                loss=1.0,
                seconds=0.1,
                compiled=False,
                learning_rate=(rate, 1e-3)[step],
                gradient_norm=norm,
            )
        recording.end()
        app = opened(tab="Runs", experiment=experiment_id, run=f"{experiment_id}.baseline")
        assert {"Learning rate", "Gradient norm"} & {*cards(app)} == charted


def test_a_run_says_what_it_measured_and_leaves_out_what_it_could_not(folder: DataDir):
    recording = Recording(folder.runs, "baseline").claim().start(environment=ON_CUDA)
    memory = {"peak_memory_bytes": 2**29, "reserved_memory_bytes": 3 * 2**30}
    recording.block([0.2] * 10, [1.0] * 10, **memory).block([0.2] * 10, [1.0] * 10, **memory).end()
    shown = text(opened_run("baseline"))
    assert "Step time 200 ms · Memory needed 3.00 GiB · Allocated memory 512.0 MiB" in shown


def test_an_active_experiment_shows_progress_and_a_stop_button_that_asks_once(folder: DataDir):
    spec = experiment_spec(num_steps=40)
    me = ProcessIdentity.from_pid(os.getpid())  # any living process makes a claim look alive
    for label in ("baseline", "control", "inductor"):
        recording = Recording(folder.runs, label, spec).claim(me).start()
        recording.blocks([0.1, 0.1], [1.0] * 20)
    app = opened("experiment")
    assert "loss 1" in text(app)
    # 3 runs have 20 of 40 steps left at 0.1 s: 6 s. Four evaluations are to come, one of them under
    # inductor, of 200 samples: 25 batches at 0.35 of a step, 0.875 s each. Three runs profile 3
    # steps, guessed at 20 x 0.1 s each: 18 s. The check of inductor's random numbers is guessed at
    # 15 x 0.1 s. Setting up took no time, so neither does the end.
    assert "about 29 s left" in progress_texts(app)
    assert not any(run.cancel_requested for run in folder.run_dirs())
    app.button(key=f"stop-{EXPERIMENT_ID}").click().run()
    assert all(run.cancel_requested for run in folder.run_dirs())


def progress_texts(app: AppTest) -> str:
    return without_links("\n".join(bar.proto.text for bar in app.get("progress")))


def test_the_machine_lists_what_waits_in_the_queue_which_is_moved_held_and_paused(folder: DataDir):
    ids = [f"2026112{day}-101010-000000-aaaa" for day in (1, 2, 3)]
    for experiment_id in ids:
        for label in ("baseline", "control", "inductor"):
            Recording(folder.runs, label, experiment_spec(name="mine"), experiment_id)

    def waiting() -> list[int]:
        return [ids.index(experiment.experiment_id) for experiment in queue_order.startable(folder)]

    assert "waiting in the queue" in progress_texts(opened())
    app = opened("machine", tab="Queue")
    assert "Queue: 0 running, 3 waiting" in text(app)
    links = [unescape(link.proto.label) for link in app.get("page_link")]
    named = [label for label in links if "mine" in label]
    assert named == [f"{day}. mine · 2{day} Nov 2026, 10:10" for day in (1, 2, 3)]
    for button, order in (
        (f"next-{ids[2]}", [2, 0, 1]),
        (f"down-{ids[2]}", [0, 2, 1]),
        (f"up-{ids[1]}", [0, 1, 2]),
        (f"hold-{ids[0]}", [1, 2]),
        (f"release-{ids[0]}", [0, 1, 2]),
        ("pause", []),
    ):
        app.button(key=f"queue-{button}").click().run()
        assert not app.exception and waiting() == order, button
    assert "Go on" in [button.label for button in app.button]
    app.button(key="queue-pause").click().run()
    app.button(key=f"queue-duplicate-{ids[0]}").click().run()
    assert len(queue_order.startable(folder)) == 4


def test_of_a_long_queue_the_first_are_shown_and_more_on_request(folder: DataDir):
    for number in range(22):
        for label in ("baseline", "control"):
            spec = experiment_spec(name="mine", backends=())
            Recording(folder.runs, label, spec, f"20261121-1010{number:02d}-000000-aaaa")

    def shown() -> int:
        return len([link for link in app.get("page_link") if "mine" in link.proto.label])

    app = opened("machine", tab="Queue")
    assert "Queue: 0 running, 22 waiting" in text(app) and shown() == 20
    app.button(key="queue-more").click().run()
    assert not app.exception and shown() == 22
    assert "queue-more" not in [button.key for button in app.button]


def test_launch_says_what_will_run_and_queues_exactly_that(folder: DataDir):
    app = opened("launch")
    assert "3 processes" in text(app)
    assert "120 steps" in text(app)
    assert "The first run of this model on this machine will show how long it takes" in text(app)
    app.text_input(key="quick.batch_size").set_value("16").run()
    assert "60 steps" in text(app)  # 960 samples in batches of 16
    app.button(key="launch").click().run()
    (experiment,) = experiments(folder)
    assert experiment.spec.training.batch_size == 16
    keep(folder, replace(MACHINE, cpp_compiler=None))
    app = opened("launch")
    assert "No C++ compiler found" in text(app) and "apt install g++" in text(app)
    assert app.multiselect(key="quick.backends").value == []


def test_a_database_in_use_or_a_folder_that_cannot_be_made_is_said_and_the_page_stops(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
):
    lock = FileLock(folder.database_file.with_suffix(".duckdb.lock"))
    assert lock.try_acquire()
    with lock:
        app = opened()
    assert "The database is in use." in text(app)
    assert app.button(key="retry_store")
    (folder.path / "file").write_text("in the way")
    monkeypatch.setenv("BREAKEVEN_DATA", str(folder.path / "file" / "data"))
    assert "The data folder cannot be used." in text(opened())


def test_work_that_an_earlier_supervisor_left_gets_a_new_one(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
):
    started: list[DataDir] = []
    monkeypatch.setattr(resources, "ensure_supervisor", started.append)
    record_experiment(folder.runs)
    assert not resources.has_open_work(folder)
    later = "20261122-101010-000000-aaaa"
    for label in ("baseline", "control", "inductor"):
        Recording(folder.runs, label, experiment_id=later)
    Recording(folder.runs, "baseline", experiment_id=later).claim()  # by a process that is gone
    opened()
    assert [started_folder.path for started_folder in started] == [folder.path]


def test_the_store_survives_a_hot_reload_of_the_pages(folder: DataDir):
    store = resources.get_store()
    # Streamlit's watcher drops a changed module and imports it again.
    package, before = sys.modules["breakeven.views.shared"], resources
    del sys.modules["breakeven.views.shared.resources"]
    try:
        again = importlib.import_module("breakeven.views.shared.resources")
        assert again is not before
        assert again.get_store() is store
    finally:
        sys.modules["breakeven.views.shared.resources"] = before
        package.resources = before  # otherwise pages that are imported later take the other module


def test_the_outlook_has_a_place_for_the_time_left_from_the_start_and_says_who_loads_or_compiles():
    now = pd.Timestamp("2026-11-22 10:00:20")
    runs = pd.DataFrame(
        {
            "label": ["baseline", "eager"],
            "state": ["running", "running"],
            "steps_done": [0, 0],
            "phase": ["preparing", "preparing"],
            "folder": ["/gone/baseline", "/gone/eager"],
            "compiling_since": pd.Series([pd.NaT] * 2, dtype="datetime64[ns]"),
        }
    )
    unknown = "20 s; time left: known after the first round"
    said = words.elapsed_and_remaining(runs, "20 s", None)
    assert said == f"{unknown}; torch, model and data are loading"
    runs["phase"] = ["waiting", "training"]
    assert words.elapsed_and_remaining(runs, "20 s", None) == unknown
    runs["compiling_since"] = [pd.NaT, now]
    compiling = "; eager is compiling, the others wait meanwhile"
    assert words.elapsed_and_remaining(runs, "20 s", None) == unknown + compiling
    left = without_links(words.elapsed_and_remaining(runs, "20 s", 90.0))
    assert left == f"20 s; about 1 min 30 s left{compiling}"
    runs = runs.assign(compiling_since=pd.NaT, steps_done=[10, 0], phase=["waiting", "preparing"])
    said = words.elapsed_and_remaining(runs, "20 s", None)
    assert said.endswith("; eager: torch, model and data are loading")
    assert (
        words.elapsed_and_remaining(runs.assign(phase="waiting"), "20 s", 0.4)
        == "20 s; almost done"
    )


def test_the_bar_goes_by_time_never_back_and_is_not_full_while_work_remains(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
):
    spec, me = experiment_spec(num_steps=40, controls=0), ProcessIdentity.from_pid(os.getpid())
    for label in ("baseline", "inductor"):
        Recording(folder.runs, label, spec).claim(me).start().blocks([0.1, 0.1], [1.0] * 20)
    with Store.in_memory(folder) as store:
        runs = queries.list_runs(store, EXPERIMENT_ID)
        begun = runs["started"].min().timestamp()
        shares, left = [], {True: 30.0, False: None}
        monkeypatch.setattr(progress, "remaining_seconds", lambda *_, guess=False: left[guess])
        for seconds, remains in ((10, 30.0), (20, 180.0), (60, 20.0), (90, 0.0)):
            monkeypatch.setattr(progress.time, "time", lambda at=begun + seconds: at)
            left[True] = remains
            shown_progress = progress.progress(store, EXPERIMENT_ID, runs)
            assert shown_progress is not None and shown_progress.elapsed == pytest.approx(seconds)
            assert sum(shown_progress.phases.values()) == pytest.approx(seconds)
            shares.append(shown_progress.share)
    # 10 of 40 s; 20 of 200 s would be less, so it stays; 60 of 80 s; all of it, but it continues.
    assert shares == pytest.approx([0.25, 0.25, 0.75, 0.99])


def test_the_page_of_a_race_has_its_verdict_so_far_and_turns_into_it_with_what_the_time_went_to(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
):
    for least in ("SHORTEST_SHOWN", "SMALLEST_SHARE"):
        monkeypatch.setattr(time_use, least, 0.0)  # however short a phase was
    spec, me = experiment_spec(num_steps=80), ProcessIdentity.from_pid(os.getpid())
    runs = {
        label: Recording(folder.runs, label, spec).claim(me).start()
        for label in ("baseline", "control", "inductor")
    }
    for label, run in runs.items():
        seconds = [0.05] * 7 if label == "inductor" else [0.1] * 8
        run.blocks(seconds, falling_losses(80))
    runs["baseline"].end()
    runs["control"].end()
    app = opened()
    assert "###" not in text(app) and 'class="backend-card' not in text(app)
    app.toggle(key="so-far").set_value(True)
    shown = text(app.run())
    assert not app.exception
    assert 'class="backend-card' in shown and "2.00x" in shown
    assert {element.proto.label for element in app.get("link_button")} >= {"Present", "Report"}
    runs["inductor"].block([0.05] * 10, falling_losses(80)[70:])
    runs["inductor"].end()
    shown = text(app.run())
    assert "### Use inductor for 80 steps" in without_links(shown)
    assert "training steps" in shown


def test_a_run_that_is_to_stop_says_so_until_it_has_stopped_and_its_time_never_goes_back(
    folder: DataDir,
):
    spec, me = experiment_spec(num_steps=80, controls=0), ProcessIdentity.from_pid(os.getpid())
    runs = {
        label: Recording(folder.runs, label, spec).claim(me).start()
        for label in ("baseline", "inductor")
    }
    runs["inductor"].log.append("compile_started", step=0, trigger="DYNAMO", compile_id="0/0")
    runs["inductor"].log.flush()
    shown = text(opened())
    assert words.PHASES["training"] in shown and "compiling" in shown and "stopping" not in shown
    for run in runs.values():
        run.run.request_cancel()
    app = opened()
    shown = text(app)
    assert words.PHASES["training"] not in shown and "stopping once it has compiled" in shown
    assert "stop_circle: stopping]" in shown, "so does the experiment"
    # An exit record that the index has not read yet ends the time, not the next read.
    for run in runs.values():
        run.log.close()
        run.run.write_exit(Exit.now(RunState.CANCELLED, "stopped on request", 75))
    with Store.in_memory(folder) as store:
        ended = queries.list_runs(store, EXPERIMENT_ID)
        spent = sum(time_use.elapsed(store, EXPERIMENT_ID)[0].values())
        shown_last = progress.progress(store, EXPERIMENT_ID, ended)
    assert shown_last is not None and shown_last.elapsed == pytest.approx(spent)
    assert "stop_circle: stopped]" in text(app.run())


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "\N{EN DASH}"),
        (0.42, "0.4 s"),
        (45.2, "45 s"),
        (59.7, "1 min"),
        (200, "3 min 20 s"),
        (599.6, "10 min"),
        (3569.0, "59 min"),
        (3599.6, "1 h 0 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations_read_naturally(seconds: float | None, expected: str):
    assert words.duration(seconds) == expected


def test_a_workload_is_called_by_the_ends_of_its_paths():
    said = words.workload("google/bert", "/home/me/ag_news.csv")
    assert unescape(said) == "google/bert on ag_news.csv"
    said = words.workload("/home/me/code.py:net", "/home/me/code.py:data")
    assert unescape(said) == "code.py:net on code.py:data"


def test_compare_says_what_filled_compile_caches_save(folder: DataDir):
    spec = experiment_spec(num_steps=20, scenario="cache", backends=("inductor",))
    Recording(folder.runs, "baseline", spec).start().blocks([0.7] * 2, [1.0] * 20).end()
    for label, seconds in (("inductor-cold-1", 8.0), ("inductor-warm-1", 2.0)):
        recording = Recording(folder.runs, label, spec).start()
        recording.block([0.5 + seconds] + [0.5] * 9, [1.0] * 10, compiled=[0])
        layers = {"fx_graph": {"hit": 3, "miss": 1, "bypass": 0}}
        recording.log.append("compile_cache", step=10, phase="training", layers=layers)
        recording.block([0.5] * 10, [1.0] * 10).end()
    app = opened(experiment=EXPERIMENT_ID)
    assert "saved 75.0 % of the compile time of **inductor**: 2.00 s instead of 8.00 s" in text(app)
    assert "No interval is claimed from 1 repeat: it takes 6 (`--set cache.repeats=6`)." in text(
        app
    )
    table, pays_off, caches = (entry.value for entry in app.dataframe)
    # 0.2 s saved per step: 8 s are earned in 40 steps, 2 s in 10.
    for cache, steps in (("cold", 40), ("warm", 10)):
        said = f"inconclusive, the saving may be chance; if it is real, {steps} steps"
        assert pays_off[f"Break-even, {cache}"].tolist() == [said]
    assert table[["Compiled", "Shapes"]].values.tolist() == [["iteration", "automatic"]]
    assert table["Compile time saved"].tolist() == ["75.0 %"]
    assert table["Cold over warm"].tolist() == ["4.00x"]
    assert caches["Hits"].tolist() == [3, 3]


def test_compare_says_why_ended_processes_tell_nothing_of_compile_caches(folder: DataDir):
    spec = experiment_spec(
        num_steps=10, scenario="cache", backends=("inductor",), cache=CacheSpec(steps=10)
    )
    labels = ("baseline", "inductor-cold-1", "inductor-warm-1")
    runs = [Recording(folder.runs, label, spec).start() for label in labels]
    for recording, compiled in zip(runs, ([], [0], [0]), strict=True):
        recording.block([0.5] * 10, [1.0] * 10, compiled=compiled)
    assert "No pair of a cold and a warm process has ended yet." in text(opened())
    for recording in runs:
        recording.end()
    shown = text(opened())
    assert "This experiment does not show what filled caches save." in shown
    assert "inductor-cold-1 and inductor-warm-1 finished, but no step came after" in shown
    assert "has ended yet" not in shown


def test_without_a_picked_run_the_page_says_what_to_do(folder: DataDir):
    record_experiment(folder.runs)
    app = opened(tab="Learning")
    app.pills(key="runs").set_value([])
    assert "Pick at least one run above to see its charts." in text(app.run())
