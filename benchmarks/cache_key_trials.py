"""Whether it is named rightly why a start with filled compile caches compiled again.

Run from the project's root: `.venv/bin/python -m benchmarks.cache_key_trials`

For each planted change two processes compile a small model up to the keys under which torch looks
for its graphs: one as it is, one with the change. Nothing is computed, so that it takes seconds.
Prints a table in Markdown: the change, what was said of it, and whether that names it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pandas as pd
import torch
import torch._inductor.codecache as codecache
import torch._inductor.config
from torch import Tensor, nn

from benchmarks.tables import markdown
from breakeven.runner.worker.compiler.cache_keys import CacheKeys
from breakeven.storage.queries.cache_misses import CacheKey, keys_of, why_missed

AS_IT_IS = "as it is"


class KeyKnown(BaseException):
    """Ends a compilation once its key is written."""


class Events(list[dict[str, Any]]):
    """A journal in memory."""

    def append(self, kind: Any, **fields: Any) -> None:
        super().append({"kind": kind, **fields})
        if fields["layer"] == "fx_graph":
            raise KeyKnown


class Net(nn.Module):
    def __init__(self, activation: nn.Module, factor: float) -> None:
        super().__init__()
        self.layer, self.activation, self.factor = nn.Linear(8, 8), activation, factor

    def forward(self, inputs: Tensor) -> Tensor:
        return self.activation(self.layer(inputs)) * self.factor  # type: ignore[no-any-return]


def compiled(
    *,
    activation: type[nn.Module] = nn.ReLU,
    factor: float = 0.1,
    batch: int = 4,
    dtype: torch.dtype = torch.float32,
    dynamic: bool | None = None,
    before: Callable[[], object] = lambda: None,
) -> Events:
    """The look-ups of a model, after whatever changes this process."""
    before()
    events = Events()
    CacheKeys(events)  # type: ignore[arg-type]
    model = Net(activation(), factor).to(dtype)
    with suppress(KeyKnown):
        torch.compile(model, dynamic=dynamic)(torch.zeros(batch, 8, dtype=dtype))
    return events


def set_setting(name: str, value: object) -> Callable[[], object]:
    return lambda: setattr(torch._inductor.config, name, value)


def change_version() -> None:
    codecache.torch_key = lambda: b"another one"


def use_pass_without_name() -> None:
    torch._inductor.config.post_grad_custom_post_pass = lambda graph: None


def reduce_precision() -> None:
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


CHANGES: dict[str, tuple[Callable[[], Events], str]] = {
    "a setting of Inductor": (
        lambda: compiled(before=set_setting("epilogue_fusion", False)),
        "Inductor's setting epilogue_fusion (True, then False)",
    ),
    "the element type": (lambda: compiled(dtype=torch.bfloat16), "then bfloat16"),
    "the batch size": (lambda: compiled(batch=6), "4 x 8 on cpu, then float32 6 x 8"),
    "dynamic shapes": (lambda: compiled(dynamic=True), "of the graph"),
    "a line of the model": (lambda: compiled(activation=nn.GELU), "the graph (code"),
    "a constant of the model": (lambda: compiled(factor=0.2), "the graph (code or constants"),
    "the number of threads": (
        lambda: compiled(before=lambda: torch.set_num_threads(2)),
        "the number of CPU threads (1, then 2)",
    ),
    "torch's default dtype": (
        lambda: compiled(before=lambda: torch.set_default_dtype(torch.float64)),
        "torch's default dtype",
    ),
    "deterministic algorithms": (
        lambda: compiled(before=lambda: torch.use_deterministic_algorithms(True)),
        "torch's deterministic algorithms",
    ),
    "the precision of matrix products": (
        lambda: compiled(before=reduce_precision),
        "the precision of matrix products",
    ),
    "another torch": (lambda: compiled(before=change_version), "the version of torch"),
    "a pass of one's own without a name": (
        lambda: compiled(before=use_pass_without_name),
        "torch does not cache it: Unsupported post grad custom pass",
    ),
    "a variable of torch": (compiled, "Inductor's setting max_autotune (False, then True)"),
    "another cache folder": (compiled, "nothing usable was stored"),
    "AOTAutograd's setting": (
        lambda: compiled(
            before=lambda: setattr(torch._functorch.config, "view_replay_for_aliased_outputs", True)
        ),
        "only what AOTAutograd looks at",
    ),
    "the instructions of the CPU": (compiled, "instructions of the CPU"),
}
"""By planted change: how the second process compiles, and what has to be said."""
VARIABLES = {
    "a variable of torch": {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"},
    "the instructions of the CPU": {"ATEN_CPU_CAPABILITY": "default"},
}
"""Environment variables of the second process."""


def keys_under(change: str) -> list[CacheKey]:
    """The look-ups of a new process."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **VARIABLES.get(change, {})}
    command = [sys.executable, "-m", "benchmarks.cache_key_trials", change]
    ended = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    rows = json.loads(ended.stdout.splitlines()[-1])
    return keys_of(pd.DataFrame(rows, columns=["layer", "key", "reason", "parts"]))


def main() -> None:
    if len(sys.argv) > 1:
        change = sys.argv[1]
        events = compiled() if change == AS_IT_IS else CHANGES[change][0]()
        print(json.dumps([*events]))  # noqa: T201
        return
    first, rows, count = keys_under(AS_IT_IS), [], 0
    for change, (_, expected) in CHANGES.items():
        said = why_missed(first, keys_under(change))
        is_named = expected in ", ".join(said)
        count += is_named
        more = f" and {len(said) - 3} more" if len(said) > 3 else ""
        rows.append(
            {
                "planted": change,
                "said": ", ".join(said[:3]) + more,
                "named": "yes" if is_named else "no",
            }
        )
        sys.stderr.write(f"{rows[-1]}\n")
    sys.stdout.write(f"{markdown(rows)}\n\n{count} of {len(rows)} are named.\n")


if __name__ == "__main__":
    main()
