"""From a run with a different result to its cause and the issue for PyTorch, in the real
dashboard."""

import zipfile
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, expect

from breakeven.runner.experiments.queue import experiments
from breakeven.runner.protocol.data_dir import DataDir
from tests.faults.investigations import INVESTIGATION_ID, record_broken, record_investigation
from tests.helpers.journals import EXPERIMENT_ID
from tests.helpers.machine import MACHINE, keep
from tests.helpers.serving import served

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    data_dir = DataDir(tmp_path_factory.mktemp("cause") / "data")
    record_broken(data_dir)
    record_investigation(data_dir)
    keep(data_dir, MACHINE)
    return data_dir


@pytest.fixture(scope="module")
def address(folder: DataDir) -> Iterator[str]:
    with served(folder) as (url, _server):
        yield url


@pytest.mark.slow
def test_a_click_starts_the_search_and_the_answer_is_copied_and_downloaded(
    reader: BrowserContext, address: str, folder: DataDir
) -> None:
    page = reader.new_page()
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(f"{address}/experiment?experiment={EXPERIMENT_ID}")
    page.get_by_role("button", name="The cause", exact=True).click()
    expect(page.get_by_text("Inductor's lowering of aten.relu.default").first).to_be_visible()
    reader.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
    issue = page.get_by_test_id("stCode").first
    issue.hover()
    issue.get_by_role("button", name="Copy to clipboard").click()
    assert page.evaluate("navigator.clipboard.readText()").startswith("# torch.compile: Inductor")
    download = page.get_by_role("button", name="Download program and issue")
    expect(download).to_have_count(1)
    with page.expect_download() as archive:
        download.click()
    with zipfile.ZipFile(archive.value.path()) as files:
        assert files.namelist() == ["issue.md", "repro.py"]

    page.get_by_role("button", name="The run inductor").click()
    page.get_by_role("button", name="Find the cause again").click()
    expect(page.get_by_role("tab", name="Cause")).to_be_visible()
    known = {EXPERIMENT_ID, INVESTIGATION_ID}
    (queued,) = [
        experiment for experiment in experiments(folder) if experiment.experiment_id not in known
    ]
    assert queued.spec.investigates == f"{EXPERIMENT_ID}.inductor"
    expect(page).to_have_url(f"{address}/experiment?experiment={queued.experiment_id}")
    page.close()
