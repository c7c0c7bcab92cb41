"""Every table and chart shows the same judgement of speed and break-even."""

import json
from pathlib import Path

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.storage import commands, queries
from breakeven.storage.__main__ import main
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.plan import own_plan
from breakeven.storage.index.store import Store
from breakeven.storage.library.catalog import backend_rows, catalog, compute_missing
from breakeven.storage.library.matrix import matrix
from breakeven.storage.side_by_side.ratios import differences
from breakeven.storage.side_by_side.sides import load_sides
from breakeven.storage.terminal.as_json import comparison_json
from breakeven.storage.terminal.lists import wide_list
from breakeven.storage.terminal.report import report
from breakeven.storage.terminal.side_by_side import difference_report
from breakeven.views.charts import speed
from breakeven.views.charts.across_experiments import heat_map
from breakeven.views.comparison import headline, leaderboard
from breakeven.views.library import sides as tables
from breakeven.views.report.content import advice, content
from tests.helpers.device_journals import ON_CUDA, OTHER, SAMPLE
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses
from tests.helpers.pages import opened, text, without_links

SECOND = "20261122-000000-000000-aaaa"
NUM_BLOCKS = 12
# A disturbance of every third block of the control makes a noise floor of a fifth.
NOISY = [0.1, 0.1, 0.12] * (NUM_BLOCKS // 3)


def record(runs: Path, experiment_id: str, step_seconds: float) -> None:
    spec = experiment_spec(num_steps=NUM_BLOCKS * 10, block_steps=10)
    losses = falling_losses(spec.num_steps)
    for label, seconds in (
        ("baseline", [0.1] * NUM_BLOCKS),
        ("control", NOISY),
        ("inductor", [step_seconds] * NUM_BLOCKS),
    ):
        run = Recording(runs, label, spec, experiment_id).claim()
        run.start(environment=ON_CUDA)
        run.blocks(seconds, losses, 3.0 if label == "inductor" else 0.0)
        if label == "inductor":  # Another process was on its device, so its times have a mark.
            run.device(**SAMPLE | {"processes": [OTHER]})
        run.evaluation(0.8).end()


# All rounds agree, but differ no more than equal runs do here: 5 % slower, 5 % faster.
@pytest.mark.parametrize("step_seconds", [0.105, 0.095])
def test_where_speed_is_unsure_no_surface_says_never_or_a_number_of_break_even(
    data_dir: DataDir, step_seconds: float
) -> None:
    for experiment_id in (EXPERIMENT_ID, SECOND):
        record(data_dir.runs, experiment_id, step_seconds)
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, EXPERIMENT_ID)
        result = next(result for result in comparison.results if result.role == "backend")
        assert (result.speed_verdict, result.break_even_verdict) == ("unsure", "unsure")
        numbers = {
            name: result.value(f"break_even_{name}")
            for name in ("steps", "low", "high", "seconds", "epochs")
        }
        assert set(numbers.values()) == {None}, numbers
        assert compute_missing(store, 60.0) == 0
        sides = load_sides(store, [EXPERIMENT_ID, SECOND])
        cell = next(cell for cell in matrix(backend_rows(store), "model", "break_even_steps").cells)
        times = queries.cumulative_times(store, EXPERIMENT_ID)
        row = catalog(store).iloc[0]
        surfaces = {
            "terminal": line(report(comparison), "inductor "),
            "list": wide_list(catalog(store)).splitlines()[2],
            "difference": line(difference_report(sides).partition("Break-even")[2], "inductor"),
            "Compare": leaderboard.html(comparison.results).rpartition("<tr>")[2],
            "Side by side": tables.numbers_html(sides).rpartition("<tr>")[2],
        }
        speeds = tables.speedup_html(sides, differences(sides))
        said_on_sides = difference_report(sides)
    for surface, said in surfaces.items():
        assert "inconclusive" in said and "never<" not in said and " never" not in said, surface
    (break_even,) = (
        run["break_even"]
        for run in json.loads(comparison_json(comparison))["runs"]
        if run["label"] == "inductor"
    )
    assert (break_even["verdict"], break_even["steps"]) == ("unsure", None)
    assert (row["break_even_steps"], row["break_even_verdict"]) == (None, "unsure")
    assert (cell.empty, cell.value) == ("unsure", None)
    for draw in (speed.saved, speed.cumulative):
        names = [entry.name for entry in draw(times, comparison.results).data]
        assert "inductor: inconclusive" in names and "inductor pays off" not in names
    # Side by side, the verdict and the mark of the warning are beside the speedup, as on Compare.
    assert speeds.count(">inconclusive<") >= 2 and speeds.count('class="warning"') == 2
    assert ", inconclusive" in line(said_on_sides, "inductor")
    assert f"A: `breakeven show {EXPERIMENT_ID}` warns of its numbers" in said_on_sides


