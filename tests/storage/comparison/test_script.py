"""What is said of a script's runs: whether they saw the same, and did as much."""

from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, ScriptSpec
from breakeven.storage.terminal.report import report
from breakeven.storage.words.parity import parity_words
from tests.helpers.comparisons import compared, minor_warnings_of, warnings_of
from tests.helpers.journals import Recording, falling_losses

pytestmark = pytest.mark.heavy

SPEC = ExperimentSpec(
    name="mine",
    task="script",
    model=ModelSpec(source="script:/home/me/train.py"),
    data=DataSpec(source="script"),
    backends=("inductor",),
    block_steps=10,
)
LOSSES = falling_losses(80)
ALIKE = {0: "a", 1: "b", 10: "c", 20: "d"}
TORCH = {"torch": "x", "python": "y", "cuda": "z"}


def record(
    data_dir: DataDir,
    label: str,
    inputs: dict[int, str] | None = None,
    *,
    offset: float = 0.0,
    steps: int = 80,
    compile_seconds: float = 0.0,
    random: dict[str, str] | None = None,
    offset_from: int = 0,
    rates: dict[int, float] | None = None,
    **workload: Any,
) -> None:
    """A run of 80 steps; `inputs` are hashes by step, `rates` learning rates other than 0.1. Losses
    are higher by `offset` from the step `offset_from` on."""
    run = Recording(data_dir.runs, label, SPEC).claim().start(num_steps=steps, **workload)
    for step, sha256 in (ALIKE if inputs is None else inputs).items():
        settings = {"0.lr": [(rates or {}).get(step, 0.1)], "0.betas": [0.9, 0.99]}
        run.log.append(
            "inputs", step=step, sha256=sha256, random=random or TORCH, settings=settings
        )
    losses = [loss + offset * (step >= offset_from) for step, loss in enumerate(LOSSES[:steps])]
    run.blocks([0.1] * (steps // 10), losses, compile_seconds)
    run.end()


def judged(
    data_dir: DataDir,
    inductor: dict[str, Any],
    control: dict[str, Any] | None = None,
    **baseline: Any,
) -> tuple[str, str]:
    """Verdict of a backend, and why, beside a control that rounds otherwise."""
    record(data_dir, "baseline", **baseline)
    record(data_dir, "control", **{"offset": 1e-5, **(control or {})})
    record(data_dir, "inductor", **inductor)
    parity = compared(data_dir).results[-1].parity
    return parity.verdict, str(parity_words(parity))


UNKNOWN: dict[str, Any] = {"inputs": {}}


@pytest.mark.parametrize(
    ("baseline", "control", "backend", "verdict"),
    [
        ({}, {}, {"random": {**TORCH, "cuda": "elsewhere"}, "offset": 1e-5}, "holds"),
        (UNKNOWN, UNKNOWN, {**UNKNOWN, "offset": 0.5}, "broken"),
        # A difference of 0.08 % of the first loss: bf16 rounds so, float32 does not.
        ({"precision": "bf16"}, {}, {"offset": 0.0015}, "holds"),
        ({"precision": "float32"}, {}, {"offset": 0.0015}, "broken"),
        ({"precision": "odd"}, {}, {"offset": 0.0015}, "broken"),
    ],
    ids=[
        "compiled code draws in its own way",
        "nobody knows what was given",
        "bf16",
        "float32",
        "a precision that nobody knows",
    ],
)
def test_what_speaks_neither_for_nor_against_a_backend_leaves_its_losses_to_judge(
    data_dir: DataDir,
    baseline: dict[str, Any],
    control: dict[str, Any],
    backend: dict[str, Any],
    verdict: str,
) -> None:
    assert judged(data_dir, {"compile_seconds": 1.0, **backend}, control, **baseline)[0] == verdict


@pytest.mark.parametrize(("steps_done", "verdict"), [(2, "broken"), (3, "unknown")])
def test_an_evaluation_counts_up_to_the_last_step_with_the_same_data(
    data_dir: DataDir, steps_done: int, verdict: str
) -> None:
    """Steps 0 and 1 had the same data, so a model is judged after two steps, and not after more."""
    for label, loss in (("baseline", 1.5), ("control", 1.5), ("inductor", 9.0)):
        run = Recording(data_dir.runs, label, SPEC).claim().start(num_steps=80)
        inputs = {**ALIKE, 10: "other"} if label == "inductor" else ALIKE
        for step, sha256 in inputs.items():
            run.log.append("inputs", step=step, sha256=sha256, random=TORCH, settings={})
        run.blocks([0.1] * 8, LOSSES, 1.0)
        about = {"epoch": 0, "split": "validation", "compiled": False, "num_samples": 200}
        run.log.append("evaluation", step=steps_done, loss=loss, accuracy=None, metrics={}, **about)
        run.end()
    parity = compared(data_dir).results[-1].parity
    assert parity.verdict == verdict


def test_an_evaluation_of_nobody_knows_how_many_samples_breaks_nothing(data_dir: DataDir) -> None:
    for label, offset in (("baseline", 0.0), ("control", 1e-5), ("inductor", 1e-5)):
        run = Recording(data_dir.runs, label, SPEC).claim().start(num_steps=80)
        run.blocks([0.1] * 8, [loss + offset for loss in LOSSES])
        run.log.append(
            "evaluation",
            epoch=0,
            step=80,
            split="validation",
            compiled=False,
            loss=1.0,
            metrics={},
            accuracy=None,
        )
        run.end()
    assert compared(data_dir).results[-1].parity.verdict == "holds"


def test_a_backend_that_saw_other_data_is_not_judged(data_dir: DataDir) -> None:
    other = {**ALIKE, 10: "other", 20: "other still"}
    verdict, why = judged(data_dir, {"inputs": other, "offset": 0.5, "offset_from": 2})
    assert verdict == "unknown"
    assert why.startswith(
        "the runs saw different data from a step between step 1 and step 10 on. The "
        "script's data may depend on the model's answers, as in reinforcement learning"
    )
    assert why.index("reinforcement learning") < why.index("all random generators had equal")


SLOWER = {10: 0.05, 20: 0.02}
"""A schedule by the clock in a run that compiled for a while."""


def test_a_backend_that_trained_with_other_learning_rates_is_not_judged(data_dir: DataDir) -> None:
    backend = {"rates": {10: 0.06, 20: 0.03}, "offset": 0.5, "offset_from": 10}
    at = {"clock_reads": ["train.py:22"]}
    verdict, why = judged(data_dir, backend, {"rates": SLOWER}, rates=SLOWER, **at)
    assert verdict == "unknown"
    assert why == (
        "the learning rates differ from a step between step 1 and step 10 on: the script reads the "
        "clock (train.py:22), so they may follow the speed of each run. Let schedules follow the "
        "step instead"
    )


@pytest.mark.parametrize(
    ("unlike", "names"),
    [
        ({"rates": {0: 0.2}}, "the learning rates differ from step 0 on"),
        ({"inputs": {0: "z"}}, "the runs saw different data from step 0 on"),
    ],
)
def test_what_an_arm_itself_changes_is_not_blamed_on_the_clock(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, unlike: dict[str, Any], names: str
) -> None:
    arms: dict[str, Any] = {"backends": (), "named_arms": ("inductor=inductor --lr 0.2",)}
    monkeypatch.setattr(f"{__name__}.SPEC", replace(SPEC, **arms))
    verdict, why = judged(data_dir, unlike, clock_reads=["train.py:22"])
    assert verdict == "as good"
    assert why.startswith(f"{names}: the arm changes the command (--lr 0.2); after as many samples")
    assert "clock" not in why


def test_two_runs_without_a_compiler_that_have_other_learning_rates_are_named_first(
    data_dir: DataDir,
) -> None:
    verdict, why = judged(data_dir, {"offset": 0.5, "offset_from": 20}, {"rates": {20: 0.02}})
    assert verdict == "unknown"
    assert why == (
        "even in equal runs, the learning rates differ from a step between step 10 and "
        "step 20 on: they may follow the clock (datetime), the loss or chance. Let schedules "
        "follow the step instead"
    )


@pytest.mark.parametrize("unlike", ["data", "rates"])
def test_a_fault_before_runs_became_unlike_has_no_excuse(data_dir: DataDir, unlike: str) -> None:
    """Wrong gradients make losses rise, whereupon a schedule lowers the rate, or other samples are
    chosen."""
    backend: dict[str, Any] = {"rates": {20: 0.02}}
    if unlike == "data":
        backend = {"inputs": {**ALIKE, 20: "other"}}
    verdict, why = judged(data_dir, {**backend, "offset": 0.5, "offset_from": 5})
    assert verdict == "broken" and why.startswith("the loss leaves the band at step 5")


def test_what_a_script_without_losses_lacks_is_named(data_dir: DataDir) -> None:
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label, SPEC).claim().start(num_steps=80)
        run.blocks([0.1] * 8, [None] * 80)  # type: ignore[list-item]
        run.end()
    parity = compared(data_dir).results[-1].parity
    assert parity.verdict == "unknown"
    assert str(parity_words(parity)).startswith("no loss was recorded: pass it to breakeven.step")


def test_runs_of_other_lengths_say_where_the_script_reads_the_clock(data_dir: DataDir) -> None:
    record(data_dir, "baseline", clock_reads=["train.py:7", "net.py:3"])
    record(data_dir, "control", offset=1e-5, clock_reads=["train.py:7"])
    record(data_dir, "inductor", steps=60, compile_seconds=1.0, clock_reads=["train.py:7"])
    lengths, *_ = warnings_of(compared(data_dir))
    assert "The script reads the clock (train.py:7, net.py:3): a time budget" in lengths


@pytest.mark.parametrize(("steps", "verdict"), [(30, "unknown"), (40, "holds")])
def test_a_script_that_ends_before_half_of_the_baselines_steps_is_not_called_the_same(
    data_dir: DataDir, steps: int, verdict: str
) -> None:
    actual, why = judged(data_dir, {"offset": 1e-5, "steps": steps, "compile_seconds": 1.0})
    assert actual == verdict
    assert ("but it ended after 30 of the baseline's 80 steps" in why) == (verdict == "unknown")


def test_where_each_step_was_looked_at_the_first_other_one_is_known(data_dir: DataDir) -> None:
    elsewhere = {**TORCH, "python": "elsewhere"}
    _, why = judged(data_dir, {"inputs": {**ALIKE, 1: "other"}, "random": elsewhere})
    assert why.startswith("the runs saw different data from step 1 on. ")
    clock = "seeds itself by the clock: the states of python differed"
    assert why.index("reinforcement learning") < why.index(clock)


def test_a_script_that_never_repeats_itself_is_blamed_before_any_backend(data_dir: DataDir) -> None:
    by_the_clock = {"inputs": {**ALIKE, 20: "by the clock"}, "offset": 0.3}
    verdict, why = judged(data_dir, {"offset": 0.4}, by_the_clock)
    assert verdict == "unknown"
    assert why.startswith("even two equal runs saw different data")


def test_other_numbers_of_steps_and_other_code_are_named(data_dir: DataDir) -> None:
    record(data_dir, "baseline", code_sha256="one")
    record(data_dir, "control", offset=1e-5, code_sha256="one")
    record(data_dir, "inductor", steps=60, code_sha256="other", compile_seconds=1.0)
    lengths, code, *_ = warnings_of(compared(data_dir))
    assert "different numbers of steps: 80 (baseline, control), 60 (inductor)" in lengths
    assert code.startswith("The runs differ in the script and its files: one (baseline, control)")


def test_operations_and_precision_of_the_baseline_hold_of_all(data_dir: DataDir) -> None:
    device = {"device_name": "NVIDIA H100 80GB HBM3"}
    facts = {"precision": "bf16", "flops_per_step": 4.947e13}
    record(data_dir, "baseline", environment=device, **facts)
    record(data_dir, "inductor", environment=device, compile_seconds=3.0)
    measured_by_label = {result.label: result.measured for result in compared(data_dir).results}
    assert measured_by_label["inductor"].flops_per_second == pytest.approx(
        4.947e14
    )  # steps of 0.1 s
    assert measured_by_label["inductor"].peak_share == pytest.approx(0.5)  # of 989.4 TFLOPS
    unknown = DataDir(data_dir.path / "unknown")
    record(unknown, "baseline", environment=device, **facts | {"precision": None})
    (measured,) = (result.measured for result in compared(unknown).results)
    assert measured.flops_per_second is not None and measured.peak_share is None


def test_operations_that_nobody_counts_are_named_and_long_notes_cut(data_dir: DataDir) -> None:
    noted = {"notes": ["y" * 3000 + "\u202e"]}
    backend = {**noted, "offset": 1e-5, "compile_seconds": 3.0}
    parity = judged(data_dir, backend, noted, **noted, uncounted=["lstm", "\u202eevil"])
    assert parity[0] == "holds"
    comparison = compared(data_dir)
    assert report(comparison).startswith("mine: train.py, cpu\n")
    long, operations = minor_warnings_of(comparison)
    assert len(long) == 300 and long.endswith("y ...")
    assert "there is no FLOP formula for lstm, \\u202eevil" in operations
    assert warnings_of(comparison) == ()


def test_a_restarted_script_has_the_last_attempts_latency(data_dir: DataDir) -> None:
    record(data_dir, "baseline")
    run = Recording(data_dir.runs, "inductor", SPEC).claim().start(num_steps=80)
    run.blocks([0.1] * 3, LOSSES[:30], 9.0)
    run.resume(0).blocks([0.1] * 8, LOSSES, 3.0)
    run.end()
    assert compared(data_dir).results[-1].measured.compile_seconds == pytest.approx(3.0)


def record_sizes(data_dir: DataDir, label: str, sizes: list[int | None], seconds: float) -> None:
    """A run of blocks of ten steps, each of which worked on so many samples."""
    run = Recording(data_dir.runs, label, SPEC).claim().start(num_steps=80, samples_per_step=55)
    for number, size in enumerate(sizes):
        losses = [2.0 - 0.1 * number] * 10
        run.block([seconds] * 10, losses, samples=None if size is None else 10 * size)
    run.end()


def test_rounds_of_different_amounts_are_not_compared(data_dir: DataDir) -> None:
    """Of 14 rounds the first never counts; in 4 of the others inductor had 54 samples a step where
    the baseline had 56: as many rounds in which it looks three times as fast as it is."""
    alike: list[int | None] = [54, 56] * 5
    record_sizes(data_dir, "baseline", [*alike, 56, 56, 56, 56], 0.2)
    record_sizes(data_dir, "control", [*alike, 56, 56, 56, 56], 0.2)
    run = Recording(data_dir.runs, "inductor", SPEC).claim().start(num_steps=80)
    for number, size in enumerate([*alike, 54, 54, 54, 54]):
        seconds = 0.1 if number < 10 else 0.03
        run.block([seconds] * 10, [2.0 - 0.1 * number] * 10, samples=10 * (size or 0))
    run.end()
    comparison = compared(data_dir)
    inductor = comparison.results[-1]
    assert inductor.speedup is not None
    assert (inductor.speedup.n, inductor.speedup.median) == (9, 2)
    assert (
        "The script gave runs other amounts of work than the baseline: inductor in 4 rounds (54 "
        "samples a step instead of 56 in the first of them). These rounds are not compared. Have "
        "every run take the same samples."
    ) in warnings_of(comparison)


@pytest.mark.parametrize(
    ("arm", "tokens", "num_rounds"),
    [
        ("mine=--multiple 64", 64, 7),  # as many samples, padded further
        ("mine=--multiple 64", 48, None),  # shorter samples
        ("mine=inductor", 64, None),  # A compiler gets the same batches.
    ],
)
def test_an_arm_that_pads_the_same_samples_further_is_compared(
    data_dir: DataDir, arm: str, tokens: int, num_rounds: int | None
) -> None:
    """Blocks of ten steps of 8 samples with 56 tokens each; the first never counts."""
    spec = replace(SPEC, backends=(), named_arms=(arm,), script=ScriptSpec(steps=80))
    for label, length in (("baseline", 56), ("control", 56), ("mine", tokens)):
        run = Recording(data_dir.runs, label, spec).claim().start(num_steps=80, samples_per_step=8)
        for number in range(8):
            losses = LOSSES[10 * number : 10 * number + 10]
            run.block([0.1] * 10, losses, samples=80, tokens=80 * length)
        run.end()
    speedup = compared(data_dir).results[-1].speedup
    assert (speedup and speedup.n) == num_rounds


def test_runs_that_never_worked_on_the_same_amount_have_no_speedup(data_dir: DataDir) -> None:
    """As many samples in all, and never in the same round."""
    record_sizes(data_dir, "baseline", [54, 56] * 4, 0.2)
    record_sizes(data_dir, "inductor", [56, 54] * 4, 0.1)
    comparison = compared(data_dir)
    inductor = comparison.results[-1]
    assert (inductor.speedup, inductor.break_even, inductor.speed_verdict) == (None, None, "unsure")
    warnings = warnings_of(comparison)
    assert any(
        "inductor in 7 rounds (54 samples a step instead of 56 in" in line for line in warnings
    )
    assert not any("Train for more steps" in line for line in warnings)


def test_throughput_is_of_the_samples_of_the_timed_steps(data_dir: DataDir) -> None:
    """The first block of 10 never counts: the others have 30 and 50 samples a step. Runs that tell
    no samples are compared as they are."""
    record_sizes(data_dir, "baseline", [100, 30, 50], 0.2)
    assert compared(data_dir).results[0].measured.samples_per_second == pytest.approx(40 / 0.2)
    silent = DataDir(data_dir.path / "silent")
    record_sizes(silent, "baseline", [None] * 8, 0.2)
    record_sizes(silent, "inductor", [None] * 8, 0.1)
    inductor = compared(silent).results[-1]
    assert inductor.speedup.n == 7
    assert inductor.measured.samples_per_second == pytest.approx(55 / 0.1)
