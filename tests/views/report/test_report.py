"""Exports of a whole experiment: an archive of all its files, and a report in one file, which opens
without a network, presents itself, and can be imported."""

import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Browser, Locator, Page

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Labels
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.errors import NotExportable
from breakeven.storage.exchange import runs_in_report as reports
from breakeven.storage.exchange.imports import import_any
from breakeven.storage.exchange.run_folders import pack
from breakeven.storage.index.store import Store
from breakeven.views.report import report_files
from breakeven.views.report.content import advice, content
from breakeven.views.report.markup import paragraphs
from breakeven.views.report.menu import everything
from breakeven.views.report.report_files import report, report_of
from breakeven.views.shared.definition_links import linked
from breakeven.views.shared.resources import EXAMPLES
from tests.browser.zooming import x_range, zoom
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, record_experiment
from tests.helpers.suites import SuiteRecorder
from tests.helpers.waiting import wait_until

NAME = "race-20261121-7f3a"


@pytest.fixture(autouse=True, scope="module")
def _packed_once() -> Iterator[None]:
    """Packing plotly.js takes a third of the time of a report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_files, "_packed", cache(report_files._packed))
        yield


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """For tests that change nothing."""
    data_dir = DataDir(tmp_path_factory.mktemp("race"))
    record_experiment(data_dir.runs, experiment_spec(num_steps=80, name="Race"))
    return Store.in_memory(data_dir)


@pytest.fixture(scope="module")
def page(race: Store) -> str:
    return report(race, [EXPERIMENT_ID])


def test_an_archive_of_everything_has_each_table_and_the_data_of_each_chart(race: Store) -> None:
    experiment = content(race, EXPERIMENT_ID)
    archive = everything(race, experiment, pictures=())
    assert everything(race, content(race, EXPERIMENT_ID), ()) == archive, "the same one twice"
    made = zipfile.ZipFile(io.BytesIO(archive))
    names = set(made.namelist())
    with pytest.raises(NotExportable, match="Choose fewer experiments"):
        pack(race.data_dir.runs.iterdir(), max_bytes=1_000)
    assert {f"{NAME}/tables/comparison.csv", f"{NAME}/tables/comparison.parquet"} <= names
    assert {f"{NAME}/data/{card.name}.csv" for card in experiment.page.cards} <= names
    assert len(experiment.page.cards) > 6
    losses = pd.read_csv(made.open(f"{NAME}/data/loss.csv"))
    assert losses.groupby("label").size().to_dict() == dict.fromkeys(
        ("baseline", "control", "inductor"), 80
    )
    assert made.read(f"{NAME}/spec.json").decode() == experiment.spec.to_json()
    assert b"inductor" in made.read(f"{NAME}/pytorch/harness-performance-csv.csv")
    assert made.read(f"{NAME}/command.sh").startswith(b"breakeven compare")


@pytest.mark.slow
@pytest.mark.browser
def test_figures_are_in_the_archive_as_pictures(race: Store) -> None:
    experiment = content(race, EXPERIMENT_ID)
    (card,) = [card for card in experiment.page.cards if card.name == "break-even"]
    experiment = replace(experiment, page=replace(experiment.page, cards=[card]))
    made = zipfile.ZipFile(io.BytesIO(everything(race, experiment, ("svg",))))
    pictures = [name for name in made.namelist() if name.startswith(f"{NAME}/charts/")]
    assert len(pictures) == len(card.figures) > 1
    assert all(made.read(name).startswith(b"<svg") for name in pictures)
    assert f"{NAME}/charts/break-even-time-saved.svg" in pictures


def record_scenario(data_dir: DataDir, scenario: str, experiment_id: str = EXPERIMENT_ID) -> None:
    """Twenty steps of each run; if caches are compared, compiling takes 8 s cold and 2 s warm."""
    spec = experiment_spec(num_steps=20, scenario=scenario)
    for arm in spec.arms:
        run = Recording(data_dir.runs, arm.label, spec, experiment_id).claim().start()
        compiles = {"cold": 8.0, "warm": 2.0}.get(arm.cache or "", 0.0)
        run.blocks([0.5, 0.5], [1.0] * 20, compiles).end()


@pytest.mark.parametrize(
    "scenario",
    ["accuracy", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cache", "speed"))],
)
def test_what_compares_something_else_leaves_as_well_and_has_a_report_with_screens(
    data_dir: DataDir, scenario: str
) -> None:
    record_scenario(data_dir, scenario)
    with Store.in_memory(data_dir) as store:
        experiment = content(store, EXPERIMENT_ID)
        made = zipfile.ZipFile(io.BytesIO(everything(store, experiment, pictures=())))
        page = report(store, [EXPERIMENT_ID])
    tables = {name.rpartition(".")[0] for name in made.namelist() if "/tables/" in name}
    assert len(tables) >= 2
    assert 'class="answer"' in screens(page)[0]
    assert any("<h2>What to do</h2>" in screen for screen in screens(page))


def the_data(page: str, folder: Path) -> bytes:
    file = folder / "report.html"
    file.write_text(page)
    return reports.archive_in_report(file)


def test_a_report_is_imported_and_written_again_with_equal_data(
    race: Store, page: str, tmp_path: Path
) -> None:
    other = DataDir(tmp_path / "other")
    (tmp_path / "came.html").write_text(page)
    import_any(other, tmp_path / "came.html")
    with Store.in_memory(other) as theirs:
        assert (
            content(theirs, EXPERIMENT_ID).page.headline
            == content(race, EXPERIMENT_ID).page.headline
        )
        again = report(theirs, [EXPERIMENT_ID])
    assert the_data(again, tmp_path) == the_data(page, tmp_path)
    assert again == page, "the same runs make the same report, whoever writes it"


def screens(page: str) -> list[str]:
    """The content of each screen of a presentation, and what follows up to the next screen."""
    return re.split(r'<(?:section|figure) class="[^"]*\bscreen"', page)[1:]


@pytest.mark.slow
def test_the_largest_recorded_example_takes_less_than_six_megabytes_and_is_explained(
    data_dir: DataDir,
) -> None:
    (baseline,) = (EXAMPLES / "bert-masked-lm-h100").glob("*.baseline")
    with Store.in_memory(data_dir, EXAMPLES) as store:
        page = report(store, [baseline.name.partition(".")[0]])
    assert len(page.encode()) < 6_000_000
    assert "<h2>Why</h2>" in page and "attention left the fused kernel" in page


HOSTILE = "</script><script>alert(1)</script><img src=http://stranger/x onerror=alert(2)>`**[a](b)"


def test_no_text_of_a_stranger_is_an_element_of_a_report(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs, experiment_spec(num_steps=80, name=HOSTILE))
    with Store.in_memory(data_dir) as store:
        page = report(store, [EXPERIMENT_ID])
    shown = re.sub(r'<script type="application/[^>]*>[^<]*</script>', "", page)
    assert "<script>" not in shown and "stranger" in shown and "<img src=http" not in shown
    marks = set(re.findall(r'<script nonce="(\w+)">', shown))
    assert len(marks) == 1 and f"script-src 'nonce-{marks.pop()}'" in page


def test_screens_lead_from_the_answer_to_what_to_do_which_is_that_of_the_plan(
    race: Store, page: str
) -> None:
    """80 steps of 0.2 s, or of 0.1 s after 3 s of compiling: the lines cross at 30 steps."""
    titles = [re.search(r"<(h1|h2|strong)>(.*?)</", screen)[2] for screen in screens(page)]
    assert titles[0] == "Race" and titles[-1] == "What to do"
    assert titles[1:3] == ["Break-even", "Training loss"]
    assert advice(compare(race, EXPERIMENT_ID)) == (
        f"Use inductor for {linked('num_steps', '80 steps')}: {linked('planned_seconds', '11 s')} "
        f"instead of {linked('planned_seconds', '16 s')}, compiling included; it learns the same "
        "thing. Below 30 steps (30 to 30), do not compile."
    )


def test_a_report_of_several_experiments_has_all_runs_and_is_kept_until_something_new_came(
    data_dir: DataDir, tmp_path: Path
) -> None:
    ids = [EXPERIMENT_ID, "20261122-093015-123456-7f3b"]
    for experiment_id in ids:
        record_scenario(data_dir, "accuracy", experiment_id)
    store = Store.in_memory(data_dir)
    both = report(store, ids)
    assert both.count("<article") == 2 and both.count('id="breakeven-runs"') == 1
    names = zipfile.ZipFile(io.BytesIO(the_data(both, tmp_path))).namelist()
    runs = {name.partition("/")[0] for name in names}
    assert runs == {run.run_id for run in data_dir.run_dirs()} and len(runs) == 4
    first = report_of(store, [EXPERIMENT_ID])
    assert report_of(store, [EXPERIMENT_ID]) is first
    inductor = data_dir.run_dir(f"{EXPERIMENT_ID}.inductor")
    with inductor.events_file.open("a") as journal:
        journal.write(
            '{"v": 1, "seq": 9999, "kind": "stopped", "time": 1.0, "step": 20, "reason": "late"}\n'
        )
    inductor.exit_file.touch()
    store.ingest_all()
    assert report_of(store, [EXPERIMENT_ID]) is not first
    data_dir.run_dir(f"{EXPERIMENT_ID}.baseline").write_labels(Labels(name="Ours <b>"))
    store.ingest_all()
    assert "<h1>Ours &#60;b&#62;</h1>" in report_of(store, [EXPERIMENT_ID])


def test_a_report_of_a_suite_run_begins_with_what_it_comes_to(data_dir: DataDir) -> None:
    recorder = SuiteRecorder(data_dir)
    for model in ("BertForMaskedLM", "T5Small"):
        recorder.speed(model, 0.1)
    with Store.in_memory(data_dir) as store:
        page = report_of(store, ["now"])
        assert page == report_of(store, ["now", "now"])
    assert page.index('id="s-now"') < page.index('id="e-')
    assert page.count("<article") == 3
    targets = set(re.findall(r'href="#(e-[^"]*)"', page))
    assert len(targets) == 2 and all(f'id="{target}"' in page for target in targets)
    assert "?experiment=" not in page, "nothing leads to a dashboard that is not there"
    assert len(screens(page)) == 2, "the screens are those of the suite run"


@pytest.fixture(scope="module")
def shown(browser: Browser, page: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A report opened from the disk, without a network, on a projector; each test continues where
    the previous one ended."""
    file = tmp_path_factory.mktemp("written") / "report.html"
    file.write_text(page)
    context = browser.new_context(viewport={"width": 1280, "height": 720}, offline=True)
    shown = context.new_page()
    wrong: list[str] = []
    shown.on("pageerror", lambda error: wrong.append(str(error)))
    shown.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    shown.on(
        "request",
        lambda request: (
            wrong.append(request.url)
            if not request.url.startswith(("file:", "data:", "blob:"))
            else None
        ),
    )
    shown.goto(file.as_uri())
    yield shown
    assert not wrong
    context.close()


