"""The clock of a script stands still while its run waits for a turn."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from breakeven.runner.protocol.turns import Turn
from breakeven.runner.worker.script.clock import NANOSECONDS, ScriptClock
from tests.helpers.loop import TurnsOnPaper
from tests.runner.worker.script.scripts import NET, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]


class Hands:
    """A clock that somebody sets by hand, in nanoseconds."""

    def __init__(self, clock: ScriptClock) -> None:
        self.now = 100 * NANOSECONDS
        clock._real = {
            name: self._ns if name.endswith("_ns") else self._seconds for name in clock._real
        }

    def _ns(self) -> int:
        return self.now

    def _seconds(self) -> float:
        return self.now / NANOSECONDS

    def pass_seconds(self, seconds: int) -> None:
        self.now += seconds * NANOSECONDS


def test_waiting_is_left_out_of_every_clock_and_all_else_is_not() -> None:
    clock = ScriptClock()
    hands = Hands(clock)
    hands.pass_seconds(5)
    with clock.paused():
        hands.pass_seconds(1000)
        assert clock.read("time") == 105
        hands.pass_seconds(1000)
        assert (clock.read("monotonic"), clock.read("perf_counter_ns")) == (105, 105 * NANOSECONDS)
    assert clock.read("time") == 105
    hands.pass_seconds(3)
    with clock.paused():
        hands.pass_seconds(500)
    hands.pass_seconds(1)
    assert (clock.read("perf_counter"), clock.read("time_ns")) == (109, 109 * NANOSECONDS)


def test_a_thread_of_the_script_never_sees_the_clock_run_backwards() -> None:
    clock = ScriptClock()
    seen: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            seen.append(clock.read("monotonic_ns"))

    thread = threading.Thread(target=watch)
    thread.start()
    while len(seen) < 20_000:
        with clock.paused():
            sum(range(100))
    over.set()
    thread.join()
    assert seen == sorted(seen)


class LongWaits(TurnsOnPaper):
    """Each turn comes after an hour, by a clock that is set by hand."""

    hours = 0

    def wait(self) -> Turn | None:
        type(self).hours += 1
        return super().wait()


BY_THE_CLOCK = (
    NET
    + """
import time
from time import perf_counter
import logging

model = breakeven.compile(model)
begin, counted = time.time(), perf_counter()
for number in range(12):
    breakeven.record("elapsed", time.time() - begin)
    breakeven.record("counted", perf_counter() - counted)
    breakeven.record("logged", logging.makeLogRecord({}).created - begin)
    breakeven.step(made(torch.randn(8, 4)))
"""
)


def test_a_script_sees_no_waiting_and_a_library_sees_the_real_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("time", "perf_counter", "perf_counter_ns"):
        real = getattr(time, name)
        hour = 3600 * (NANOSECONDS if name.endswith("_ns") else 1)
        monkeypatch.setattr(
            time, name, lambda real=real, hour=hour: real() + LongWaits.hours * hour
        )
    monkeypatch.setattr(LongWaits, "hours", 0)
    before = time.time
    ran = run(tmp_path, BY_THE_CLOCK, turns=LongWaits())
    assert time.time is before, "afterwards all see the real time"
    values: dict[str, list[float]] = {"elapsed": [], "counted": [], "logged": []}
    for event in ran.of_kind("value"):
        values[event["name"]].append(event["value"])
    # Blocks of 4 steps: a turn before the first step, and two between later ones.
    assert max(values["elapsed"]) < 3600 and max(values["counted"]) < 3600
    assert values["logged"][-1] > 2 * 3600
    first = 1 + BY_THE_CLOCK.splitlines().index("begin, counted = time.time(), perf_counter()")
    assert ran.workload["clock_reads"] == [f"train.py:{first + line}" for line in (0, 2, 3)]


def test_a_script_that_reads_no_clock_says_so(tmp_path: Path) -> None:
    code = NET + "model = breakeven.compile(model)\nfor number in range(4):\n"
    ran = run(tmp_path, code + "    breakeven.step(made(torch.randn(8, 4)))\n")
    assert ran.workload["clock_reads"] == []


SCHEDULE = (
    NET
    + """
model = breakeven.compile(model)
other = torch.optim.AdamW(model.parameters(), lr=0.5, betas=(0.8, 0.9))
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
for number in range(6):
    loss = made(torch.randn(8, 4))
    schedule.step()
    breakeven.step(loss)
"""
)
AT_THE_START = (
    NET
    + """
model = breakeven.compile(model)
for number in range(6):
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * 0.5 ** (number // 2)
    breakeven.step(made(torch.randn(8, 4)))
"""
)
TENSOR = SCHEDULE.replace(
    "model = b", "optimizer.param_groups[0]['lr'] = torch.tensor(0.1)\nmodel = b"
)


@pytest.mark.parametrize("label", ["baseline", "eager"])
@pytest.mark.parametrize(
    "code", [SCHEDULE, AT_THE_START, TENSOR], ids=["schedule", "at the start", "tensor"]
)
def test_the_learning_rate_of_each_step_is_recorded(tmp_path: Path, code: str, label: str) -> None:
    rates = [event["learning_rate"] for event in run(tmp_path, code, label).of_kind("step")]
    assert rates == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025])


def test_settings_of_each_optimizer_are_recorded_where_inputs_are(tmp_path: Path) -> None:
    inputs: dict[int, Any] = {
        event["step"]: event for event in run(tmp_path, SCHEDULE).of_kind("inputs")
    }
    assert inputs[2]["settings"]["0.lr"] == [0.05]
    assert inputs[4]["settings"]["0.lr"] == [0.025]
    assert inputs[0]["settings"]["1.betas"] == [0.8, 0.9]
    assert inputs[0]["settings"]["0.nesterov"] == [0.0]
    assert not [name for name in inputs[0]["settings"] if "foreach" in name or "fused" in name]


def test_without_an_optimizer_no_rate_is_recorded(tmp_path: Path) -> None:
    code = SCHEDULE[: SCHEDULE.index("model = breakeven")].replace("optimizer = torch", "_ = torch")
    code += (
        "step = breakeven.compile(lambda points: model(points).square().mean())\n"
        "del _\n"
        "for number in range(4):\n    breakeven.step(step(torch.randn(8, 4)).detach())\n"
    )
    ran = run(tmp_path, code)
    assert [event["learning_rate"] for event in ran.of_kind("step")] == [None] * 4
    assert torch.isfinite(torch.tensor(ran.losses)).all()
