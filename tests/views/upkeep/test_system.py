"""The page Machine, and the line above all pages while something is wrong."""

from collections.abc import Iterator

import pytest

from breakeven.runner.doctor.health_finding import Finding, Health
from breakeven.runner.logs import log, open_log
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.settings import FILE_NAME
from breakeven.views.upkeep import health as strip
from tests.helpers.pages import opened, text

pytestmark = pytest.mark.heavy

WRONG = Finding(
    subject="Supervisor",
    health=Health.WRONG,
    evidence="2 experiments wait <b>",
    remedy="`breakeven queue start`",
)


@pytest.fixture
def logging(folder: DataDir) -> Iterator[None]:
    open_log(folder.logs, "dashboard")
    yield
    open_log(folder.path / "other", "dashboard")


def test_operators_see_health_and_logs_without_secrets(
    folder: DataDir, logging: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_API_KEY", "canary-0123456789")
    log.info("begins with canary-0123456789", extra={"fields": {"experiment": "x\ny"}})
    try:
        raise ValueError("canary-0123456789 broke")
    except ValueError:
        log.exception("a page failed")
    said = text(opened("machine", tab="Health"))
    assert "Data folder" in said and "can be written" in said
    app = opened("machine", tab="Log")
    said = text(app)
    assert "info begins with [masked]" in said and "ValueError: [masked] broke" in said
    assert "experiment=x\\ny" in said and "canary" not in said
    app.segmented_control(key="address.level").set_value("error").run()
    assert "begins with" not in text(app) and "a page failed" in text(app)
    assert app.query_params["level"] == "error", "a reload shows the same lines"


def test_viewers_see_neither_evidence_nor_logs(folder: DataDir, logging: None) -> None:
    log.info("for operators only")
    (folder.path / FILE_NAME).write_text('[serving]\nhostnames = ["bench.example.org"]')
    said = text(opened("machine", tab="Health"))
    assert "Viewing only." in said
    assert "for operators only" not in said and "can be written" not in said


def test_environments_are_listed_with_their_size_and_removed_by_those_who_act(folder: DataDir):
    assert "There are no environments." in text(opened("machine", tab="Environments"))
    for name, needs in {"torch211": "torch==2.11.0\nnumpy\n", "other": "torch\n"}.items():
        made = folder.environments / name
        (made / "bin").mkdir(parents=True)
        (made / "bin" / "python").write_bytes(b"x" * 3_000_000)
        (made / "requirements.txt").write_text(needs)
    settings = folder.path / FILE_NAME
    settings.write_text('[serving]\nhostnames = ["bench.example.org"]')
    for removed in ([], ["remove-environment-other", "remove-environment-torch211"]):
        app = opened("machine", tab="Environments")
        assert "torch211" in text(app) and "torch==2.11.0, numpy" in text(app)
        assert "2 environments** with 5.7 MiB" in text(app)  # 6,000,000 bytes and some
        keys = [button.key or "" for button in app.button]
        assert [key for key in keys if key.startswith("remove-environment-")] == removed
        settings.unlink(missing_ok=True)
    app.button(key="remove-environment-torch211").click().run()
    assert "torch211" not in text(app) and "1 environment" in text(app)
    assert [path.name for path in folder.environments.iterdir()] == ["other"]
    (record,) = [
        line
        for line in (folder.logs / "commands.jsonl").read_text().splitlines()
        if "torch211" in line
    ]
    assert "remove environment" in record


def test_what_is_wrong_stands_above_every_page_only_once_it_lasts(
    folder: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(strip.time, "monotonic", lambda: clock[0])
    looks = [[WRONG], [WRONG], []]
    monkeypatch.setattr(strip, "quick_findings", lambda data_dir: looks.pop(0))
    watch = strip.Watching()

    def after(seconds: float) -> list[str]:
        clock[0] += seconds
        watch.wrong(folder)
        _begun, answer = watch._looks[folder.path]
        if answer is not None:
            answer.result()
        return [finding.subject for finding in watch.wrong(folder)]

    assert after(0.0) == [] and len(looks) == 3  # no other check runs before the first page
    assert after(5.0) == [] and len(looks) == 2  # just now
    assert after(10.0) == [] and len(looks) == 2  # the next check is not due yet
    assert after(30.0) == ["Supervisor"]
    assert after(30.0) == []
    monkeypatch.setattr(strip, "watching", watch)
    monkeypatch.setattr(watch, "wrong", lambda data_dir: [WRONG, WRONG])
    app = opened("definitions")
    assert app.expander[0].label == "Supervisor: something is wrong and 1 more"
    assert "2 experiments wait <b>" in text(app)
