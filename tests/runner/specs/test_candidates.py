"""Candidates of a search, and how much of a training each can save at most."""

from dataclasses import replace

import pytest

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.candidates import MOVES, Shares, candidates, potential, untried
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, SpeedSpec, TuneSpec
from breakeven.storage.words.candidate_settings import setting_words

SEARCH = ExperimentSpec(name="search", scenario="tune", backends=(), tune=TuneSpec(steps=10_000))
BASELINE = Arm(label="baseline", role="baseline")
# A step waits for the host for two thirds of its time, as BERT-base with small batches does.
WAITING = Shares(working=0.33, waiting=0.67, compiling=0.1, loading=0.05)


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
    spec = replace(
        SEARCH,
        devices=(device,),
        training=replace(SEARCH.training, precision=precision),
        tune=replace(SEARCH.tune, allow=allow),
    )
    settings = {
        name
        for name in ("tf32", "math_attention")
        if any(f"{name}=" in text for text in candidates(spec))
    }
    assert settings == tried


def test_larger_batches_are_tried_where_they_are_allowed_and_fit_the_samples() -> None:
    def sizes(allow: tuple[str, ...], **training: int) -> set[str]:
        spec = replace(
            SEARCH,
            data=DataSpec(num_train_samples=100),
            speed=SpeedSpec(batches=1),
            training=replace(SEARCH.training, batch_size=8, **training),
            tune=replace(SEARCH.tune, allow=allow),
        )
        assert ("larger batches" in untried(spec)) == ("batch" not in allow)
        accepted = replace(spec, backends=candidates(spec))
        return {str(arm.batch_times) for arm in accepted.candidates} - {"1"}

    assert sizes(()) == sizes(("precision",)) == set()
    # 100 samples fill 12 batches of 8, one batch of 64 and none of 128.
    assert sizes(("batch",)) == {"2", "4", "8"}
    # A step of three batches takes 24 samples: 4 steps.
    assert sizes(("batch",), gradient_accumulation=3) == {"2", "4"}


def test_cuda_graphs_are_not_tried_under_fsdp() -> None:
    """On two H200 (2026-11-28) 51 of 53 steps captured their graphs again."""
    ddp = replace(SEARCH, devices=("cuda:0", "cuda:1"), parallel="ddp")
    fsdp = replace(ddp, parallel="fsdp")
    alone = replace(fsdp, devices=("cuda:0",))  # one device shares its weights with no other
    for spec, captures in ((ddp, True), (fsdp, False), (alone, True)):
        accepted = replace(spec, backends=candidates(spec)).candidates
        assert any(arm.captures_cuda_graphs for arm in accepted) == captures
        assert any(arm.mode == "max-autotune-no-cudagraphs" for arm in accepted)
        assert ("CUDA graphs" in untried(spec)) != captures


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
        replace(SEARCH, backends=("none:loader_workers=4",))


@pytest.mark.parametrize(
    ("name", "origin", "share"),
    [
        ("inductor", "", 1.0),
        ("inductor:mode=reduce-overhead", "", 1.0),
        ("cudagraphs", "", 0.67),
        ("none:optimizer=fused", "", 1.0),
        ("none:tf32=true", "", 0.33),
        ("inductor:cpp_wrapper=true", "inductor", 0.67),
        ("inductor:coordinate_descent_tuning=true", "inductor", 0.33),
        ("inductor:mode=max-autotune-no-cudagraphs", "inductor", 0.33),
        ("inductor:mode=max-autotune", "inductor", 1.0),
        ("inductor:scope=forward", "inductor", 1.0),
        # A compiler, or CUDA graphs, may have made any part slower.
        ("none:optimizer=fused", "inductor:optimizer=fused", 1.0),
        ("cudagraphs", "inductor", 1.0),
        ("inductor", "inductor:mode=reduce-overhead", 1.0),
        # Steps that are replayed from graphs do not wait.
        ("inductor:mode=max-autotune", "inductor:mode=reduce-overhead", 1.0),
        ("inductor:mode=reduce-overhead+cpp_wrapper=true", "inductor:mode=reduce-overhead", 0.0),
        # Coordinate descent alone does not choose among libraries and templates, as the mode does.
        (
            "inductor:mode=max-autotune-no-cudagraphs+coordinate_descent_tuning=true",
            "inductor:coordinate_descent_tuning=true",
            0.33,
        ),
        ("aot_eager", "", 1.0),
        ("none:loader_workers=4", "", 0.05 * 3 / 4),
        # Four processes load in a quarter of the time, eight in half of that.
        (
            "inductor:mode=reduce-overhead+loader_workers=4",
            "inductor:mode=reduce-overhead",
            0.05 * 3 / 4,
        ),
        ("none:loader_workers=8", "none:loader_workers=4", 0.05 / 2),
        ("none:loader_workers=2", "none:loader_workers=4", 0.0),
    ],
)
def test_a_candidates_potential_is_the_share_of_what_it_shortens(
    name: str, origin: str, share: float
) -> None:
    before = parse_backend(origin) if origin else BASELINE
    assert potential(parse_backend(name), before, WAITING) == pytest.approx(share)


def test_a_part_of_unknown_length_counts_as_the_whole_training() -> None:
    assert potential(parse_backend("cudagraphs"), BASELINE, Shares()) == 1
