"""Callbacks: when they are called, and those that stop training or look at gradients."""

import math
import os
from dataclasses import replace
from itertools import chain
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
from torch import nn

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.specs.experiment import EvaluationSpec, StoppingSpec
from breakeven.runner.specs.training import Metric
from breakeven.runner.worker.callbacks import StopEarly, TrainingState
from tests.helpers.loop import FAULTS, NET, experiment, of_kind, run

pytestmark = pytest.mark.usefixtures("fresh_torch")


def own(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A callback in a user's file that may run; `body` holds its methods."""
    monkeypatch.setenv(CODE_VARIABLE, f"{folder}{os.pathsep}{FAULTS}")
    file = folder / "watching.py"
    file.write_text("class Watch:\n" + indent(dedent(body), "    "))
    return f"{file}:Watch"


EVERY_HOOK = """
    def train_begin(self, state): state.record("train_begin", 0)
    def train_end(self, state): state.record("train_end", 0)
    def epoch_begin(self, state): state.record("epoch_begin", state.epoch)
    def epoch_end(self, state): state.record("epoch_end", state.epoch)
    def batch_begin(self, state): state.record("batch_begin", 0)
    def batch_end(self, state): state.record("batch_end", state.loss)
    def after_backward(self, state): state.record("after_backward", 0)
    def after_optimizer_step(self, state): state.record("after_optimizer_step", 0)
    def evaluation_begin(self, state): state.record("evaluation_begin", 0)
    def evaluation_end(self, state): state.record("evaluation_end", state.scores["loss"])
    def block_end(self, state): state.record("block_end", 0)
"""


def test_every_hook_is_called_in_its_place_and_sees_what_the_journal_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback = own(tmp_path, EVERY_HOOK, monkeypatch)
    training = replace(experiment().training, max_steps=8)
    spec = experiment(**NET, training=training, callbacks=(callback,), block_steps=6)
    events = run(spec, tmp_path / "e.jsonl")
    hooks = ["batch_begin", "after_backward", "after_optimizer_step", "batch_end"]
    steps = [[(name, step) for name in hooks] for step in range(8)]
    evaluated = ["evaluation_begin", "evaluation_end", "block_end"]
    # An epoch has 6 steps, so the second one does not end.
    calls = [(event["name"], event["step"]) for event in of_kind(events, "value")]
    assert calls == [
        ("train_begin", 0),
        ("epoch_begin", 0),
        *chain(*steps[:6]),
        ("epoch_end", 6),
        *[(name, 6) for name in evaluated],
        ("epoch_begin", 6),
        *chain(*steps[6:]),
        *[(name, 8) for name in evaluated],
        ("train_end", 8),
    ]
    seen = {
        name: [e["value"] for e in of_kind(events, "value") if e["name"] == name]
        for name in ("batch_end", "evaluation_end")
    }
    assert seen["batch_end"] == [step["loss"] for step in of_kind(events, "step")]
    assert seen["evaluation_end"] == [e["loss"] for e in of_kind(events, "evaluation")]
    source = of_kind(events, "source")[-1]
    copy = tmp_path / "e.jsonl-folder" / source["file"]
    assert copy.read_text() == (tmp_path / "watching.py").read_text()
    # Elsewhere nobody may have allowed the file to run.
    monkeypatch.setenv(CODE_VARIABLE, str(FAULTS))
    with pytest.raises(Exception, match=f"may not run here.*{CODE_VARIABLE}"):
        run(spec, tmp_path / "f.jsonl")


def test_a_callback_may_change_gradients_under_a_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
    def after_backward(self, state):
        for parameter in state.model.parameters():
            parameter.grad.zero_()
    """
    callback = own(tmp_path, body, monkeypatch)
    training = replace(
        experiment().training, record_gradient_norm=True, max_steps=3, optimizer="SGD"
    )
    spec = experiment(training=training, callbacks=(callback,), **NET)
    norms = [s["gradient_norm"] for s in of_kind(run(spec, tmp_path / "e.jsonl", "eager"), "step")]
    assert norms == [0.0, 0.0, 0.0]


def state(**fields: Any) -> TrainingState:
    return TrainingState(model=nn.Module(), optimizers=[], **fields)


def judge(metric: Metric, values: list[float | None], **stopping: Any) -> int | None:
    """Number of the evaluation, counted from 1, after which training stops."""
    callback = StopEarly(StoppingSpec(**stopping), EvaluationSpec(metric=metric))
    now = state()
    for number, value in enumerate(values, start=1):
        now.scores = {metric: value}
        callback.evaluation_end(now)
        if now.stop_reason is not None:
            return number
    return None


def test_training_stops_when_the_metric_has_not_got_better_for_a_while_or_is_good_enough() -> None:
    # Best at the second; the third and fourth are no better.
    assert judge("loss", [2.0, 1.0, 1.5, 1.0, 0.1], patience=2) == 4
    assert judge("accuracy", [0.1, 0.2, 0.3, 0.4], patience=1) is None
    assert judge("accuracy", [0.1, 0.2, None], patience=1) == 3
    # A gain smaller than `min_delta` is none.
    losses: list[float | None] = [1.0, 0.95, 0.5, 0.45]
    assert judge("loss", losses, patience=1) is None
    assert judge("loss", losses, patience=1, min_delta=0.1) == 2
    assert judge("loss", [2.0, 0.5, 0.1], threshold=0.5) == 2
    assert judge("accuracy", [0.2, 0.95], threshold=0.9) == 2


def test_patience_goes_on_where_a_checkpoint_left_it() -> None:
    spec, evaluation = StoppingSpec(patience=2), EvaluationSpec()
    first, second = StopEarly(spec, evaluation), StopEarly(spec, evaluation)
    first.evaluation_end(state(scores={"loss": 1.0}))
    first.evaluation_end(state(scores={"loss": 1.5}))
    second.load_state_dict(first.state_dict())
    now = state(scores={"loss": 1.2})
    second.evaluation_end(now)
    assert now.stop_reason == "loss was not better than 1 for 2 evaluations"


def test_training_stops_in_the_very_step_whose_loss_is_not_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
    def batch_begin(self, state):
        if state.step == 5:
            next(state.model.parameters()).data.fill_(float("nan"))
    """
    callback = own(tmp_path, body, monkeypatch)
    stopping = StoppingSpec(nonfinite=True)
    spec = experiment(**NET, callbacks=(callback,), stopping=stopping)
    events = run(spec, tmp_path / "e.jsonl")
    steps = of_kind(events, "step")
    # Block 4 to 7 is cut short: step 5 is the last.
    assert [step["step"] for step in steps] == [0, 1, 2, 3, 4, 5] and steps[-1]["loss"] == "NaN"
    (stopped,) = of_kind(events, "stopped")
    assert (stopped["step"], stopped["reason"]) == (6, "the loss is nan")
    assert of_kind(events, "phase")[-1]["phase"] == "done"


def test_gradients_are_described_tensor_by_tensor(tmp_path: Path) -> None:
    training = replace(
        experiment().training, gradient_statistics_every=5, record_gradient_norm=True
    )
    events = run(experiment(training=training), tmp_path / "e.jsonl")
    assert of_kind(events, "workload")[0]["tokens_per_step"] == 64  # 4 texts of 16 tokens
    taken = of_kind(events, "gradient_statistics")
    assert [event["step"] for event in taken] == [0, 5, 10]
    norms = {step["step"]: step["gradient_norm"] for step in of_kind(events, "step")}
    for event in taken:
        # The norm of all gradients together is that of the tensors' norms.
        norm = math.hypot(*(tensor["norm"] for tensor in event["tensors"]))
        assert norm == pytest.approx(norms[event["step"]], rel=1e-5)
        names = [tensor["name"] for tensor in event["tensors"]]
        assert "classifier.weight" in names
        # Most pieces of words do not occur in a batch, so they have no gradient.
        words = event["tensors"][names.index("bert.embeddings.word_embeddings.weight")]
        assert 0.5 < words["zeros"] < 1 and words["largest"] > 0
