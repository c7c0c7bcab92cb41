"""Reports at their addresses: for many readers, for readers who leave, and for missing
experiments."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.errors import NotExportable
from breakeven.storage.index.store import Store
from breakeven.views.report import endpoint, report_files
from breakeven.views.report import report_files as document
from breakeven.views.report.report_files import MANY, NotWanted, report_of
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec
from tests.helpers.waiting import PATIENCE_SECONDS, awaited

IDS = [f"20261122-0930{number:02d}-123456-7f3b" for number in range(MANY + 1)]


@pytest.fixture
def store(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    spec = experiment_spec(num_steps=20)
    for experiment_id in [EXPERIMENT_ID, *IDS]:
        for arm in spec.arms:
            Recording(data_dir.runs, arm.label, spec, experiment_id).claim().start().end()
    with Store.in_memory(data_dir) as store:
        monkeypatch.setattr(endpoint, "get_store", lambda: store)
        yield store


class Request:
    """A request for a report, and its answer."""

    def __init__(self, requested: str, client: str = "10.0.0.1") -> None:
        self.scope = {
            "type": "http",
            "method": "GET",
            "path": f"/report/{requested}",
            "client": (client, 1),
            "headers": [],
        }
        self.said: list[Any] = []
        self.leaves = asyncio.Event()

    async def receive(self) -> Any:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.said.append(message)

    @property
    def status(self) -> int:
        return int(self.said[0]["status"])

    @property
    def body(self) -> bytes:
        return bytes(self.said[1]["body"])


def served(*requests: Request) -> None:
    async def all_of_them() -> None:
        reports = endpoint.Reports(None)
        await asyncio.gather(
            *(reports(request.scope, request.receive, request.send) for request in requests)
        )

    awaited(all_of_them())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


class Gate:
    """Replaces the function that makes a report: waits at each experiment until the gate opens, and
    records the reached experiments."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.open = threading.Event()

    def __call__(self, store: Store, ids: Sequence[str], suite_runs: Sequence[str], go_on) -> str:
        for experiment_id in ids:
            go_on()
            self.came.append(experiment_id)
            assert self.open.wait(PATIENCE_SECONDS)
        return f"a report of {len(ids)}"


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    monkeypatch.setattr(report_files, "report", made)
    return made


def test_what_is_not_there_tells_no_path(store: Store) -> None:
    request = Request("nothing")
    served(request)
    assert request.status == 404
    assert request.body == b"There is no such experiment or suite run here.\n"


def test_the_same_report_for_all_of_its_readers_is_made_once(store: Store, gate: Gate) -> None:
    requests = [Request(EXPERIMENT_ID) for _ in range(5)]
    gate.open.set()
    served(*requests)
    assert {request.status for request in requests} == {200}
    assert gate.came == [EXPERIMENT_ID]


def test_a_report_that_nobody_waits_for_any_more_is_given_up(store: Store, gate: Gate) -> None:
    left = Request(",".join(IDS))

    async def leave() -> None:
        task = asyncio.create_task(endpoint.Reports(None)(left.scope, left.receive, left.send))
        await until(lambda: bool(gate.came))
        left.leaves.set()
        await asyncio.sleep(0.02)
        gate.open.set()
        await task

    awaited(leave())
    assert gate.came == IDS[:1] and left.status == 404
    with pytest.raises(NotWanted):
        report_of(store, IDS, is_wanted=lambda: False)


@pytest.mark.parametrize("at", range(4))
def test_the_making_of_a_report_is_left_before_each_experiment_is_looked_at_or_written(
    store: Store, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    done: list[str] = []
    monkeypatch.setattr(
        document,
        "content",
        lambda _, experiment_id: done.append(f"look at {experiment_id}") or experiment_id,
    )
    monkeypatch.setattr(
        document,
        "of_experiment",
        lambda _, experiment_id, **__: done.append(f"write {experiment_id}"),
    )
    monkeypatch.setattr(document, "pack", lambda *_: b"")
    calls = iter(range(4))

    def go_on() -> None:
        if next(calls) == at:
            raise NotWanted("gone")

    with pytest.raises(NotWanted):
        document.report(store, ["a", "b"], (), go_on)
    assert done == ["look at a", "look at b", "write a"][:at]


def test_a_long_report_holds_up_no_short_one(store: Store, gate: Gate) -> None:
    """Of two long reports, the second follows the first."""
    first, second = Request(",".join(IDS)), Request(",".join(IDS[::-1]), "10.0.0.2")
    short = Request(EXPERIMENT_ID, "10.0.0.3")

    async def all_three() -> None:
        reports = endpoint.Reports(None)
        tasks = []
        for count, request in ((1, first), (1, second), (2, short)):
            task = asyncio.create_task(reports(request.scope, request.receive, request.send))
            tasks.append(task)
            await until(lambda count=count: len(gate.came) >= count)
            await asyncio.sleep(0.02)
            assert len(gate.came) == count
        gate.open.set()
        await asyncio.gather(*tasks)

    awaited(all_three())
    assert gate.came == [IDS[0], EXPERIMENT_ID, *IDS[1:], *IDS[::-1]]
    assert {first.status, second.status, short.status} == {200}


def test_a_page_has_a_hundred_experiments_at_most(
    store: Store, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "MAX_EXPERIMENTS", 2)
    request = Request(",".join(IDS))
    served(request)
    assert request.status == 404
    assert request.body == b"a page has at most 2 experiments; this asks for 5\n"
    assert gate.came == []
    with pytest.raises(NotExportable):
        report_of(store, IDS, most=2)
