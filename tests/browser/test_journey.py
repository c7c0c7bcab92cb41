"""A person's way through the real app: a real Chromium, a real server, real training on the CPU.
The shortest way, from the form to a table, is the first; the others are slow."""

import csv
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from breakeven.runner.experiments.queue import experiments, find_experiment
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from tests.browser.going import EAGER, go, launch
from tests.helpers.machine import MACHINE, keep
from tests.helpers.serving import served
from tests.helpers.waiting import wait_until
from tests.runner.commands.test_environments import environment

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    data_dir = DataDir(tmp_path_factory.mktemp("browser") / "data")
    data_dir.path.mkdir()
    keep(data_dir, MACHINE)
    return data_dir


@pytest.fixture(scope="module")
def address(folder: DataDir) -> Iterator[str]:
    with served(folder) as (url, _server):
        yield url


@pytest.fixture
def page(reader: BrowserContext) -> Iterator[Page]:
    page = reader.new_page()
    page.set_viewport_size({"width": 1440, "height": 1000})
    yield page
    page.close()


SHORTEST = (
    "eager%3Ascope%3Dforward&quick.debug_backends=&quick.controls=0&quick.evaluate=never"
    "&quick.profile_steps=0"
)
"""No control and nothing but steps; only the forward pass is compiled."""


def test_a_person_launches_compares_and_downloads(
    page: Page, address: str, folder: DataDir, tmp_path: Path
):
    experiment_id = launch(page, address, 160, SHORTEST, "2 processes")

    # No page watches the training, because watching would take longer than training.
    go(page, f"{address}/definitions")
    launched = find_experiment(folder, experiment_id)
    wait_until(lambda: all(run.state.is_final for run in launched.runs))
    go(page, f"{address}/experiment?experiment={experiment_id}")
    expect(page.locator(".backend-cards")).to_be_visible()
    page.get_by_role("tab", name="Runs").click()
    leaderboard = page.locator(".leaderboard table")
    expect(leaderboard).to_be_visible()
    for label in ("baseline", "eager-forward"):
        expect(leaderboard.get_by_text(label, exact=True)).to_be_visible()
    with page.expect_download() as download:
        page.locator(".st-key-download-comparison-csv button").click()
    download.value.save_as(tmp_path / "comparison.csv")
    rows = list(csv.DictReader((tmp_path / "comparison.csv").open()))
    assert [row["label"] for row in rows] == ["baseline", "eager-forward"]
    assert {row["state"] for row in rows} == {"finished"}
    assert all(float(row["step_seconds"]) > 0 for row in rows)
    assert rows[1]["parity"] == "unknown", "no control says how far equal trainings drift apart"


@pytest.mark.slow
def test_a_person_chooses_environments_and_reads_what_an_upgrade_gains(
    page: Page, address: str, folder: DataDir
):
    for name in ("first", "second"):
        environment(folder.environments / name)
        (folder.environments / name / "requirements.txt").write_text("torch\n")
    page.goto(
        f"{address}/launch?quick.train_samples=240&quick.sequence_length=16"
        f"&quick.eval_samples=64&quick.backends={EAGER}&quick.controls=0"
    )
    expect(page.get_by_text("2 processes")).to_be_visible()
    page.get_by_text("All other settings").click()
    page.get_by_role("combobox", name="Find a setting").click()
    page.keyboard.type("environments")
    page.keyboard.press("Enter")
    field = page.get_by_role("combobox", name="Environments", exact=True)
    for name, processes in {"first": 2, "second": 4}.items():
        field.click()
        page.get_by_role("option", name=f"{name}=").click()
        expect(page.get_by_text(f"{processes} processes")).to_be_visible()
    page.keyboard.press("Escape")  # While the options are open, other elements have no role.
    page.get_by_role("button", name="Launch").click()
    expect(page.locator(".backend-cards")).to_be_visible()
    expect(page.get_by_text("second trains this at ")).to_be_visible()
    cells = page.get_by_role("cell", name=re.compile("^eager.?@second$"))
    expect(cells).to_be_visible()  # with a character that keeps an address from becoming a link
    expect(page.get_by_text("second: all recorded versions are the same.")).to_be_visible()