@pytest.mark.browser
def test_a_report_opens_without_a_network_and_presents_by_keys_alone(shown: Page) -> None:
    shown.locator(".chart .main-svg").first.wait_for()
    loss = shown.locator('.chart:has-text("Training loss")')
    loss.get_by_role("button", name="Difference").click()
    loss.get_by_text("Difference in loss to the baseline").first.wait_for()
    shown.keyboard.press("p")
    assert shown.locator("#show h1").inner_text() == "Race"
    count = int(shown.locator("#show .steps span").inner_text().partition("/ ")[2])
    for number in range(2, count + 1):
        shown.keyboard.press("ArrowRight")
        assert shown.url.endswith(f"#present-{number}")
        if shown.locator("#show .plot").count():
            shown.locator("#show .plot .main-svg").first.wait_for()
        screen = shown.locator("#show > .screen")
        fits = screen.evaluate("element => element.scrollHeight <= element.clientHeight + 1")
        assert fits, f"{screen.inner_text()[:80]} is cut off at 1280 x 720"
    assert shown.locator("#show h2").inner_text() == "What to do"
    shown.keyboard.press("ArrowLeft")
    shown.keyboard.press("Home")
    assert shown.locator("#show .steps span").inner_text() == f"1 / {count}"
    shown.keyboard.press("Escape")
    assert shown.locator("#show").is_hidden()
    assert shown.locator("main .screen").count() == count, "every screen is back in the report"


