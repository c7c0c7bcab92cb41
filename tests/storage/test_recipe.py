"""What to take stands as lines of Python that can be pasted."""

import ast

import pytest

from breakeven.runner.specs.experiment import ExperimentSpec, ModelSpec, TrainingSpec
from breakeven.runner.specs.variants import parse_backend
from breakeven.storage.terminal.recipe import recipe

SPEC = ExperimentSpec(
    name="x", model=ModelSpec(dropout="off"), training=TrainingSpec(optimizer="AdamW")
)


@pytest.mark.parametrize(
    ("backend", "lines"),
    [
        ("inductor:scope=forward", ["model.compile()"]),
        ("inductor:scope=forward+mode=max-autotune", ["model.compile(mode='max-autotune')"]),
        ("aot_eager:scope=forward+dynamic=true",
         ["model.compile(backend='aot_eager', dynamic=True)"]),
        ("inductor:scope=forward+mode=max-autotune+cpp_wrapper=true",
         ["model.compile(options={**torch._inductor.list_mode_options('max-autotune'), "
          "'cpp_wrapper': True})"]),
        ("inductor", ["@torch.compile", "def train_step(batch):",
                      "    ...  # forward, loss.backward(), optimizer.step(), "
                      "optimizer.zero_grad()"]),
        ("inductor:scope=blocks",
         ["for block in model.layers:  # the repeated blocks, whatever the model calls them",
          "    block.compile()"]),
        ("none:optimizer=fused",
         ["optimizer = torch.optim.AdamW(model.parameters(), ..., fused=True)"]),
        ("thunder.dynamo:Compiler:scope=forward",
         ["from thunder.dynamo import Compiler  # if it is a class, backend=Compiler()",
          "model.compile(backend=Compiler)"]),
        ("/my/own.py:go:scope=forward", ["from own import go  # if it is a class, backend=go()",
                                         "model.compile(backend=go)"]),
        ("none:tf32=true", ['torch.set_float32_matmul_precision("high")',
                            "torch.backends.cudnn.allow_tf32 = True"]),
    ],
)  # fmt: skip
def test_each_setting_has_its_line(backend: str, lines: list[str]) -> None:
    text = recipe(SPEC, parse_backend(backend))
    assert text.split("\n") == lines
    ast.parse(text)


def test_dropout_is_drawn_as_it_was_measured() -> None:
    kept = ExperimentSpec(name="x", model=ModelSpec(dropout="keep"))
    assert "fallback_random = True" in recipe(kept, parse_backend("inductor"))
    assert "fallback_random" not in recipe(kept, parse_backend("aot_eager"))


def test_the_baseline_needs_no_line() -> None:
    assert recipe(SPEC, SPEC.variants[0]) == ""
