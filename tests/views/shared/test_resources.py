from concurrent.futures import Future
from dataclasses import replace

import pytest

from breakeven.runner.errors import ProbeFailed
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.machine import capabilities
from breakeven.runner.machine.capabilities import Capabilities
from breakeven.views.shared import resources
from breakeven.views.shared.resources import look_at_machine
from tests.helpers.machine import MACHINE, WITH_GPU, keep
from tests.helpers.waiting import PATIENCE_SECONDS

ONE_GPU = ("gpu proc/driver/nvidia/gpus/0000:01:00.0",)


@pytest.fixture
def asked(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> list[DataDir]:
    """How often torch was asked."""
    found: list[DataDir] = []

    def probe(folder: DataDir) -> Capabilities:
        found.append(folder)
        if len(found) > 1:
            raise ProbeFailed("no")
        return replace(WITH_GPU, seen=ONE_GPU)

    data_dir.make()
    monkeypatch.setattr(resources, "probe", probe)
    monkeypatch.setattr(capabilities, "seen", lambda: ())
    return found


def failure(answer: Future[Capabilities]) -> str:
    return str(answer.exception(timeout=PATIENCE_SECONDS))


def test_a_running_dashboard_asks_anew_when_a_gpu_was_added_and_in_vain_once(
    data_dir: DataDir, asked: list[DataDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(data_dir, replace(MACHINE, seen=()))
    assert look_at_machine(data_dir).result().seen == () and not asked
    monkeypatch.setattr(capabilities, "seen", lambda: ONE_GPU)
    found = look_at_machine(data_dir).result(timeout=PATIENCE_SECONDS)
    assert [one.id for one in found.devices] == ["cpu", "cuda:0"]
    assert look_at_machine(data_dir).result() == found and len(asked) == 1
    monkeypatch.setattr(capabilities, "seen", lambda: (*ONE_GPU, "driver 590.0"))
    assert failure(look_at_machine(data_dir)) == failure(look_at_machine(data_dir)) == "no"
    assert len(asked) == 2
