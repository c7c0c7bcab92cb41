"""Why a later start did not find its graphs in the compile caches."""

from typing import Any

import pandas as pd

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.queries.cache_misses import (
    NOT_STORED,
    OF_AUTOGRAD,
    keys_of,
    why_missed,
)
from tests.helpers.comparisons import compared
from tests.helpers.journals import Recording, experiment_spec, falling_losses

PARTS = {
    "gm": "aa ",
    "example_inputs[0]": "bb TensorMetadata(dtype=torch.float32, shape=torch.Size([4, 8]), "
    "stride=(8, 1), device=device(type='cpu'), layout=torch.strided)",
    "inductor_config[max_autotune]": "cc False",
    "inductor_config[epilogue_fusion]": "dd True",
    "fx_kwargs[get_decomp_fn]": "ee <function at 0x1>",
}


def key(name: str, parts: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    return {"layer": "fx_graph", "key": name, "reason": None, "parts": parts or {}, **fields}


def why(first: list[dict[str, Any]], later: list[dict[str, Any]]) -> list[str]:
    return why_missed(*(keys_of(pd.DataFrame(rows)) for rows in (first, later)))


def test_a_changed_setting_is_named_with_both_values() -> None:
    changed = PARTS | {"inductor_config[max_autotune]": "cx True"}
    assert why([key("a", PARTS)], [key("b", changed)]) == [
        "Inductor's setting max_autotune (False, then True)"
    ]


def test_a_part_of_equal_hash_is_no_change_whatever_it_shows() -> None:
    shown = PARTS | {"fx_kwargs[get_decomp_fn]": "ee <function at 0x2>", "gm": "ax "}
    assert why([key("a", PARTS)], [key("b", shown)]) == [
        "the graph (code or constants of the model or of the step)"
    ]


def test_an_input_is_named_before_the_graph_that_follows_from_it() -> None:
    larger = PARTS["example_inputs[0]"].replace("bb", "bx").replace("[4, 8]", "[6, 8]")
    reasons = why([key("a", PARTS)], [key("b", PARTS | {"example_inputs[0]": larger, "gm": "ax "})])
    assert reasons == [
        "input 1 of the graph (float32 4 x 8 on cpu, then float32 6 x 8 on cpu)",
        "the graph (code or constants of the model or of the step)",
    ]


def test_settings_that_a_key_does_not_repeat_are_those_of_the_key_before() -> None:
    small = {"gm": "ff ", "inductor_config[max_autotune]": "cx True"}
    second = {"gm": "ff "}
    first = [key("a", PARTS), key("b", second)]
    # The second key of the later process changes a setting, of which the first process had none.
    later = [key("a", PARTS), key("x", small)]
    assert why(first, later) == ["Inductor's setting max_autotune (False, then True)"]


def test_equal_keys_were_not_stored_and_other_keys_without_parts_are_of_autograd() -> None:
    assert why([key("a", PARTS)], [key("a", PARTS)]) == [NOT_STORED]
    autograd = {"layer": "aot_autograd"}
    first = [key("k", **autograd), key("a", PARTS)]
    assert why(first, [key("l", **autograd), key("a", PARTS)]) == [OF_AUTOGRAD]


def test_what_torch_does_not_cache_has_its_reason() -> None:
    bypass = {"layer": "fx_graph", "key": None, "reason": "Unsupported pass", "parts": None}
    assert why([bypass], [bypass]) == ["torch does not cache it: Unsupported pass"]


def test_a_comparison_says_whose_cache_missed_at_the_later_start(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=80, controls=0)
    for label in ("baseline", "inductor"):
        run = Recording(data_dir.runs, label, spec).claim().start()
        run.blocks([0.1] * 8, falling_losses(80), 3.0 if label == "inductor" else 0.0)
        if label == "inductor":
            for name, parts in (("a", PARTS), ("b", {"inductor_config[max_autotune]": "cx True"})):
                if name == "b":
                    run.time_more([2.0, 1.0], compiled=[0], caches="kept")
                run.log.append("cache_key", **key(name, PARTS | parts))
                counts = {"hit": 1, "miss": 1, "bypass": 0}
                layers = {"fx_graph": counts} if name == "b" else {"fx_graph": counts | {"hit": 0}}
                run.log.append("compile_cache", step=0, phase="training", layers=layers)
        run.end()
    (missed,) = (note for note in compared(data_dir).warnings if note.kind == "caches missed")
    assert str(missed.words()) == (
        "The later start of inductor found nothing in the caches of Inductor (1 of 2): "
        "Inductor's setting max_autotune (False, then True)."
    )