def test_what_did_not_finish_is_nowhere_the_best_and_nowhere_as_if_it_had(data_dir: DataDir):
    """A backend is faster than all others until it fails late."""
    spec = experiment_spec(num_steps=200, block_steps=10, backends=("inductor", "aot_eager"))
    losses = falling_losses(spec.num_steps)
    for label, seconds, num_blocks in (
        ("baseline", 0.2, 20),
        ("control", 0.2, 20),
        ("aot_eager", 0.15, 20),
        ("inductor", 0.05, 12),
    ):
        run = Recording(data_dir.runs, label, spec).claim()
        run.start(environment=ON_CUDA)
        run.blocks([seconds] * num_blocks, losses[: num_blocks * 10], 3.0)
        run.evaluation(0.8)
        ended = RunState.FINISHED if num_blocks == 20 else RunState.OUT_OF_MEMORY
        run.end(ended, "out of memory")
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, EXPERIMENT_ID)
        assert compute_missing(store, 60.0) == 0
        row, listed = catalog(store).iloc[0], wide_list(catalog(store))
        by_speed = matrix(backend_rows(store), "model", "speedup")
        sides = load_sides(store, [EXPERIMENT_ID])
        beside, said_beside = tables.speedup_html(sides, ()), difference_report(sides)
    verdicts = {
        result.label: result.speed_verdict
        for result in comparison.results
        if result.role == "backend"
    }
    assert verdicts == {"inductor": "faster", "aot_eager": "faster"}
    planned = own_plan(comparison)
    answer, behind = (
        write(comparison, planned) for write in (headline.headline, headline.evidence)
    )
    assert without_links(answer).startswith("Use aot_eager for 200 steps: ")
    assert behind.startswith("**aot_eager** trains at") and "until then) did not finish" in behind
    assert (row["best"], row["verdict"]) == ("aot_eager", "faster")
    assert "aot_eager" in listed and "inductor" not in listed
    heat, *_ = heat_map(by_speed).data
    said = dict(zip(heat.y, (texts[0] for texts in heat.text), strict=True))
    hover = dict(zip(heat.y, (row[0][0] for row in heat.customdata), strict=True))
    assert said == {"aot_eager": "1.33x", "inductor": "4.00x<br>failed"}
    assert "before it ended: out of memory" in hover["inductor"]
    assert "ended" not in hover["aot_eager"]
    assert beside.count("<small>out of memory</small>") == 1
    assert line(said_beside, "inductor").endswith(", faster, out of memory")
    assert line(said_beside, "aot_eager").endswith(", faster")


@pytest.fixture(scope="module")
def raced(kept_folder: DataDir) -> DataDir:
    spec = experiment_spec(num_steps=80, backends=("inductor", "cudagraphs"))
    for label, step, compiling in (
        ("baseline", 0.2, 0.0),
        ("control", 0.2, 0.0),
        ("inductor", 0.1, 3.0),
        ("cudagraphs", 0.05, 18.0),
    ):
        run = Recording(kept_folder.runs, label, spec).claim().start()
        run.blocks([step] * 8, falling_losses(80), compiling).evaluation(0.8).end()
    return kept_folder


@pytest.mark.parametrize(
    ("num_steps", "best", "said"),
    [
        # After 3 s of compiling, 0.1 s a step are 0.1 s less than 0.2 s: 30 steps. After 18 s, 0.05
        # s a step: 120 steps; against the other backend 18 + 0.05 n = 3 + 0.1 n, 300 steps.
        (29, None, "Do not compile for 29 steps: 5.8 s without a compiler, 5.9 s with inductor"),
        (None, "inductor", "Use inductor for 80 steps: 11 s instead of 16 s, compiling included"),
        (299, "inductor", "Use inductor for 299 steps: 33 s instead of 1 min"),
        (301, "cudagraphs", "Use cudagraphs for 301 steps: 33 s instead of 1 min"),
    ],
)
def test_where_the_fastest_step_takes_the_longest_total_all_surfaces_name_the_shorter_total(
    raced: DataDir,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    num_steps: int | None,
    best: str | None,
    said: str,
) -> None:
    monkeypatch.setattr(commands, "EXAMPLES", None)  # importing them takes seconds
    app = opened(
        experiment=EXPERIMENT_ID, **({} if num_steps is None else {"plan": str(num_steps)})
    )
    shown = ["show", "--wide", EXPERIMENT_ID, "--data-folder", str(raced.path)]
    shown += [] if num_steps is None else ["--plan", str(num_steps)]
    main(shown)
    terminal = capsys.readouterr().out
    main([*shown, "--json"])
    assert json.loads(capsys.readouterr().out)["plan"]["best"] == best
    assert terminal.startswith(said)
    page = text(app)
    assert without_links(page).count(said) == 1
    assert page.count('"backend-card best"') == (best is not None)
    assert not best or page.index('"backend-card best"') < page.index('"backend-card"')
    if num_steps is None:
        with Store.in_memory(raced) as store:
            experiment = content(store, EXPERIMENT_ID)
            compute_missing(store, 1e9)
            (row,) = catalog(store).to_dict("records")
        assert (row["best"], row["speedup"]) == ("inductor", pytest.approx(2.0))
        assert row["answer"] == "use inductor for 80 steps"
        assert without_links(experiment.page.headline).startswith(said)
        assert without_links(advice(experiment.comparison)).startswith(
            "Use inductor for 80 steps: "
        )
        assert "from 300 steps (300 to 300) on, use cudagraphs." in advice(experiment.comparison)


def line(text: str, start: str) -> str:
    return next(row for row in text.splitlines() if row.startswith(start))


def test_an_emptied_length_shows_the_best_backend_of_each_length(raced: DataDir) -> None:
    """The plan is not for the experiment's own 80 steps, as at the first visit."""
    app = opened(experiment=EXPERIMENT_ID)
    assert "for 80 steps" in without_links(text(app))
    (length,) = (field for field in app.text_input if field.label == "Length of the training")
    assert length.value == "80"
    length.set_value("").run()
    assert app.query_params["plan"] == ""
    emptied = text(app)
    assert "for 80 steps" not in without_links(emptied)
    assert (
        "Below 30 steps (30 to 30), do not compile; from 30 steps (30 to 30) on, use inductor; "
        "from 300 steps (300 to 300) on, use cudagraphs"
    ) in emptied
    linked = text(opened(experiment=EXPERIMENT_ID, plan=""))
    assert "from 300 steps (300 to 300) on, use cudagraphs; " in linked