@pytest.mark.browser
def test_zooming_one_chart_zooms_those_over_the_same_steps_and_no_other(shown: Page) -> None:
    charts = [shown.locator(f'.chart[data-chart$="-{name}"]') for name in ("break-even", "loss")]
    for chart in charts:
        chart.scroll_into_view_if_needed()
        chart.locator(".main-svg").first.wait_for()
    paid, loss = charts
    assert zoom(paid)[0] > 10
    expect_range(loss, x_range(paid))
    loss.get_by_role("button", name="By time").click()
    loss.get_by_text("Training time").first.wait_for()
    before = x_range(loss)
    assert before[0] < 1, "time is no step"
    paid.locator(".nsewdrag").first.dblclick()
    loss.get_by_role("button", name="By step").click()
    shown.wait_for_timeout(200)
    expect_range(loss, x_range(paid))


def expect_range(chart: Locator, expected: list[float]) -> None:
    wait_until(lambda: x_range(chart) == pytest.approx(expected, abs=1.5))


def test_definitions_read_as_they_are_written() -> None:
    said = "With *margin* = max(2 %, `x*y`):\n\n* **faster**: a * b < c;\n* [why](why.md)"
    assert paragraphs(said) == (
        "With <em>margin</em> = max(2 %, <code>x*y</code>):<br><br>"
        "\N{BULLET} <strong>faster</strong>: a * b &lt; c;<br>\N{BULLET} why"
    )
