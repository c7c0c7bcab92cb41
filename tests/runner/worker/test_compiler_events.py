"""What the compiler did, at which step and in whose line, as the journal has it."""

import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import FrameSummary
from typing import Any

import pytest
import torch
from torch._dynamo import callback
from torch._dynamo import utils as dynamo_utils

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.project import PACKAGE
from breakeven.runner.protocol.events import read_events
from breakeven.runner.specs.experiment import DataSpec, ModelSpec, TrainingSpec
from breakeven.runner.worker.compiler.observer import (
    MAX_FRAMES,
    PACKAGES,
    TORCH,
    CompileObserver,
    cache_counts,
    compiled_kernels,
    innermost_line,
    users_line,
)
from breakeven.runner.worker.event_log import EventLog
from tests.helpers.loop import experiment, of_kind, run

pytestmark = pytest.mark.usefixtures("fresh_torch")
MINE = FrameSummary("/home/me/model.py", 12, "forward")
LIBRARY = FrameSummary(f"{PACKAGES}transformers/modeling.py", 30, "forward")
TORCHS = FrameSummary(f"{TORCH}nn/functional.py", 7, "linear")
RUNNERS = FrameSummary(f"{PACKAGE}/runner/worker/step/stepping.py", 90, "iterate")
PYTHONS = FrameSummary(f"{sysconfig.get_path('stdlib')}/json/encoder.py", 5, "encode")


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        ([RUNNERS, MINE, LIBRARY, TORCHS], "/home/me/model.py:12"),
        ([RUNNERS, MINE, FrameSummary("/home/me/layer.py", 3, "f"), TORCHS], "/home/me/layer.py:3"),
        ([RUNNERS, LIBRARY, TORCHS], "transformers/modeling.py:30"),
        ([MINE, PYTHONS], "/home/me/model.py:12"),
        ([RUNNERS], "runner/worker/step/stepping.py:90"),
        ([TORCHS], "torch/nn/functional.py:7"),
    ],
)
def test_a_line_is_the_persons_own_where_they_have_one_else_the_librarys(
    stack: list[FrameSummary], line: str
) -> None:
    assert users_line(stack) == line
    assert innermost_line([MINE, TORCHS]) == "torch/nn/functional.py:7"
    assert users_line([]) is None and innermost_line([]) is None


@pytest.fixture
def observed(
    tmp_path: Path,
) -> Iterator[tuple[CompileObserver, Callable[[], list[dict[str, Any]]]]]:
    """An observer, and what reads the events that it reported."""
    log = EventLog(tmp_path / "events.jsonl")
    dynamo_utils.set_compilation_metrics_limit(2)  # torch's own is 64
    observer = CompileObserver(log)

    def events() -> list[dict[str, Any]]:
        observer.report()
        log.flush()
        return read_events(tmp_path / "events.jsonl")[0]

    yield observer, events
    callback.callback_handler.remove_start_callback(observer._on_start)
    callback.callback_handler.remove_end_callback(observer._on_end)
    log.close()


def noisy(x: torch.Tensor) -> torch.Tensor:
    doubled = x * 2
    print("a line that Dynamo cannot trace")  # noqa: T201
    return doubled + 1


def test_a_graph_break_carries_its_step_though_it_is_reported_later(observed: Any) -> None:
    observer, events = observed
    compiled = torch.compile(noisy, backend="eager", dynamic=False)
    for step, size in enumerate((2, 2, 3)):
        observer.step = step
        compiled(torch.zeros(size))
    breaks = of_kind(events(), "graph_break")
    line = noisy.__code__.co_firstlineno + 2
    assert {event["location"] for event in breaks} == {
        f"tests/runner/worker/{Path(__file__).name}:{line}"
    }
    assert [event["step"] for event in breaks] == [0, 2], "the third step recompiles"
    assert all("print" in event["reason"] for event in breaks)


def test_only_layers_of_the_cache_of_which_something_was_counted_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that was there before is no miss; one that came with its graph is a hit."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    leave_kernel(tmp_path, "earlier")
    before = compiled_kernels()
    dynamo_utils.counters.clear()
    assert cache_counts(before) == {}
    dynamo_utils.counters["inductor"]["fxgraph_cache_miss"] = 1
    assert cache_counts(before) == {"fx_graph": {"hit": 0, "miss": 1, "bypass": 0}}
    dynamo_utils.counters["inductor"]["triton_bundler_load_static_autotuner"] = 2
    for name in ("one", "another", "third"):
        leave_kernel(tmp_path, name)
    assert cache_counts(before)["triton"] == {"hit": 2, "miss": 3, "bypass": 0}


def leave_kernel(folder: Path, name: str) -> None:
    """What Triton keeps of a kernel: its binary and stages on the way to it."""
    (folder / f"HASH{name}").mkdir()
    for ending in ("cubin", "ptx", "ttir", "json"):
        (folder / f"HASH{name}" / f"triton_poi_{name}.{ending}").touch()


def test_no_frame_of_a_block_is_lost_however_many_were_compiled(observed: Any) -> None:
    _, events = observed
    names: dict[str, Any] = {}
    for number in range(4):
        exec(f"def f{number}(x): return x + {number}", names)
        torch.compile(names[f"f{number}"], backend="eager")(torch.zeros(1))
    assert len(of_kind(events(), "compile_metrics")) == 4 and MAX_FRAMES >= 1000


OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, labels=None):
        logits = self.linear(x)
        torch.save(logits, "/dev/null")
        return logits * 2

def net(): return Net()

def data():
    part = {"x": torch.randn(16, 4), "labels": torch.arange(16) % 3}
    return {"train": part, "validation": part}
"""


def test_a_graph_break_of_a_model_of_ones_own_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own" / "own.py"
    monkeypatch.setenv(CODE_VARIABLE, str(file.parent))
    file.parent.mkdir()
    file.write_text(OWN)
    spec = experiment(
        task="custom",
        model=ModelSpec(source=f"{file}:net"),
        data=DataSpec(source=f"{file}:data", num_train_samples=16, num_eval_samples=4),
        training=TrainingSpec(batch_size=4, losses=("CrossEntropyLoss",)),
        backends=("eager:scope=forward",),
        block_steps=2,
    )
    events = run(spec, tmp_path / "events.jsonl", "eager-forward")
    breaks = [event for event in of_kind(events, "graph_break") if event["phase"] == "training"]
    line = OWN.splitlines().index('        torch.save(logits, "/dev/null")') + 1
    assert breaks and {event["location"] for event in breaks} == {f"{file}:{line}"}
    assert {event["step"] for event in breaks} == {0}
