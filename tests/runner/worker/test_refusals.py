"""Where Dynamo gave up or broke a graph, the journal names the line of the user's file and the
operator, whatever torch itself reports."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo import callback

from breakeven.runner.protocol.events import read_events
from breakeven.runner.worker.compiler.observer import CompileObserver, without_home
from breakeven.runner.worker.compiler.refusals import operator_in
from breakeven.runner.worker.event_log import EventLog
from tests.helpers.loop import of_kind

pytestmark = [pytest.mark.usefixtures("fresh_torch"), pytest.mark.heavy]
SCRIPT = """
import json
import torch
from torch import nn
import helpers

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.rnn = nn.{cell}(4, 4)
        self.calls = 0

    def part(self, x):
        {part}
        return x

    def forward(self, x):
        {before}
        {loop}
            x = self.part(x)
        return x
"""
LINE = 15  # of `part` in SCRIPT
OUTER = 19  # of `before` in SCRIPT
HELPERS = """
import torch

def counts(x):
    return torch.unique((x > 0).long())
"""
Observed = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def observed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Observed]:
    """Trains a model of the script's form in the copy of a folder; what the observer writes."""
    home = tmp_path / "work"
    home.mkdir()
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.delitem(sys.modules, "helpers", raising=False)
    log = EventLog(tmp_path / "events.jsonl")
    observer = CompileObserver(log, home)

    def events(part: str, before: str = "pass", calls: int = 1) -> list[dict[str, Any]]:
        cell = next((kind for kind in ("LSTM", "GRU") if kind in before), "RNN")
        (home / "helpers.py").write_text(HELPERS)
        before = before.replace(cell, "rnn")
        loop = "if True:" if "rnn" in before else "for _ in range(2):"
        script = SCRIPT.format(part=part, before=before, cell=cell, loop=loop)
        (home / "train.py").write_text(script)
        spec = importlib.util.spec_from_file_location("train", home / "train.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        network = torch.compile(module.Net(), backend="aot_eager")
        for _ in range(calls):
            network(torch.randn(3, 4, requires_grad=True)).sum().backward()
        observer.report()
        log.flush()
        return read_events(tmp_path / "events.jsonl")[0]

    yield events
    callback.callback_handler.remove_start_callback(observer._on_start)
    callback.callback_handler.remove_end_callback(observer._on_end)
    log.close()


@pytest.mark.parametrize(
    ("part", "operator"),
    [
        ("x = x * torch.bincount((x > 0).long().flatten(), minlength=4)[:4]", "aten.bincount"),
        ("x = x * 2 if torch.equal(x, x + 1) else self.linear(x)", "aten.equal"),
        ("x = self.linear(x); print('step')", "print()"),
        ("x = x[torch.nonzero(x)[:, 0]]", "aten.nonzero"),
        ("x = self.linear(x) * x.sum().item()", "Tensor.item()"),
        ("x = x * 2 if x.sum() > 0 else x", "if, on a tensor"),
    ],
)
def test_a_function_given_up_for_a_break_in_a_loop_has_the_line_of_the_break(
    observed: Observed, part: str, operator: str
) -> None:
    events = observed(part)
    (given_up,) = [metrics for metrics in of_kind(events, "compile_metrics") if metrics["failure"]]
    assert given_up["function"] == "forward" and given_up["file"] == "train.py"
    assert (given_up["location"], given_up["operator"]) == (f"train.py:{LINE}", operator)
    breaks = {
        (graph_break["location"], graph_break["operator"])
        for graph_break in of_kind(events, "graph_break")
    }
    assert breaks <= {(f"train.py:{LINE}", operator)}


def test_the_line_may_be_in_another_file_of_the_script(observed: Observed) -> None:
    events = observed("x = x * helpers.counts(x).sum()")
    (given_up,) = [metrics for metrics in of_kind(events, "compile_metrics") if metrics["failure"]]
    assert (given_up["location"], given_up["operator"]) == ("helpers.py:5", "aten._unique2")


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_a_recurrent_layer_is_named_though_torch_gives_no_reason_for_its_break(
    observed: Observed, cell: str
) -> None:
    events = observed("x = x * 2", f"y = self.linear(x) * 2\n        x, _ = self.{cell}(y)")
    (broken,) = of_kind(events, "graph_break")
    assert (broken["location"], broken["operator"]) == (f"train.py:{OUTER + 1}", cell)
    assert broken["reason"].startswith("Attempted to wrap RNN, GRU, or LSTM")


def test_where_nothing_precedes_the_recurrent_layer_its_function_is_given_up(
    observed: Observed,
) -> None:
    events = observed("x = x * 2", "x, _ = self.LSTM(x)")
    (given_up,) = [metrics for metrics in of_kind(events, "compile_metrics") if metrics["failure"]]
    assert (given_up["location"], given_up["operator"]) == (f"train.py:{OUTER}", "LSTM")


def test_at_the_limit_of_compilations_the_line_is_that_of_the_changing_value(
    observed: Observed,
) -> None:
    events = observed("x = self.linear(x) * self.calls", "self.calls += 1", calls=10)
    (given_up,) = [metrics for metrics in of_kind(events, "compile_metrics") if metrics["failure"]]
    assert given_up["failure"].startswith("Dynamo recompile limit exceeded")
    assert given_up["location"] == f"train.py:{OUTER}"
    again = [metrics["recompile_reason"] for metrics in of_kind(events, "compile_metrics")]
    assert [reason for reason in again if reason] and not [
        reason for reason in again if reason and "work/" in reason
    ]


@pytest.mark.parametrize(
    ("reason", "operator"),
    [
        (
            "Skip inlining `torch.compiler.disable()`d function\n  Explanation: Skip inlining "
            "function <function L.forward>",
            "torch.compiler.disable",
        ),
        (
            "Attempted to call function marked as skipped\n\n  Developer debug context: module: "
            "time, "
            "qualname: sleep, skip reason: <missing reason>",
            "time.sleep()",
        ),
        (
            "Unsupported method call\n  Explanation: Dynamo does not know how to trace method "
            "`open` "
            "of class `Path`",
            "Path.open()",
        ),
        (
            "Dynamic shape operator\n  Explanation: Operator `mine.kept.default`'s output shape "
            "depends on input Tensor data.",
            "mine.kept",
        ),
        # Torch 2.6 has other words.
        ("dynamic shape operator: aten.nonzero.default; to enable, set", "aten.nonzero"),
        ("builtin: print [<class 'ConstantVariable'>] False", "print()"),
        ("Something that names nothing", None),
    ],
)
def test_torchs_messages_name_the_operator(reason: str, operator: str | None) -> None:
    assert operator_in(reason) == operator


def test_a_path_of_which_torch_shows_the_end_alone_is_relative_to_the_script() -> None:
    home = Path("/data/runs/20261128-1.inductor/work")
    reason = (
        "0/0: s.k == 0  # s.k+=1  # 1.inductor/work/nets/a.py:7 in forward\n"
        'File "/data/runs/20261128-1.inductor/work/nets/a.py", line 7, in forward'
    )
    assert without_home(reason, home) == (
        '0/0: s.k == 0  # s.k+=1  # nets/a.py:7 in forward\nFile "nets/a.py", line 7, in forward'
    )
    elsewhere = "# x * 2  # site-packages/net.py:3 in forward"
    assert without_home(elsewhere, home) == elsewhere
