"""Candidates of a search."""

from dataclasses import replace

import pytest

from benchmarks.search_trials import search
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.candidates import MOVES, candidates, untried
from breakeven.runner.specs.variants import parse_backend
from breakeven.storage.terminal.setting_words import setting_words

pytestmark = pytest.mark.heavy  # The module of trials imports torch.


@pytest.mark.parametrize(
    ("precision", "allow", "device", "tried"),
    [
        ("float32", ("precision",), "cuda:0", {"tf32"}),
        ("bf16", ("precision",), "cuda:0", {"math_attention"}),
        ("fp16", ("precision",), "cuda:0", {"math_attention"}),
        ("tf32", ("precision",), "cuda:0", set()),
        ("float32", (), "cuda:0", set()),
        ("bf16", (), "cuda:0", set()),
        ("float32", ("precision",), "cpu", set()),
        ("bf16", ("precision",), "cpu", set()),
    ],
)
def test_coarser_rounding_is_tried_on_cuda_if_the_precision_may_change(
    precision: str, allow: tuple[str, ...], device: str, tried: set[str]
) -> None:
    usual = search()
    spec = replace(
        usual,
        devices=(device,),
        training=replace(usual.training, precision=precision),
        tune=replace(usual.tune, allow=allow),
    )
    found = {name for name in ("tf32", "math_attention")
             if any(f"{name}=" in text for text in candidates(spec))}  # fmt: skip
    assert found == tried


def test_larger_batches_are_tried_where_they_are_allowed_and_fit_the_samples() -> None:
    def sizes(allow: tuple[str, ...], **training: int) -> set[str]:
        spec = search()
        spec = replace(spec, data=replace(spec.data, num_train_samples=100),
                       training=replace(spec.training, batch_size=8, **training),
                       speed=replace(spec.speed, batches=1),
                       tune=replace(spec.tune, allow=allow), backends=())  # fmt: skip
        assert ("larger batches" in untried(spec)) == ("batch" not in allow)
        accepted = replace(spec, backends=candidates(spec))
        return {str(one.batch_times) for one in accepted.candidates} - {"1"}

    assert sizes(()) == sizes(("precision",)) == set()
    # 100 samples fill 12 batches of 8, one batch of 64 and none of 128.
    assert sizes(("batch",)) == {"2", "4", "8"}
    # A step of three batches takes 24 samples: 4 steps.
    assert sizes(("batch",), gradient_accumulation=3) == {"2", "4"}


def test_each_setting_of_a_candidate_has_plain_words() -> None:
    for move in MOVES:
        for compiler in move.compilers:
            for value in move.values:
                words = setting_words(parse_backend(f"{compiler}:{move.name}={value}"))
                assert words.count(";") == 1, (move.name, value)
    larger = parse_backend("none:batch_times=8+optimizer=fused")
    assert setting_words(larger) == (
        "not compiled; the optimizer does all its work in one kernel; batches are 8 times as large"
    )
    assert setting_words(parse_backend("aot_eager")) == ""


def test_only_a_script_has_data_loaders() -> None:
    with pytest.raises(InvalidSpec, match="must not have loader_workers except for a script"):
        search(("none:loader_workers=4",))
