"""The last, smaller batch of an epoch costs no compilation, and compilations anew are recorded."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.experiment import EvaluationSpec
from tests.helpers.loop import FAULTS, NET, experiment, of_kind, run

pytestmark = pytest.mark.usefixtures("fresh_torch")


def train(
    journal: Path, last_batch: Any, backend: str | None = "eager:scope=forward", **changes: Any
) -> list[dict[str, Any]]:
    """Two epochs of 26 samples in batches of 4: 6 full ones, and one of 2."""
    spec = experiment(
        **(NET | changes),
        backends=(backend,) if backend else (),
        evaluation=EvaluationSpec(when="end", compiled=False),
    )
    spec = replace(spec, training=replace(spec.training, last_batch=last_batch))
    label = parse_backend(backend).label if backend else "baseline"
    return run(spec, journal, label)


def losses(events: list[dict[str, Any]]) -> list[float]:
    return [step["loss"] for step in of_kind(events, "step")]


def test_the_last_batch_compiles_nothing_anew_and_has_one_loss_filled_up_or_smaller(
    tmp_path: Path,
) -> None:
    # Without dropout, whose numbers depend on how many samples there are.
    model = replace(NET["model"], dropout="off")
    expected = losses(train(tmp_path / "baseline", "dynamic", backend=None, model=model))
    assert len(expected) == 14  # 7 a epoch instead of 6
    padded = losses(train(tmp_path / "padded", "pad", backend=None, model=model))
    assert padded == pytest.approx(expected, rel=1e-4)
    for last_batch in ("pad", "dynamic"):
        events = train(tmp_path / last_batch, last_batch, model=model)
        assert losses(events) == pytest.approx(expected, abs=1e-4)
        compiled = [step["step"] for step in of_kind(events, "step") if step["compiled"]]
        # The optimizer's state comes into being in the first step and may cost one more.
        assert max(compiled) <= 1
        assert not any(e["recompile_reason"] for e in of_kind(events, "compile_metrics"))
        torch._dynamo.reset()


def test_a_compilation_anew_is_recorded_with_its_step_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CODE_VARIABLE, f"{tmp_path}{os.pathsep}{FAULTS}")
    freeze = tmp_path / "freeze.py"
    freeze.write_text(
        "class Freeze:\n"
        "    def batch_begin(self, state):\n"
        "        if state.step == 6:\n"
        "            state.model.head.bias.requires_grad_(False)\n"
    )
    events = train(tmp_path / "e.jsonl", "drop", callbacks=(f"{freeze}:Freeze",))
    anew = [e for e in of_kind(events, "compile_metrics") if e["recompile_reason"]]
    assert {event["step"] for event in anew} == {6}
    assert any("requires_grad" in event["recompile_reason"] for event in anew)
    assert of_kind(events, "compile_metrics")[0]["guards"] > 0
    steps = of_kind(events, "step")
    assert steps[6]["compiled"] and not steps[5]["compiled"]
