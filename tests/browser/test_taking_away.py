"""What leaves the real dashboard and comes back: reported, imported."""

import io
import os
import pickle
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from breakeven.runner.folders.data_dir import DataDir
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment
from tests.helpers.machine import MACHINE, keep
from tests.helpers.serving import served

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
def page(reader: BrowserContext) -> Iterator[Page]:
    page = reader.new_page()
    page.set_viewport_size({"width": 1280, "height": 720})
    yield page
    page.close()


class Planted:
    """Would make a file if anybody unpickled it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def tarred(file: Path, entries: dict[str, bytes], link: str = "") -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for name, content in entries.items():
            told = tarfile.TarInfo(name)
            told.size = len(content)
            archive.addfile(told, io.BytesIO(content))
        if link:
            told = tarfile.TarInfo(link)
            told.type, told.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(told)
    return file


def test_a_report_is_taken_away_and_archives_come_in_of_which_hostile_ones_do_nothing(
    page: Page, address: str, folder: DataDir, tmp_path: Path
) -> None:
    page.goto(f"{address}/experiment?experiment={EXPERIMENT_ID}")
    with page.expect_download() as data:
        page.locator(".st-key-download-break-even-parquet button").click()
    assert data.value.suggested_filename == "race-20261121-7f3a-break-even.parquet"
    page.locator(".st-key-export button").click()
    with page.expect_download() as report:
        page.locator(".st-key-download-report-html button").click()
    report.value.save_as(tmp_path / "race.html")

    came, mark = "20261123-093015-123456-7f3b", tmp_path / "was run"
    runs = DataDir(tmp_path / "elsewhere").runs
    record_experiment(runs, experiment_spec(num_steps=80, name="Came along"), came)
    planted = pickle.dumps(Planted(mark))
    good = {str(file.relative_to(runs)): file.read_bytes()
            for file in runs.rglob("*") if file.is_file()}  # fmt: skip
    good |= {f"{came}.inductor/checkpoints/step-80.pt": planted, "setup.py": b"import os"}
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(20_001):
            archive.writestr(f"{number}", b"")
    with zipfile.ZipFile(tmp_path / "hostile.zip", "w") as archive:
        archive.writestr("../../outside", "x")
    (tmp_path / "picture.zip").write_bytes(b"\x89PNG\r\n" + bytes(100))
    (tmp_path / "tool.exe").write_bytes(b"MZ")
    files = [tarred(tmp_path / "good.tar.gz", good), bomb, tmp_path / "picture.zip",
             tarred(tmp_path / "link.tar.gz", {"a/spec.json": b"{}"}, link="a/events.jsonl"),
             tmp_path / "tool.exe", tmp_path / "race.html", tmp_path / "hostile.zip"]  # fmt: skip
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/?view=Table")
    page.locator(".st-key-import button").focus()
    page.keyboard.press("Enter")
    page.locator("input[type=file]").set_input_files(files)
    expect(page.get_by_text("files are not allowed", exact=False)).to_be_visible()
    for said in (
        "good.tar.gz: 3 new runs",
        "bomb.zip is not taken: it holds more than 20,000 files",
        "picture.zip is nothing that can be imported",
        "is a link or a device",
        "race.html: 3 runs there already",
        "leads out of its folder",
    ):
        expect(page.get_by_text(said)).to_be_visible()
    assert not mark.exists() and not (folder.path.parent / "outside").exists()
    assert not list(folder.path.rglob("setup.py"))
    assert {run.run_id for run in folder.run_dirs() if came in run.run_id} == {
        f"{came}.{label}" for label in ("baseline", "control", "inductor")
    }  # fmt: skip
    page.get_by_role("link", name=f"Open {came}").click()
    expect(page.locator(".backend-cards")).to_be_visible()
    main = page.locator("[data-testid=stMain]")
    assert main.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
