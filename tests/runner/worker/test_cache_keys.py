"""The keys under which torch looks for graphs in its compile caches."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._functorch._aot_autograd import autograd_cache
from torch._inductor.codecache import FxGraphCache

from breakeven.runner.worker.compiler.cache_keys import CacheKeys, parts_of


class KeyKnown(BaseException):
    """Ends a compilation once its key is written, before anything is built."""


class Journal(list[dict[str, Any]]):
    def append(self, kind: Any, **fields: Any) -> None:
        super().append({"kind": kind, **fields})
        if fields["layer"] == "fx_graph":
            raise KeyKnown


def test_the_parts_of_a_key_are_read_from_the_lines_that_torch_tells() -> None:
    lines = [
        "[abcdefghijklmnop] gm: GraphModule()\n\ndef forward(self): pass",
        "[zzzzzzzzzzzzzzzz] inductor_config[triton.cudagraphs]: False",
        "[yyyyyyyyyyyyyyyy] default_dtype: torch.float32",
        "no part",
    ]
    assert parts_of(lines) == {
        "gm": "abcdefghijkl ",
        "inductor_config[triton.cudagraphs]": "zzzzzzzzzzzz False",
        "default_dtype": "yyyyyyyyyyyy torch.float32",
    }


@pytest.mark.heavy
def test_each_look_up_is_written_with_settings_only_where_they_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    for place, name in ((FxGraphCache, "prepare_key"), (autograd_cache, "autograd_cache_key")):
        monkeypatch.setattr(place, name, getattr(place, name))  # which puts it back afterwards
    journal = Journal()
    CacheKeys(journal)  # type: ignore[arg-type]
    for size in (3, 4):
        with pytest.raises(KeyKnown):
            torch.compile(torch.nn.Linear(size, size))(torch.zeros(2, size))
        torch._dynamo.reset()
    assert [event["layer"] for event in journal] == ["aot_autograd", "fx_graph"] * 2
    first, second = journal[1], journal[3]
    assert first["key"] != second["key"]
    assert "inductor_config[max_autotune]" in first["parts"]
    assert not any(name.startswith("inductor_config[") for name in second["parts"])
    assert {"gm", "example_inputs[0]"} <= second["parts"].keys()