@pytest.mark.slow
def test_a_person_has_a_stopped_experiment_go_on_from_its_checkpoints(
    page: Page, address: str, folder: DataDir
):
    checkpoints = f"{EAGER}&quick.checkpoint_every=20&quick.checkpoints_unit=steps"
    experiment_id = launch(page, address, num_samples=2400, fields=checkpoints)
    # After step 30 there is a checkpoint of step 20.
    expect(page.get_by_text(re.compile(r"([3-9]\d|\d{3}) / 300 steps")).nth(2)).to_be_visible()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Stop it").click()
    page.get_by_role("button", name="Resume").click()
    resumed = next(
        experiment
        for experiment in experiments(folder)
        if experiment.experiment_id == experiment_id
    )
    wait_until(lambda: {run.state for run in resumed.runs} == {RunState.FINISHED})
    expect(page.locator(".backend-cards")).to_be_visible()
    # More controls, which run if losses decide too little, begin after the others have ended.
    stopped = [run for run in resumed.runs if not re.search(r"[.]control-\d", run.run_id)]
    assert len(stopped) == 3
    assert all('"kind":"resumed"' in run.events_file.read_text() for run in stopped)


@pytest.mark.slow
def test_runs_outlive_a_killed_dashboard_and_the_next_one_shows_every_step(
    page: Page, folder: DataDir, tmp_path: Path
):
    data_dir = DataDir(tmp_path / "data")
    data_dir.path.mkdir()
    shutil.copy(folder.capabilities_file, data_dir.capabilities_file)
    with served(data_dir) as (address, server):
        experiment_id = launch(page, address, num_samples=1600)
        expect(page.get_by_text(re.compile(r"[1-9]\d* / 200 steps")).first).to_be_visible()
        server.kill()
        server.wait()
        assert not processes_that_serve(address)
        (experiment,) = experiments(data_dir)
        assert not any(run.state.is_final for run in experiment.runs), "killed in the middle"
        wait_until(lambda: all(run.state.is_final for run in experiment.runs))
        assert {run.state for run in experiment.runs} == {RunState.FINISHED}
    with served(data_dir) as (address, _server):
        page.goto(f"{address}/experiment?tab=Runs&experiment={experiment_id}")
        expect(page.locator(".leaderboard").first).to_be_visible()
        expect(page.get_by_text("finished").first).to_be_visible()


def processes_that_serve(address: str) -> list[str]:
    """Command lines of living processes that serve this address."""
    port = address.rpartition(":")[2]
    commands = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(process.read_bytes().decode(errors="replace"))
        except OSError:
            continue  # it has ended meanwhile
    return [words for words in commands if f"--server.port\0{port}\0" in words]


class Clicks:
    """A reader that counts clicks; typing a path into a clicked field counts none."""

    def __init__(self, page: Page) -> None:
        self.page, self.count = page, 0

    def on(self, role: Any, name: str) -> None:
        self.page.get_by_role(role, name=name, exact=True).first.click()
        self.count += 1


@pytest.mark.slow
def test_from_the_first_page_to_the_verdict_of_ones_own_table_takes_at_most_six_clicks(
    page: Page, address: str, folder: DataDir
):
    table = folder.path / "mine.csv"
    rows = [f"the {word} film number {n},{word}" for n in range(60) for word in ("good", "bad")]
    table.write_text("text,label\n" + "\n".join(rows))
    page.goto(address)
    clicks = Clicks(page)
    clicks.on("link", "Launch")
    clicks.on("radio", "Your own data")
    clicks.on("combobox", "Data")
    page.keyboard.type(str(table))
    page.keyboard.press("Enter")
    expect(page.get_by_text("What will run:")).to_be_visible()
    clicks.on("button", "Launch")
    page.wait_for_url(re.compile(r"/experiment\?.*experiment="))
    expect(page.locator(".backend-cards")).to_be_visible()
    expect(page.locator(".backend-card")).to_have_count(3)
    assert clicks.count <= 6


@pytest.mark.slow
def test_from_the_first_page_to_the_verdict_of_ones_own_script_takes_at_most_six_clicks(
    page: Page, address: str
):
    page.goto(address)
    clicks = Clicks(page)
    clicks.on("link", "Launch")
    clicks.on("radio", "Your own script")
    page.get_by_text("Upload a script").click()
    # A person clicks a button for this and selects a file.
    page.locator("input[type=file]").first.set_input_files(ROOT / "examples/scripts/plain_loop.py")
    clicks.count += 2
    expect(page.get_by_text("What will run:")).to_be_visible()
    clicks.on("button", "Launch")
    page.wait_for_url(re.compile(r"/experiment\?.*experiment="))
    expect(page.locator(".backend-cards")).to_be_visible()
    expect(page.locator(".backend-card").first).to_be_visible()
    expect(page.get_by_text(re.compile("^matches|^inconclusive|^broken")).first).to_be_visible()
    assert clicks.count <= 6
