"""What leaves the real dashboard and comes back: presented, reported, pictured, imported."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from runner.folders.run_dir import DataDir
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment
from tests.helpers.machine import MACHINE, keep
from tests.helpers.serving import served

SECOND = 1000.0
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    data_dir = DataDir(tmp_path_factory.mktemp("away") / "data")
    record_experiment(data_dir.runs, experiment_spec(num_steps=80, name="Race"))
    keep(data_dir, MACHINE)
    return data_dir


@pytest.fixture(scope="module")
def address(folder: DataDir) -> Iterator[str]:
    with served(folder, supervised=False) as (url, _server):
        yield url


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.set_default_timeout(30 * SECOND)
    expect.set_options(timeout=30 * SECOND)
    yield page
    page.close()


def test_compare_is_presented_taken_away_and_brought_in_again(
    page: Page, address: str, folder: DataDir, tmp_path: Path
) -> None:
    page.goto(f"{address}/?experiment={EXPERIMENT_ID}")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Present").click()
    slides = opened.value
    expect(slides.locator("#show h2")).to_have_text("Which torch.compile backend pays off?")
    assert slides.url.startswith(f"{address}/report/{EXPERIMENT_ID}")
    slides.close()

    page.locator(".st-key-take-away button").click()
    with page.expect_download() as report:
        page.locator(".st-key-download-report-html button").click()
    with page.expect_download() as printed:
        page.locator(".st-key-download-report-pdf button").click()
    assert Path(printed.value.path()).read_bytes().startswith(b"%PDF")
    page.keyboard.press("Escape")
    page.locator(".st-key-more-break-even button").click()
    page.get_by_text("Slide", exact=True).click()
    with page.expect_download() as picture:
        page.locator(".st-key-download-break-even-slide-light-svg button").click()
    assert Path(picture.value.path()).read_bytes().startswith(b"<svg")
    with page.expect_download() as data:
        page.locator(".st-key-download-break-even-parquet button").click()
    assert data.value.suggested_filename == "race-20261121-7f3a-break-even.parquet"

    saved = tmp_path / "race.html"
    report.value.save_as(saved)
    hostile = tmp_path / "hostile.zip"
    with zipfile.ZipFile(hostile, "w") as archive:
        archive.writestr("../../outside", "x")
    before = {path.name: path.stat().st_mtime_ns for path in folder.runs.iterdir()}
    page.goto(f"{address}/experiments")
    page.locator(".st-key-import button").click()
    page.locator("input[type=file]").set_input_files([saved, hostile])
    page.get_by_role("button", name="Import them").click()
    expect(page.get_by_text("race.html: 3 runs there already")).to_be_visible()
    expect(page.get_by_text("leads out of its folder")).to_be_visible()
    assert {path.name: path.stat().st_mtime_ns for path in folder.runs.iterdir()} == before
    assert not (folder.path.parent / "outside").exists()
